"""Delay timers: the ski rental's promise untuned, the hazard rule tuned, and the tiers they relax."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.routing.policy import Outcome
from slimscale.routing.related.delay_timer import DelayTimers, rental_cost, timer_seconds
from tests.support.routing_cases import WIDTHS, pod, request, telemetry

COLD = tuple(width.model for width in WIDTHS)


@given(wait=st.floats(0.0, 1e3), move=st.floats(1e-3, 1e2))
def test_untuned_it_never_pays_more_than_twice_what_hindsight_would(
    wait: float, move: float
) -> None:
    timer = timer_seconds([], [], move)
    assert rental_cost(wait, timer, move) <= 2.0 * min(wait, move) + 1e-9


def test_exponential_waits_are_waited_for_always_or_never() -> None:
    """Their hazard is constant: it is above 1/Δ for ever or nowhere."""
    rng = Random(1)
    waits = [rng.expovariate(1.0 / 0.2) for _ in range(400)]
    assert timer_seconds(waits, [True] * 400, 1.0) == inf
    assert timer_seconds(waits, [True] * 400, 0.02) < 0.05


def test_slots_that_free_soon_or_not_for_long_are_waited_for_only_at_first() -> None:
    """Three in four free within 50 ms, the others after seconds: after 50 ms nobody waits on."""
    rng = Random(2)
    waits = [rng.uniform(0.0, 0.05) if rng.random() < 0.75 else 5.0 for _ in range(400)]
    timer = timer_seconds(waits, [True] * 400, 0.5)
    assert 0.04 < timer <= 0.05


def test_a_wait_that_was_given_up_counts_as_longer_not_as_a_release() -> None:
    seen = [0.01] * 30
    assert timer_seconds(seen, [True] * 30, 0.5) == inf
    given_up = [*seen, *([0.02] * 90)]
    assert timer_seconds(given_up, [True] * 30 + [False] * 90, 0.5) == 0.01
    assert timer_seconds(given_up, [True] * 30 + [False] * 90, 0.02) == 0.0
    # Most gave up after 10 ms; all who stayed got a slot after 20, which is more than going costs.
    early = [*([0.01] * 90), *([0.02] * 30)]
    assert timer_seconds(early, [False] * 90 + [True] * 30, 0.015) == 0.0


@given(st.integers(0, 10**6), st.floats(0.05, 2.0))
def test_tuned_it_costs_no_more_than_any_fixed_timer_on_what_it_has_seen(
    seed: int, move: float
) -> None:
    rng = Random(seed)
    waits = [rng.choice([rng.expovariate(5.0), rng.uniform(0.5, 3.0)]) for _ in range(60)]
    tuned = timer_seconds(waits, [True] * 60, move)

    def mean(timer: float) -> float:
        return sum(rental_cost(wait, timer, move) for wait in waits) / len(waits)

    assert mean(tuned) <= min(mean(timer) for timer in (0.0, move, 0.5, 1.0, inf)) + 1e-9


def test_a_request_waits_for_the_warm_pod_until_the_timer_then_goes_to_the_cold_one() -> None:
    policy = DelayTimers(max_batch_rows=32)
    asked = request(slo=5.0, deadline=10.0)
    cold = pod("cold", telemetry(cold=COLD, load_seconds=1.0))
    for backlog, expected in ((0.2, "warm"), (0.9, "warm"), (1.3, "cold")):
        views = [pod("warm", telemetry(backlog=backlog)), cold]
        route = policy.choose(asked, views, WIDTHS, Random(3))
        assert route is not None
        assert route.pod == expected


def test_it_stops_waiting_once_the_warm_slots_have_been_slow_to_free() -> None:
    """Telemetry says 0.5 s; what came was 3 s and more. The untuned timer goes on believing it."""
    views = [pod("warm", telemetry(backlog=0.5)), pod("cold", telemetry(cold=COLD))]
    asked = request(slo=5.0, deadline=10.0)
    rng = Random(4)
    last = {}
    for tuned in (False, True):
        policy = DelayTimers(max_batch_rows=32, tuned=tuned)
        for _ in range(60):
            route = policy.choose(asked, views, WIDTHS, rng)
            assert route is not None
            last[tuned] = route.pod
            policy.learn(Outcome(asked, route, latency_seconds=3.0, succeeded=True))
    assert last == {False: "warm", True: "cold"}


@pytest.mark.parametrize("views", [[], [pod("only", telemetry(cold=COLD))]])
def test_without_a_warm_pod_it_takes_what_there_is(views: list[object]) -> None:
    route = DelayTimers(max_batch_rows=32).choose(request(), views, WIDTHS, Random(5))  # type: ignore[arg-type]
    assert (route is None) == (not views)
