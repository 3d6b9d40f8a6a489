"""The learned router's network in NumPy: scores of cells, and a softmax over (pod, width, cap, hold).

A cell's score is linear in its features with coefficients that depend on the regime (`features`), plus
a small network's correction where there is one. Both see a pod only through its own features and means
over all pods, so that the order and the number of pods do not matter. On a cell there are two things
to do: batch greedily with the largest cap, or hold for the cap that pays most.
"""

from dataclasses import dataclass

import numpy as np

from slimscale.routing.learned import layout
from slimscale.routing.learned.features import CELL_FEATURES, cell_features, regime_features
from slimscale.routing.learned.observation import FloatArray, Observation
from slimscale.routing.learned.prices import PriceTable
from slimscale.routing.learned.weights import PolicyWeights, Residual

__all__ = ["HOLD", "Choice", "choose", "correction", "scores"]

HOLD = CELL_FEATURES.index("hold")


@dataclass(frozen=True, slots=True)
class Choice:
    pod: int
    width: int
    cap: int
    """Rows."""
    hold: bool
    log_probability: float


def scores(
    observation: Observation, table: PriceTable, weights: PolicyWeights
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """((P, W) of batching greedily, (P, W) gain of holding, (P, W) cap when holding); -inf: masked."""
    regime = regime_features(observation, table.capacity)
    coefficients = weights.start + weights.slopes @ regime
    # Without a gain nothing is held; a residual sees the feature all the same.
    holding = coefficients[HOLD] > 0.0 or weights.residual is not None
    phi, caps = cell_features(observation, table, holding=holding)
    gain = phi[:, :, HOLD] * coefficients[HOLD]
    found = phi[:, :, :HOLD] @ coefficients[:HOLD]
    if weights.residual is not None:
        found += correction(phi, regime, weights.residual)
    found[~observation.mask] = -np.inf
    return found, gain, caps


def correction(phi: FloatArray, regime: FloatArray, residual: Residual) -> FloatArray:
    """(P, W) in J. `phi` (P, W, K), `regime` (G,)."""
    cells = phi.shape[2]
    hidden = phi @ residual.hidden[:, :cells].T
    hidden += residual.hidden[:, cells:] @ regime + residual.hidden_bias
    return np.asarray(np.tanh(hidden) @ residual.out)


def choose(observation: Observation, table: PriceTable, weights: PolicyWeights) -> Choice | None:
    """The most probable action, and its log-probability under the softmax; None: all is masked."""
    greedy, gain, caps = scores(observation, table, weights)
    holds = (caps > 0.0) & (gain > 0.0)
    best = np.where(holds, greedy + gain, greedy)
    place = int(best.argmax())
    pod, width = divmod(place, best.shape[1])
    top = best[pod, width]
    if not np.isfinite(top):
        return None
    total = np.exp((greedy - top) * weights.sharpness).sum()
    total += np.exp(np.where(caps > 0.0, greedy + gain - top, -np.inf) * weights.sharpness).sum()
    hold = bool(holds[pod, width])
    rows = caps[pod, width] if hold else observation.service[layout.SERVICE_MAX_BATCH_ROWS]
    return Choice(pod, width, int(rows), hold, -float(np.log(total)))
