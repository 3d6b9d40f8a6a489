"""Ill pods are left alone for a while; a sick cluster is not made worse by it."""

import pytest

from slimscale.routing.ejection import EjectionReason, EjectionRules, Health, OutlierEjection

NAMES = ("a", "b", "c", "d")


def ejection(names: tuple[str, ...] = NAMES) -> OutlierEjection:
    found = OutlierEjection(EjectionRules(failures=3, seconds=5.0))
    found.keep(names)
    return found


def answer(
    pods: OutlierEjection, name: str, *, latency: float = 0.1, expected: float = 0.1, now: float = 0
) -> EjectionReason | None:
    return pods.succeeded(name, latency_seconds=latency, expected_seconds=expected, now=now)


def fail(pods: OutlierEjection, name: str, *, now: float = 0, times: int = 3) -> list[object]:
    return [pods.failed(name, now=now) for _ in range(times)]


def test_failures_in_a_row_eject_and_a_success_between_starts_again() -> None:
    pods = ejection()
    assert fail(pods, "a", times=2) == [None, None]
    answer(pods, "a")
    assert fail(pods, "a") == [None, None, EjectionReason.FAILURES]
    assert pods.health("a", now=1.0) is Health.EJECTED
    assert pods.health("b", now=1.0) is Health.WELL


def test_failing_every_second_time_and_more_ejects_by_its_rate() -> None:
    pods = ejection()
    reasons = []
    for _ in range(40):
        reasons += [*fail(pods, "a", times=2), answer(pods, "a")]
    assert EjectionReason.ERROR_RATE in reasons


def test_a_pod_far_slower_than_expected_is_ejected_while_its_peers_are_not() -> None:
    pods = ejection()
    reasons = []
    for _ in range(20):
        reasons.append(answer(pods, "a", latency=2.0))
        reasons += [answer(pods, name) for name in "bcd"]
    assert [reason for reason in reasons if reason] == [EjectionReason.SLOW]
    assert pods.health("a", now=0.0) is Health.EJECTED


def test_when_all_pods_are_slow_none_is_to_blame() -> None:
    pods = ejection()
    assert not any(answer(pods, name, latency=2.0) for _ in range(50) for name in NAMES)


def test_a_pod_slowed_by_the_work_of_one_that_died_is_kept() -> None:
    pods = ejection(("a", "b"))
    for name in "ab":
        for _ in range(20):
            answer(pods, name)
    fail(pods, "a", times=1)
    assert not any(answer(pods, "b", latency=3.0) for _ in range(50))


def test_a_pod_is_not_compared_with_one_that_has_answered_nothing() -> None:
    pods = ejection(("a", "b"))
    assert not any(answer(pods, "b", latency=3.0) for _ in range(50))


def test_jitter_of_milliseconds_ejects_nobody() -> None:
    pods = ejection()
    assert not any(answer(pods, "a", latency=0.03, expected=0.001) for _ in range(50))


def test_a_probe_that_succeeds_brings_the_pod_back_with_a_clean_record() -> None:
    pods = ejection()
    fail(pods, "a")
    assert pods.health("a", now=4.9) is Health.EJECTED
    assert pods.health("a", now=5.0) is Health.PROBING
    answer(pods, "a", now=5.1)
    assert pods.health("a", now=5.1) is Health.WELL
    assert fail(pods, "a", now=6.0, times=2) == [None, None]


def test_each_failed_probe_doubles_the_time_out_up_to_a_bound() -> None:
    pods = ejection()
    now = 0.0
    fail(pods, "a", now=now)
    waited = []
    for _ in range(7):
        start = now
        while pods.health("a", now=now) is Health.EJECTED:
            now += 1.0
        waited.append(now - start)
        assert pods.failed("a", now=now) is EjectionReason.PROBE_FAILED
    assert waited == [5.0, 10.0, 20.0, 40.0, 80.0, 80.0, 80.0]


def test_late_answers_to_what_was_sent_before_do_not_bring_a_pod_back() -> None:
    pods = ejection()
    fail(pods, "a", now=0.0)
    answer(pods, "a", now=1.0)
    assert pods.health("a", now=1.0) is Health.EJECTED


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 3)])
def test_never_more_than_half_of_the_pods_are_out(count: int, most: int) -> None:
    names = tuple(f"p{index}" for index in range(count))
    pods = ejection(names)
    for name in names:
        fail(pods, name, times=10)
    assert pods.ejected() == most


def test_as_pods_leave_the_longest_ejected_comes_back_to_keep_half_in() -> None:
    pods = ejection()
    fail(pods, "a", now=0.0)
    fail(pods, "b", now=1.0)
    pods.keep(("a", "b", "c"))
    assert pods.health("a", now=2.0) is Health.WELL
    assert pods.health("b", now=2.0) is Health.EJECTED


def test_a_new_pod_of_an_old_name_starts_well() -> None:
    pods = ejection()
    fail(pods, "a")
    pods.keep(("b", "c", "d"))
    pods.keep(NAMES)
    assert pods.health("a", now=0.0) is Health.WELL
