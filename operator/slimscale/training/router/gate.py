"""The gate's parameters as one vector for the searches: start coefficients and their slopes."""

from dataclasses import dataclass

import numpy as np

from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.observation import FloatArray
from slimscale.simulate.routing.learned_policy import run_gate
from slimscale.training.router.scenes import Case, mean_value

__all__ = ["SCALES", "SEARCHED", "Gate", "first_gate", "value_of"]

SCALES = np.array([0.5, 0.5, 0.5, 0.5, 1.5, 1.5, 1.0, 1.0, 0.3, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
"""(K,) by how much each coefficient may differ, in its own unit."""


_STEERING = frozenset(
    ("load", "burst", "burst_squared", "slo", "backlog", "worst_overdue", "age", "cold",
     "worst_slowdown", "energy_weight")
)  # fmt: skip
_SLOPE_SHARE = 0.3
SEARCHED = np.concatenate([
    np.ones(len(CELL_FEATURES)),
    np.tile([_SLOPE_SHARE * (name in _STEERING) for name in REGIME_FEATURES], len(CELL_FEATURES)),
])  # fmt: skip
"""(K + K G,) by how much the evolution strategy moves each parameter: fewer are found sooner."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Coefficients start (K,) + slopes (K, G) g."""

    start: FloatArray
    slopes: FloatArray

    def vector(self) -> FloatArray:
        """(K + K G,) in units of SCALES."""
        return np.concatenate([self.start / SCALES, (self.slopes / SCALES[:, None]).ravel()])

    @staticmethod
    def from_vector(vector: FloatArray) -> "Gate":
        count, regimes = len(CELL_FEATURES), len(REGIME_FEATURES)
        slopes = vector[count:].reshape(count, regimes)
        return Gate(vector[:count] * SCALES, np.ascontiguousarray(slopes * SCALES[:, None]))


def first_gate() -> Gate:
    """Shortest expected delay within a softened plan: the best heuristic as a point of the space."""
    start = np.zeros(len(CELL_FEATURES))
    slopes = np.zeros((len(CELL_FEATURES), len(REGIME_FEATURES)))
    for name, value in _FIRST.items():
        start[CELL_FEATURES.index(name)] = value
    for (name, regime), value in _FIRST_SLOPES.items():
        slopes[CELL_FEATURES.index(name), REGIME_FEATURES.index(regime)] = value
    return Gate(start, slopes)


_FIRST = {"latency": 1.0, "plan_fast": 3.0, "cold": 0.3}
_FIRST_SLOPES = {
    ("plan_fast_high", "backlog"): 1.0,
    ("plan_mean", "cold"): 4.0,
    ("plan_fast", "cold"): -4.0,
    ("plan_mean", "burst_squared"): -3.0,
    ("plan_fast", "burst_squared"): 2.0,
    ("plan_mean", "age"): 3.0,
    ("cold", "burst_squared"): 4.0,
    ("cold", "worst_overdue"): 2.0,
    ("cold", "age"): 1.0,
}
"""A width that has to be loaded, and old telemetry, call for a plan that stays; bursts and late answers
for one that follows, with the widths that are loaded."""


def value_of(gate: Gate, case: Case) -> float:
    """Mean J of a case under the gate."""
    plane = case.plane()
    run_gate(plane, case.plans, gate.start, gate.slopes)
    return mean_value(plane)
