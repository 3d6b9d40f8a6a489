"""A mixture of rules that learns online how much to trust each, compiled (improper learning).

    pi(a|s) = sum_m q_m K_m(a|s),  q = softmax(w);   d log pi / d w_m = q_m (K_m(a|s) / pi(a|s) - 1)

As `slimscale.routing.mixture` does it in the router: one step of the policy gradient for each request
that has ended, with the running mean of J as baseline.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.routing.compiled import compiled, inner
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.heuristics import Setting, choose
from slimscale.simulate.routing.randomness import uniform
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.view import expected_seconds, fill_observation

__all__ = ["run_mixture"]

_CAP = Setting.CAP
_FIRST_WEIGHT = 2.0
"""Of the first rule: it leads at the start."""
_MOST_WEIGHT, _MOST_ADVANTAGE = 3.0, 5.0
_BASELINE_GAIN = 0.02


@compiled
def run_mixture(
    plane: Plane, kinds: NDArray[np.int64], settings: NDArray[np.float64], learning_rate: float
) -> NDArray[np.float64]:
    """Route a whole trace by rules `kinds` (M,) with `settings` (M, SETTINGS); their last weights (M,)."""
    s: Any = plane.state[0]
    q, look = plane.requests, plane.look
    count = len(kinds)
    weights, shares = np.zeros(count), np.zeros(count)
    weights[0] = _FIRST_WEIGHT
    same = np.zeros((len(q.decisions), count), dtype=np.bool_)
    device, width = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    baseline, known, learnt = 0.0, False, 0
    while True:
        request = advance_to_next_arrival(s, q)
        if request < 0:
            return weights
        while learnt < s.decisions:
            one = q.each[q.decisions[learnt].request]
            if one.decision == learnt:  # else it was routed again
                if one.done == 0:
                    break
                if not known:
                    baseline, known = one.value, True
                advantage = min(max(one.value - baseline, -_MOST_ADVANTAGE), _MOST_ADVANTAGE)
                baseline += _BASELINE_GAIN * (one.value - baseline)
                _learn(weights, shares, same[learnt], learning_rate * advantage)
            learnt += 1
        fill_observation(s, q, request, look)
        _share(weights, shares)
        draw, picked = uniform(s), count - 1
        for rule in range(count - 1, -1, -1):
            # From the last to the first, so that what is left of the draw decides.
            if draw < shares[rule]:
                picked = rule
                break
            draw -= shares[rule]
        for rule in range(count):
            device[rule], width[rule] = choose(s, look, kinds[rule], settings[rule], look.mask)
        for rule in range(count):
            alike = device[rule] == device[picked] and width[rule] == width[picked]
            same[s.decisions, rule] = alike
        expected = expected_seconds(look, device[picked], width[picked])
        cap = int(settings[picked, _CAP])
        apply_action(s, q, request, device[picked], width[picked], cap, 0, expected)


@inner
def _share(weights: NDArray[np.float64], shares: NDArray[np.float64]) -> None:
    highest = weights.max()
    total = 0.0
    for rule in range(len(weights)):
        shares[rule] = math.exp(weights[rule] - highest)
        total += shares[rule]
    for rule in range(len(weights)):
        shares[rule] /= total


@inner
def _learn(
    weights: NDArray[np.float64], shares: NDArray[np.float64], same: NDArray[np.bool_], step: float
) -> None:
    _share(weights, shares)
    likelihood = 0.0
    for rule in range(len(weights)):
        if same[rule]:
            likelihood += shares[rule]
    if likelihood <= 0.0:
        return
    for rule in range(len(weights)):
        given = 1.0 / likelihood if same[rule] else 0.0
        moved = weights[rule] + step * shares[rule] * (given - 1.0)
        weights[rule] = min(max(moved, -_MOST_WEIGHT), _MOST_WEIGHT)
