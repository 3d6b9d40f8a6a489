"""One training run of PPO in the simulator: cases, roll-outs, advantages, updates, constraints.

Each iteration draws cases anew (regime, load, fleet), routes them by the stochastic policy, and
improves it on what it did. The reward of a decision is its request's J, which is the cost of those that
wait behind it only through their own rewards, a discount horizon later; `backlog_cost` adds each
decision's share of the number in the system (Little's law) at once, uncapped where J is capped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from slimscale.routing.learned.observation import FloatArray
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.training.router.adam import Adam
from slimscale.training.router.advantage import (
    LinearValue,
    PidMultiplier,
    advantages,
    discounted_returns,
)
from slimscale.training.router.gate import SCALES
from slimscale.training.router.ppo import PpoSettings, UpdateReport, improve, pack, unpack
from slimscale.training.router.rollout import Rollout, roll_out
from slimscale.training.router.scenes import draw_case

__all__ = ["Constraints", "LearnSettings", "Progress", "learn", "parameter_scale"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """None: not constrained beyond what the objective weighs."""

    most_missed: float | None = None
    """Share of the requests that may be late or dropped."""
    least_accuracy: float | None = None
    """Mean accuracy over all requests, what was dropped counting 0."""


@dataclass(frozen=True, slots=True)
class LearnSettings:
    iterations: int = 100
    cases: int = 12
    seconds: float = 4.0
    horizon_seconds: float = 0.5
    memory_seconds: float = 0.15
    backlog_cost: float = 0.0
    """J a request-second in the system, on top of the requests' own."""
    first_entropy: float = 0.01
    last_entropy: float = 0.001
    slope_share: float = 0.4
    """Steps of slopes over steps of start coefficients."""
    update: PpoSettings = field(default_factory=PpoSettings)
    constraints: Constraints = field(default_factory=Constraints)
    known_share: float = 0.5
    """Of the cases on the known fleet; the others are random fleets."""


@dataclass(frozen=True, slots=True)
class Progress:
    iteration: int
    decisions: int
    value: float
    """Mean J over the iteration's requests, exploration included."""
    update: UpdateReport
    prices: tuple[float, float]
    """Of the constraints: missed, accuracy."""


def parameter_scale(weights: PolicyWeights, slope_share: float) -> FloatArray:
    """(as `pack`) by how much each parameter's steps are multiplied."""
    slopes = np.repeat(SCALES * slope_share, weights.slopes.shape[1])
    rest = len(pack(weights)) - len(SCALES) - len(slopes)
    return np.concatenate([SCALES, slopes, np.full(rest, 0.2)])


def learn(
    weights: PolicyWeights,
    settings: LearnSettings,
    *,
    rng: np.random.Generator,
    told: Callable[[Progress], None] = lambda _progress: None,
) -> PolicyWeights:
    """The mean of the last quarter's weights (Polyak and Juditsky 1992), as of `settings`."""
    adam = Adam(len(pack(weights)))
    scale = parameter_scale(weights, settings.slope_share)
    values, missed_price, accuracy_price = LinearValue(), PidMultiplier(), PidMultiplier()
    decisions, kept = 0, []
    for iteration in range(settings.iterations):
        rollouts = [
            roll_out(
                draw_case(rng, seconds=settings.seconds, known_share=settings.known_share), weights
            )
            for _ in range(settings.cases)
        ]
        rewards = [
            _reward(one, settings, missed_price.value, accuracy_price.value) for one in rollouts
        ]
        batch = _with_advantages(rollouts, rewards, values, settings)
        part = iteration / max(settings.iterations - 1, 1)
        entropy = settings.first_entropy * (1.0 - part) + settings.last_entropy * part
        update = replace(
            settings.update, entropy=entropy, rate=settings.update.rate * (1.0 - 0.9 * part)
        )
        weights, report = improve(weights, batch, update, adam=adam, scale=scale, rng=rng)
        if part >= 0.75:
            kept.append(pack(weights))
        decisions += sum(len(one.action) for one in rollouts)
        _adjust(rollouts, settings.constraints, missed_price, accuracy_price)
        value = float(np.mean(np.concatenate([one.reward for one in rollouts])))
        prices = (missed_price.value, accuracy_price.value)
        told(Progress(iteration, decisions, value, report, prices))
    if not kept:
        return weights
    return unpack(np.mean(kept, axis=0), weights)


def _reward(
    rollout: Rollout, settings: LearnSettings, missed_price: float, accuracy_price: float
) -> FloatArray:
    """J, less what the constraints cost, over what all of it weighs: the scale stays the same."""
    reward = rollout.reward - missed_price * rollout.missed + accuracy_price * rollout.accuracy
    if settings.backlog_cost > 0.0:
        reward = reward - settings.backlog_cost * rollout.area
    return np.asarray(reward / (1.0 + missed_price + accuracy_price))


def _adjust(
    rollouts: list[Rollout],
    constraints: Constraints,
    missed_price: PidMultiplier,
    accuracy_price: PidMultiplier,
) -> None:
    if constraints.most_missed is not None:
        missed = float(np.mean(np.concatenate([one.missed for one in rollouts])))
        missed_price.update(missed - constraints.most_missed)
    if constraints.least_accuracy is not None:
        accuracy = float(np.mean(np.concatenate([one.accuracy for one in rollouts])))
        accuracy_price.update(10.0 * (constraints.least_accuracy - accuracy))


def _with_advantages(
    rollouts: list[Rollout],
    rewards: list[FloatArray],
    values: LinearValue,
    settings: LearnSettings,
) -> list[tuple[Rollout, FloatArray]]:
    """Normalised over the batch; the value is fitted to this batch's returns first.

    Each trace's mean reward is taken off: how hard a trace is must not look like a decision's merit.
    """
    centred = [reward - reward.mean() for reward in rewards]
    returns = [
        discounted_returns(reward, one.at_seconds, horizon_seconds=settings.horizon_seconds)
        for reward, one in zip(centred, rollouts, strict=True)
    ]
    values.fit(np.concatenate([one.regime for one in rollouts]), np.concatenate(returns))
    found = [
        advantages(
            reward,
            values(one.regime),
            one.at_seconds,
            horizon_seconds=settings.horizon_seconds,
            memory_seconds=settings.memory_seconds,
        )
        for reward, one in zip(centred, rollouts, strict=True)
    ]
    together = np.concatenate(found)
    centre, spread = float(together.mean()), float(together.std()) + 1e-6
    return [
        (one, np.clip((advantage - centre) / spread, -5.0, 5.0))
        for one, advantage in zip(rollouts, found, strict=True)
    ]
