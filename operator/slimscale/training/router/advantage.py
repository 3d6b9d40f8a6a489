"""Advantages for decisions at irregular times, and multipliers for constraints.

Semi-Markov generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, with the discount
of Bradtke and Duff 1995): between decisions dt apart rewards are worth e^(-dt/horizon), and the trace
decays by e^(-dt/memory) on top. The value is a ridge regression on the regime's features and their
squares, fitted anew to each batch's returns: cheap, and never behind the policy.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slimscale.routing.learned.observation import FloatArray
from slimscale.simulate.routing.compiled import compiled

__all__ = ["LinearValue", "PidMultiplier", "advantages", "discounted_returns"]


@compiled
def _returns(reward: Any, at: Any, horizon: float, found: Any) -> None:
    ahead = 0.0
    for index in range(len(reward) - 1, -1, -1):
        if index + 1 < len(reward):
            ahead *= math.exp(-(at[index + 1] - at[index]) / horizon)
        ahead += reward[index]
        found[index] = ahead


@compiled
def _advantages(  # noqa: PLR0917 - compiled code is called by position
    reward: Any, value: Any, at: Any, horizon: float, memory: float, found: Any
) -> None:
    ahead = 0.0
    for index in range(len(reward) - 1, -1, -1):
        if index + 1 < len(reward):
            gap = at[index + 1] - at[index]
            discount = math.exp(-gap / horizon)
            surprise = reward[index] + discount * value[index + 1] - value[index]
            ahead = surprise + discount * math.exp(-gap / memory) * ahead
        else:
            ahead = reward[index] - value[index]
        found[index] = ahead


def discounted_returns(
    reward: FloatArray, at_seconds: FloatArray, *, horizon_seconds: float
) -> FloatArray:
    """(N,) sum over j >= i of e^(-(t_j - t_i)/horizon) reward_j; nothing after the end."""
    found = np.empty(len(reward))
    _returns(reward, at_seconds, horizon_seconds, found)
    return found


def advantages(
    reward: FloatArray,
    value: FloatArray,
    at_seconds: FloatArray,
    *,
    horizon_seconds: float,
    memory_seconds: float,
) -> FloatArray:
    """(N,) generalised advantages. `value` (N,): of the state before each decision; 0 after the end."""
    found = np.empty(len(reward))
    _advantages(reward, value, at_seconds, horizon_seconds, memory_seconds, found)
    return found


class LinearValue:
    """Value = w . [g, g^2, load]; `fit` by ridge regression."""

    def __init__(self, ridge: float = 1.0) -> None:
        self._ridge = ridge
        self._weights: FloatArray | None = None

    def fit(self, regime: FloatArray, returns: FloatArray) -> None:
        x = _basis(regime)
        penalty = self._ridge * np.eye(x.shape[1])
        penalty[0, 0] = 0.0  # not of the mean: the first feature is 1
        self._weights = np.asarray(
            np.linalg.solve(x.T @ x + penalty, x.T @ returns), dtype=np.float64
        )

    def __call__(self, regime: FloatArray) -> FloatArray:
        """(N,); zeros before the first fit."""
        if self._weights is None:
            return np.zeros(len(regime))
        return np.asarray(_basis(regime) @ self._weights)


def _basis(regime: FloatArray) -> FloatArray:
    return np.concatenate([regime, regime[:, 1:] ** 2, regime[:, 1:3] * regime[:, 5:6]], axis=1)


@dataclass(slots=True)
class PidMultiplier:
    """The price of a constraint (Stooke et al. 2020, arXiv 2007.03964): `value` stays at least 0."""

    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.5
    most: float = 50.0
    value: float = 0.0
    _sum: float = 0.0
    _last: float | None = None

    def update(self, excess: float) -> float:
        """`excess`: measured less allowed. The derivative counts only while it gets worse."""
        self._sum = min(max(self._sum + self.integral * excess, 0.0), self.most)
        rise = 0.0 if self._last is None else max(excess - self._last, 0.0)
        self._last = excess
        wanted = self.proportional * excess + self._sum + self.derivative * rise
        self.value = min(max(wanted, 0.0), self.most)
        return self.value
