"""The demo fails when the story does not hold, and says which part."""

from dataclasses import replace

import pytest

from e2e.demo.verdict import (
    Arm,
    PhaseResult,
    TimelinePoint,
    failures,
    seconds_to_acknowledge,
    seconds_to_reach,
)

GOOD = PhaseResult(
    phase="blocking",
    must_be_clearly_better=True,
    guessed=Arm(16, "2", (100.0, 110.0, 90.0)),
    floor=Arm(2, "2", (50.0, 55.0, 45.0)),
    operator=Arm(32, "600m", (200.0, 190.0, 210.0)),
    seconds_to_follow=25.0,
    restarts=0,
)


def verdict(*results: PhaseResult) -> str:
    return "; ".join(failures(results, follow_within_seconds=60))


def test_a_story_that_holds_has_no_failures() -> None:
    assert verdict(GOOD) == ""


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"restarts": 1}, "1 restarts"),
        ({"seconds_to_follow": 61.0}, "61 s"),
        ({"seconds_to_follow": float("inf")}, "inf"),
        ({"operator": Arm(2, "2", (51.0, 54.0, 46.0))}, "times floor"),
        ({"operator": Arm(1, "1", (30.0, 30.0, 30.0))}, "of floor"),
        ({"guessed": Arm(16, "2", (900.0, 900.0, 900.0))}, "guessed"),
        ({"operator": Arm(1, "1", (0.0, 0.0, 0.0))}, "floor"),
        ({"floor": Arm(2, "2", (0.0, 0.0, 0.0))}, "floor"),
    ],
)
def test_each_broken_promise_is_named(change: dict[str, object], word: str) -> None:
    assert word in verdict(replace(GOOD, **change))  # type: ignore[arg-type]


def test_a_compute_phase_may_equal_the_floor_within_noise() -> None:
    heavy = replace(GOOD, must_be_clearly_better=False, guessed=Arm(16, "2", (48.0, 52.0, 44.0)))
    assert verdict(replace(heavy, operator=Arm(2, "2", (48.0, 53.0, 43.0)))) == ""


def test_nothing_measured_is_a_failure() -> None:
    assert verdict() == "nothing was measured"


def test_rounds_are_compared_pairwise_so_a_slow_round_hits_both_arms() -> None:
    slow = replace(
        GOOD,
        guessed=Arm(16, "2", (100.0, 10.0, 100.0)),
        floor=Arm(2, "2", (100.0, 10.0, 100.0)),
        operator=Arm(4, "2", (150.0, 15.0, 150.0)),
    )
    assert slow.against_floor == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("rates", "seconds"),
    [
        ([45.0] * 9 + [700.0] * 12, 6.0),
        ([45.0] * 4 + [500.0] * 5 + [700.0] * 12, 6.0),  # nearly there does not count
        ([700.0] * 4 + [45.0] * 9 + [700.0] * 12, 10.0),  # it went astray and came back
        ([700.0] * 4 + [45.0] * 3 + [700.0] * 8, 0.0),  # a few slow seconds are noise
        ([700.0] * 2, float("inf")),
        ([], float("inf")),
    ],
)
def test_following_ends_when_the_throughput_stays_where_it_settles(
    rates: list[float], seconds: float
) -> None:
    timeline = [TimelinePoint(10.0 + i, "light", 4, 2.0, rate) for i, rate in enumerate(rates)]
    assert seconds_to_reach(timeline, 10.0) == pytest.approx(seconds, abs=1.0)


def test_nothing_acknowledged_is_never_followed() -> None:
    timeline = [TimelinePoint(float(i), "light", None, 2.0, 100.0) for i in range(20)]
    assert seconds_to_reach(timeline, 0.0) == float("inf")


def test_the_acknowledgement_is_the_pods_own_first_change() -> None:
    threads = [None, 16, 16, 1, 2]
    timeline = [TimelinePoint(float(i), "light", t, 2.0, 1.0) for i, t in enumerate(threads)]
    assert seconds_to_acknowledge(timeline, 1.0) == 2.0
    assert seconds_to_acknowledge(timeline[:3], 1.0) == float("inf")
