"""A candidate policy gets its share, loses it when the SLO burns, and earns it back."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.burn import BurnRule, Ended, EndedWindows, burn_rate, burning
from slimscale.routing.rollout import (
    Rollout,
    RolloutRules,
    Stage,
    StageReason,
    falls_in_canary,
)

RULES = RolloutRules()
Misses = Callable[[int], float]
"""Share of a second's requests that miss, by second."""


def run(
    rollout: Rollout,
    seconds: int,
    *,
    candidate: Misses,
    incumbent: Misses = lambda _: 0.0,
    per_second: int = 100,
    start: int = 0,
) -> list[tuple[int, Stage, StageReason]]:
    """Second by second; each stage's share of requests goes where it belongs. The changes."""
    changes = []
    for second in range(start, start + seconds):
        mine = {
            Stage.SHADOW: 0,
            Stage.CANARY: round(per_second * rollout.rules.canary_share),
            Stage.ACTIVE: per_second,
        }[rollout.stage]
        for arm, number, share in (
            (rollout.candidate, mine, candidate(second)),
            (rollout.incumbent, per_second - mine, incumbent(second)),
        ):
            missed = round(number * share)
            for index in range(number):
                arm.end(met=index >= missed)
        rollout.shadowed += per_second - mine
        if rollout.tick(second + 1.0):
            changes.append((second + 1, rollout.stage, rollout.reason))
    return changes


counts = st.integers(0, 1000).flatmap(
    lambda ended: st.builds(Ended, st.just(ended), st.integers(0, ended))
)


@given(counted=counts, allowed=st.floats(0.0001, 0.5), more=st.integers(1, 5))
@settings(deadline=None)
def test_a_burn_rate_is_the_share_of_misses_over_what_is_allowed(
    counted: Ended, allowed: float, more: int
) -> None:
    rate = burn_rate(counted, allowed=allowed)
    assert 0.0 <= rate <= 1.0 / allowed
    many = Ended(counted.ended * more, counted.missed * more)
    assert burn_rate(many, allowed=allowed) == pytest.approx(rate)
    if counted.missed < counted.ended:
        worse = Ended(counted.ended, counted.missed + 1)
        assert burn_rate(worse, allowed=allowed) > rate


@given(steps=st.lists(st.tuples(st.floats(0, 3), counts), max_size=40), window=st.floats(1, 600))
@settings(deadline=None)
def test_a_window_sums_what_was_added_within_it(
    steps: list[tuple[float, Ended]], window: float
) -> None:
    windows, now, added = EndedWindows(), 0.0, []
    for gap, counted in steps:
        now += gap
        windows.add(counted, now=now)
        added.append((now, counted))
    within = [counted for at, counted in added if at > now - window]
    assert windows.total(window, now=now) == sum(within, Ended())


@given(shares=st.lists(st.floats(0.0, RULES.allowed), min_size=1, max_size=120))
@settings(max_examples=30, deadline=None)
def test_who_keeps_the_slo_keeps_everything(shares: list[float]) -> None:
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0)
    assert not run(rollout, len(shares), candidate=lambda second: shares[second])
    assert rollout.stage is Stage.ACTIVE


@given(calm=st.integers(0, 300), misses=st.floats(0.6, 1.0), per_second=st.integers(20, 200))
@settings(max_examples=25, deadline=None)
def test_misses_take_everything_away_within_a_minute_and_say_why(
    calm: int, misses: float, per_second: int
) -> None:
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0)
    changes = run(
        rollout,
        calm + 60,
        candidate=lambda second: 0.0 if second < calm else misses,
        per_second=per_second,
    )
    assert changes[0][1:] == (Stage.SHADOW, StageReason.SLO_BURN)
    assert 0 < changes[0][0] - calm <= 55
    assert rollout.fallen


def test_a_hiccup_and_a_handful_of_requests_change_nothing() -> None:
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0)
    assert not run(rollout, 120, candidate=lambda second: float(60 <= second < 70))
    few = Rollout(Stage.ACTIVE, RULES, now=0.0)
    assert not run(few, 40, candidate=lambda _: 1.0, per_second=1)


def test_an_alarm_ends_soon_after_the_misses_do() -> None:
    windows = EndedWindows()
    rule = BurnRule(60, 5, 6.0)
    for second in range(30):
        windows.add(Ended(100, 100), now=float(second))
    assert burning(windows, rule, allowed=0.05, now=29.0)
    for second in range(30, 36):
        windows.add(Ended(100, 0), now=float(second))
    assert not burning(windows, rule, allowed=0.05, now=35.0)


def test_an_slo_that_allows_half_can_still_burn() -> None:
    rollout = Rollout(Stage.ACTIVE, RolloutRules(allowed=0.5), now=0.0)
    assert run(rollout, 60, candidate=lambda _: 1.0)[0][1] is Stage.SHADOW


def test_it_comes_back_as_a_canary_and_gets_everything_once_proven() -> None:
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0)
    changes = run(rollout, 400, candidate=lambda second: float(second < 40))
    assert [(stage, reason) for _, stage, reason in changes] == [
        (Stage.SHADOW, StageReason.SLO_BURN),
        (Stage.CANARY, StageReason.COOLED_DOWN),
        (Stage.ACTIVE, StageReason.PROVEN),
    ]
    assert changes[2][0] - changes[1][0] >= RULES.probation_seconds
    assert not rollout.fallen


def test_an_overload_that_both_suffer_from_is_not_the_candidates_fault() -> None:
    rollout = Rollout(Stage.CANARY, RULES, now=0.0)
    assert not run(rollout, 300, candidate=lambda _: 0.8, incumbent=lambda _: 0.8)


@given(seconds=st.integers(1200, 5000))
@settings(max_examples=5, deadline=None)
def test_a_policy_that_stays_bad_gets_ever_less(seconds: int) -> None:
    """Each fall doubles the wait; it never gets everything again."""
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0)
    changes = run(rollout, seconds, candidate=lambda _: 0.9, per_second=60)
    assert sum(stage is Stage.ACTIVE for _, stage, _ in changes) == 0
    falls = [at for at, stage, _ in changes if stage is Stage.SHADOW]
    waits = [later - earlier for earlier, later in pairwise(falls)]
    assert all(later > 1.5 * earlier for earlier, later in pairwise(waits))
    assert rollout.candidate.ended < 0.05 * 60 * seconds


def test_a_new_policy_earns_its_place_and_a_bad_one_never_gets_it() -> None:
    rollout = Rollout(Stage.ACTIVE, RULES, now=0.0, new_policy=True)
    assert rollout.stage is Stage.SHADOW
    changes = run(rollout, 300, candidate=lambda _: 0.0)
    assert [stage for _, stage, _ in changes] == [Stage.CANARY, Stage.ACTIVE]
    bad = Rollout(Stage.ACTIVE, RULES, now=0.0, new_policy=True)
    assert Stage.ACTIVE not in [c[1] for c in run(bad, 900, candidate=lambda _: 0.5)]
    idle = Rollout(Stage.ACTIVE, RULES, now=0.0, new_policy=True)
    assert not run(idle, 600, candidate=lambda _: 0.0, per_second=0)


def test_a_shadow_that_was_asked_for_stays_one() -> None:
    rollout = Rollout(Stage.SHADOW, RULES, now=0.0)
    assert not run(rollout, 900, candidate=lambda _: 0.0, incumbent=lambda _: 1.0)
    assert not rollout.acts_on(b"any")


@given(ids=st.sets(st.binary(min_size=1, max_size=40), min_size=1, max_size=50))
@settings(deadline=None)
def test_an_id_always_falls_on_the_same_side(ids: set[bytes]) -> None:
    for one in ids:
        assert not falls_in_canary(one, 0.0)
        assert falls_in_canary(one, 1.0)
        if falls_in_canary(one, 0.1):
            assert falls_in_canary(one, 0.2)


def test_about_the_share_falls_in_it_also_of_ids_in_a_row() -> None:
    ids = [b"1f2e3d4c-%x" % number for number in range(20_000)]
    assert sum(falls_in_canary(one, 0.05) for one in ids) == pytest.approx(1000, rel=0.2)
