import itertools

import pytest

from e2e.eventually import consistently, eventually


def test_the_first_true_value_is_handed_back() -> None:
    values = iter([0, None, "", 7])
    assert eventually(lambda: next(values), interval_seconds=0.001) == 7


def test_a_failed_assertion_means_not_yet() -> None:
    rounds = itertools.count()

    def third_time_lucky() -> str:
        assert next(rounds) >= 2
        return "ready"

    assert eventually(third_time_lucky, interval_seconds=0.001) == "ready"


def test_when_time_is_up_the_last_value_is_named() -> None:
    with pytest.raises(AssertionError, match=r"pods ready; last seen: 0"):
        eventually(lambda: 0, 0.0, what="pods ready")


def test_when_time_is_up_the_last_failure_is_named() -> None:
    def never() -> bool:
        raise LookupError("no such pod")

    with pytest.raises(AssertionError, match="LookupError: no such pod"):
        eventually(never, 0.0)


def test_a_fault_of_the_test_itself_is_not_waited_for() -> None:
    def broken() -> bool:
        raise TypeError("a typing error")

    with pytest.raises(TypeError):
        eventually(broken, 60.0)


def test_a_value_that_stops_being_true_fails_at_once() -> None:
    values = iter([True, True, False])
    with pytest.raises(AssertionError, match="no longer true"):
        consistently(lambda: next(values), 60.0, interval_seconds=0.001)
