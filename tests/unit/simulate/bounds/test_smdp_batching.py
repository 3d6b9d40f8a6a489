"""The batching SMDP against published optima, an exact evaluation, and a plain simulation."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.simulate.bounds.smdp import (
    BatchQueue,
    control_limit,
    evaluate,
    limit_policy,
    solve,
)


def _queue(load: float, energy_weight: float, *, largest: int = 8) -> BatchQueue:
    """l = 1 + .2 b milliseconds, ζ = 30 + 2 b millijoules: so g is in milliseconds."""
    seconds = tuple(1.0 + 0.2 * b for b in range(1, largest + 1))
    return BatchQueue(
        batch_seconds=seconds,
        batch_joules=tuple(30.0 + 2.0 * b for b in range(1, largest + 1)),
        rows_per_second=load * largest / seconds[-1],
        energy_weight=energy_weight,
    )


# (load, w2): optimum, work-conserving greedy, static batches of 8, control limit
KNOWN = {
    (0.3, 0.0): (1.9225, 1.9225, 6.3929, 1),
    (0.3, 0.05): (2.9289, 2.9348, 6.6583, 2),
    (0.3, 0.2): (4.946, 5.9714, 7.4544, 3),
    (0.7, 0.0): (2.9452, 2.9461, 4.388, 2),
    (0.7, 0.05): (3.9485, 4.0034, 5.0072, 3),
    (0.7, 0.2): (6.5283, 7.1755, 6.8649, 5),
}


@pytest.mark.parametrize(("load", "weight"), KNOWN)
def test_the_optimum_and_its_limit_are_the_known_ones(load: float, weight: float) -> None:
    best = solve(_queue(load, weight))
    assert best.average_cost == pytest.approx(KNOWN[load, weight][0], abs=1e-4)
    assert control_limit(best.actions[:100]) == KNOWN[load, weight][3]


@pytest.mark.parametrize(("load", "weight"), KNOWN)
def test_greedy_and_static_batches_cost_the_known_figures(load: float, weight: float) -> None:
    queue = _queue(load, weight)
    _, greedy, static, _ = KNOWN[load, weight]
    assert evaluate(queue, limit_policy(queue, 1)).average_cost == pytest.approx(greedy, abs=1e-4)
    assert evaluate(queue, limit_policy(queue, 8)).average_cost == pytest.approx(static, abs=1e-4)


@settings(max_examples=4, deadline=None)
@given(load=st.floats(0.05, 0.9), weight=st.floats(0.0, 0.5), limit=st.integers(1, 8))
def test_no_control_limit_beats_the_optimum_which_is_what_its_own_actions_cost(
    load: float, weight: float, limit: int
) -> None:
    queue = _queue(load, weight)
    best = solve(queue)
    assert best.average_cost <= evaluate(queue, limit_policy(queue, limit)).average_cost + 1e-4
    own = evaluate(queue, best.actions)
    assert own.average_cost == pytest.approx(best.average_cost, rel=1e-5)


def test_the_average_cost_is_what_a_simulation_of_the_policy_measures() -> None:
    queue = _queue(0.5, 0.1)
    limit = 3
    rng = Random(7)
    now, free_at, response, joules, served = 0.0, 0.0, 0.0, 0.0, 0
    waiting: list[float] = []
    arrivals: list[float] = []
    at = 0.0
    while len(arrivals) < 40_000:
        at += rng.expovariate(queue.rows_per_second)
        arrivals.append(at)
    for at in arrivals:
        while len(waiting) >= limit and free_at <= at:
            now = max(free_at, waiting[limit - 1])
            present = [one for one in waiting if one <= now][: queue.largest]
            if now > at or len(present) < limit:
                break
            free_at = now + queue.batch_seconds[len(present) - 1]
            joules += queue.batch_joules[len(present) - 1]
            response += sum(free_at - one for one in present)
            served += len(present)
            waiting = waiting[len(present) :]
        waiting.append(at)
    measured = response / served + queue.energy_weight * joules / at
    exact = evaluate(queue, limit_policy(queue, limit)).average_cost
    assert measured == pytest.approx(exact, rel=0.02)


def test_dearer_energy_never_lowers_the_limit() -> None:
    limits = [control_limit(solve(_queue(0.5, w)).actions[:100]) for w in (0.0, 0.1, 1.0)]
    assert None not in limits
    assert limits == sorted(limits, key=lambda limit: limit or 0)
    assert limits[-1] == 8


def test_a_policy_that_skips_is_no_control_limit() -> None:
    actions = limit_policy(_queue(0.5, 0.1), 3)
    assert control_limit(actions) == 3
    actions[5] = 2
    assert control_limit(actions) is None


def test_an_overload_is_refused_with_its_remedy() -> None:
    with pytest.raises(ValueError, match="give more than 0 and less than 1 of it"):
        _queue(1.1, 0.0)
    with pytest.raises(ValueError, match="serve at most 0"):
        evaluate(_queue(0.5, 0.0), np.full(161, 3))
