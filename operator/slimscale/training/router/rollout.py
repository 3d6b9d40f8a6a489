"""A trace routed by the stochastic policy, with everything that the update needs written down."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.compiled import compiled
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action, uniform
from slimscale.simulate.routing.learned_policy import (
    CELL_COUNT,
    REGIME_COUNT,
    Plans,
    fill_cells,
    fill_regime,
    regime_coefficients,
    score_actions,
)
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.view import expected_seconds, fill_observation
from slimscale.training.router.scenes import Case

__all__ = ["Rollout", "probabilities", "residual_arrays", "roll_out"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Rollout:
    """N decisions of one case, in order. P pods, W widths; actions 2 P W: greedy first, then held."""

    phi: Array
    """(N, P, W, K) float32."""
    allowed: Array
    """(N, 2 P W) bool."""
    regime: Array
    """(N, G)."""
    action: Array
    """(N,) int64."""
    log_probability: Array
    """(N,)."""
    at_seconds: Array
    """(N,)."""
    reward: Array
    """(N,) J of the request, where this was its last decision, else 0."""
    missed: Array
    """(N,) 1 where that request was late or dropped."""
    accuracy: Array
    """(N,) accuracy served, 0 where nothing was answered in the end."""
    area: Array
    """(N,) seconds in the system of all requests together, from this decision to the next one."""


def residual_arrays(weights: PolicyWeights) -> tuple[Array, Array, Array]:
    """(hidden (H, K + G), bias (H,), out (H,)); H = 0 without a residual."""
    if weights.residual is None:
        return np.zeros((0, CELL_COUNT + REGIME_COUNT)), np.zeros(0), np.zeros(0)
    return weights.residual.hidden, weights.residual.hidden_bias, weights.residual.out


@compiled
def _roll(  # noqa: PLR0915, PLR0917 - one loop; compiled code is called by position
    plane: Plane, plan: Plans, start: Any, slopes: Any, hidden: Any, bias: Any, out: Any,
    sharpness: float, keep_phi: Any, keep_allowed: Any, keep_regime: Any, keep_action: Any,
    keep_log: Any, keep_at: Any,
) -> int:  # fmt: skip
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    pods, widths = look.mask.shape
    cells = pods * widths
    regime, coefficients = np.empty(REGIME_COUNT), np.empty(CELL_COUNT)
    phi = np.empty((pods, widths, CELL_COUNT))
    caps, rates = np.empty((pods, widths)), np.empty(pods)
    allowed = np.zeros(2 * cells, dtype=np.bool_)
    scores = np.empty(2 * cells)
    units = np.empty((pods, widths, out.shape[0]))
    count = 0
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return count
        fill_observation(s, requests, request, look)
        fill_regime(look, plan.capacity, regime)
        fill_cells(look, plan, rates, phi, caps)
        regime_coefficients(start, slopes, regime, coefficients)
        there = 0
        for pod in range(pods):
            for width in range(widths):
                place = pod * widths + width
                allowed[place] = look.mask[pod, width]
                allowed[cells + place] = look.mask[pod, width] and caps[pod, width] > 0.0
                there += 1 if look.mask[pod, width] else 0
        if there == 0:  # nothing to choose: every device is down
            apply_action(s, requests, request, 0, 0, s.max_rows, 0, 0.0)
            allowed[0] = True
            scores[:] = -np.inf
            action, chance = 0, 1.0
        else:
            score_actions(phi, allowed, regime, coefficients, hidden, bias, out, units, scores)
            top = scores.max()
            total = 0.0
            for place in range(2 * cells):
                total += math.exp((scores[place] - top) * sharpness)
            left = uniform(s) * total
            action = -1
            for place in range(2 * cells):
                if scores[place] == -np.inf:
                    continue
                action = place
                left -= math.exp((scores[place] - top) * sharpness)
                if left <= 0.0:
                    break
            chance = math.exp((scores[action] - top) * sharpness) / total
            place = action % cells
            pod, width = place // widths, place % widths
            hold = 1 if action >= cells else 0
            cap = int(caps[pod, width]) if hold == 1 else s.max_rows
            seconds = expected_seconds(look, pod, width)
            apply_action(s, requests, request, pod, width, cap, hold, seconds)
        if count < keep_action.shape[0]:
            keep_phi[count] = phi
            keep_allowed[count] = allowed
            keep_regime[count] = regime
            keep_action[count] = action
            keep_log[count] = math.log(max(chance, 1e-300))
            keep_at[count] = s.now
            count += 1


def roll_out(case: Case, weights: PolicyWeights) -> Rollout:
    """Route the case once. Random numbers are the case's own."""
    plane = case.plane()
    pods, widths = plane.look.mask.shape
    most = len(plane.requests.decisions)
    phi = np.empty((most, pods, widths, CELL_COUNT), dtype=np.float32)
    allowed = np.empty((most, 2 * pods * widths), dtype=np.bool_)
    regime = np.empty((most, REGIME_COUNT))
    action = np.empty(most, dtype=np.int64)
    log_probability, at = np.empty(most), np.empty(most)
    count = _roll(
        plane, case.plans, weights.start, weights.slopes, *residual_arrays(weights),
        weights.sharpness, phi, allowed, regime, action, log_probability, at,
    )  # fmt: skip
    reward, missed, accuracy = np.zeros(count), np.zeros(count), np.zeros(count)
    last = plane.requests.of("decision")
    known = (last >= 0) & (last < count)
    latency = plane.requests.of("latency")[known]
    slo = np.array([one.slo_seconds for one in case.scene.classes])
    width_accuracy = np.array([one.accuracy for one in case.scene.widths])
    reward[last[known]] = plane.requests.of("value")[known]
    missed[last[known]] = latency > slo[plane.requests.of("klass")[known]]
    accuracy[last[known]] = np.where(
        np.isfinite(latency), width_accuracy[plane.requests.of("width")[known]], 0.0
    )
    return Rollout(
        phi=phi[:count],
        allowed=allowed[:count],
        regime=regime[:count],
        action=action[:count],
        log_probability=log_probability[:count],
        at_seconds=at[:count],
        reward=reward,
        missed=missed,
        accuracy=accuracy,
        area=np.append(plane.requests.decisions["area"][1:count], 0.0),
    )


@compiled
def _chances(  # noqa: PLR0917 - compiled code is called by position
    phi: Any, allowed: Any, regime: Any, start: Any, slopes: Any, hidden: Any, bias: Any,
    out: Any, sharpness: float, found: Any,
) -> None:  # fmt: skip
    pods, widths = phi.shape[1], phi.shape[2]
    coefficients, scores = np.empty(CELL_COUNT), np.empty(2 * pods * widths)
    units = np.empty((pods, widths, out.shape[0]))
    for n in range(len(phi)):
        regime_coefficients(start, slopes, regime[n], coefficients)
        score_actions(phi[n], allowed[n], regime[n], coefficients, hidden, bias, out, units, scores)
        top = scores.max()
        total = 0.0
        for place in range(len(scores)):
            found[n, place] = math.exp((scores[place] - top) * sharpness)
            total += found[n, place]
        for place in range(len(scores)):
            found[n, place] /= total


def probabilities(weights: PolicyWeights, phi: Array, allowed: Array, regime: Array) -> Array:
    """(N, 2 P W) of all actions under a policy; arrays as in `Rollout`."""
    found = np.empty(allowed.shape)
    _chances(
        phi, allowed, regime, weights.start, weights.slopes, *residual_arrays(weights),
        weights.sharpness, found,
    )  # fmt: skip
    return found
