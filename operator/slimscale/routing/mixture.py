"""A mixture of base policies that learns online how much to trust each (improper learning).

    pi(a|s) = sum_m q_m K_m(a|s),  q = softmax(w);   d log pi / d w_m = q_m (K_m(a|s) / pi(a|s) - 1)

(science brief 3, after arXiv 2105.00210.) One draw decides all ties of a decision, so that each base
policy is deterministic given it and K is 0 or 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.heuristics import CheapestWithinSlack, ColdAwareSED, Fastest, Heuristic
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, Width

__all__ = ["Mixture", "Objective", "reward"]

_MOST_WEIGHT = 3.0
"""Bounds each weight: with three policies none ever falls below a share of 0.1 %."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of a finished request's reward. A point of accuracy is 0.01."""

    accuracy: float = 12.0
    latency: float = 1.0
    miss: float = 1.0
    energy_per_joule: float = 0.0


def reward(outcome: Outcome, objective: Objective) -> float | None:
    """`wA * accuracy - wL * min(latency / SLO, 2) - wM * miss - wE * energy`; None when not finite.

    A failed request answers nothing, so its accuracy is 0.
    """
    slo = outcome.request.slo_seconds
    latency = outcome.latency_seconds
    if not (math.isfinite(latency) and latency >= 0.0 and slo > 0.0):
        return None
    missed = not outcome.succeeded or latency > slo
    accuracy = outcome.route.width.accuracy if outcome.succeeded else 0.0
    energy = outcome.energy_joules
    if energy is None or not math.isfinite(energy):
        energy = 0.0
    value = objective.accuracy * accuracy - objective.latency * min(latency / slo, 2.0)
    return value - objective.miss * missed - objective.energy_per_joule * energy


class _OneDraw(Random):
    """Answers each `random()` of one decision with the same number."""

    drawn = 0.0

    def random(self) -> float:
        return self.drawn


class Mixture:
    """Mixes ColdAwareSED, Fastest and CheapestWithinSlack unless told otherwise."""

    name = "Mixture"

    def __init__(
        self,
        *,
        max_batch_rows: int,
        bases: Sequence[type[Heuristic]] = (ColdAwareSED, Fastest, CheapestWithinSlack),
        objective: Objective | None = None,
        learning_rate: float = 0.02,
        weights: Sequence[float] | None = None,
    ) -> None:
        """`weights`: one a base policy; ColdAwareSED, the first, leads at the start."""
        self.delays = DelayModel(max_batch_rows=max_batch_rows)
        self.bases = [base(max_batch_rows=max_batch_rows, delays=self.delays) for base in bases]
        self.objective = objective or Objective()
        self.learning_rate = learning_rate
        self.weights = list(weights) if weights is not None else [2.0, *([0.0] * len(bases))[1:]]
        if len(self.weights) != len(self.bases):
            raise ValueError(
                f"weights has {len(self.weights)} figures for {len(self.bases)} base policies;"
                " give one each"
            )
        self._mean_reward: float | None = None
        self._ties = _OneDraw(0)

    def shares(self) -> list[float]:
        """q = softmax(w)."""
        highest = max(self.weights)
        parts = [math.exp(weight - highest) for weight in self.weights]
        total = sum(parts)
        return [part / total for part in parts]

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        candidates = self.delays.candidates(request, pods, widths)
        if not candidates:
            return None
        self._ties.drawn = rng.random()
        routes = [base.choose_among(candidates, request, self._ties) for base in self.bases]
        pick = self._drawn_base(rng.random())
        route = routes[pick]
        if route is None:
            return None
        support = tuple(float(_same(route, other)) for other in routes)
        return Route(
            route.pod, route.width, route.batch_cap, route.expected_seconds, route.reason, support
        )

    def learn(self, outcome: Outcome) -> None:
        """One step of the policy gradient with the running mean of rewards as baseline."""
        support = outcome.route.support
        if len(support) != len(self.weights):
            return  # of another policy, before a swap
        value = reward(outcome, self.objective)
        if value is None:
            return
        if self._mean_reward is None:
            self._mean_reward = value
        advantage = max(-5.0, min(5.0, value - self._mean_reward))
        self._mean_reward += 0.02 * (value - self._mean_reward)
        for index, slope in enumerate(self.gradient(support)):
            moved = self.weights[index] + self.learning_rate * advantage * slope
            self.weights[index] = max(-_MOST_WEIGHT, min(_MOST_WEIGHT, moved))

    def gradient(self, support: Sequence[float]) -> list[float]:
        """d log pi / d w_m for a route that base policy m gives with probability `support[m]`."""
        shares = self.shares()
        likelihood = sum(share * given for share, given in zip(shares, support, strict=True))
        if likelihood <= 0.0:
            return [0.0] * len(shares)
        return [
            share * (given / likelihood - 1.0) for share, given in zip(shares, support, strict=True)
        ]

    def _drawn_base(self, draw: float) -> int:
        for index, share in enumerate(self.shares()):
            draw -= share
            if draw < 0.0:
                return index
        return len(self.bases) - 1


def _same(route: Route, other: Route | None) -> bool:
    return (
        other is not None
        and other.pod == route.pod
        and other.width.model == route.width.model
        and other.batch_cap == route.batch_cap
    )
