"""Fine-tuning from logged decisions and their ends, on a leash, and the gate before publishing.

The log holds what the acting policy saw, did and got (`routing.decision_records`). The update is PPO's
on those decisions, with a penalty on the KL divergence from the policy that acted, so that a small or
odd log moves little. Only decisions count that the policy itself made and that stood: what the shield
or the incumbent decided says nothing about this policy's choice. A router takes the most probable
action; so a log teaches which of its choices went badly, and not much about those never made.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite

import numpy as np

from slimscale.routing.decision_records import DecisionRecord
from slimscale.routing.learned import layout
from slimscale.routing.learned.features import cell_features, regime_features
from slimscale.routing.learned.observation import Observation
from slimscale.routing.learned.prices import PriceTable, SloClass
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.training.router.adam import Adam
from slimscale.training.router.advantage import LinearValue, advantages, discounted_returns
from slimscale.training.router.learn import parameter_scale
from slimscale.training.router.policy_value import value_of_policy
from slimscale.training.router.ppo import PpoSettings, improve, pack
from slimscale.training.router.rollout import Rollout, probabilities
from slimscale.training.router.scenes import Case

__all__ = ["FineTuned", "NotEnough", "Verdict", "fine_tune", "may_publish", "reward_of"]

LEAST_DECISIONS = 500
_LATENCY_CAP = 2.0
_MOST_WORSE = 0.01
"""J by which a new policy may be worse than the old one in a validation case."""
_TABLE_EVERY = 1000
"""Decisions after which plans are worked out anew."""


class NotEnough(ValueError):
    """The log has too few decisions to learn from."""


@dataclass(frozen=True, slots=True)
class FineTuned:
    weights: PolicyWeights
    decisions: int
    """That counted."""
    kl: float
    """From the policy that acted, in nats a decision."""
    mean_reward: float
    """J of the logged requests."""


@dataclass(frozen=True, slots=True)
class Verdict:
    publish: bool
    reason: str
    gain: float
    """Mean J over the validation cases, new less old."""


def reward_of(record: DecisionRecord) -> float:
    """J of a logged request; its energy from the batch's time, the pod's watts and its share of rows."""
    seen, (pod, width, _, _) = record.observation, record.done
    weights = seen.service
    accuracy = seen.widths[:, layout.WIDTH_ACCURACY]
    ratio = record.latency_seconds / max(float(seen.request[layout.REQUEST_SLO_SECONDS]), 1e-3)
    latency = float(weights[layout.SERVICE_LATENCY_WEIGHT])
    miss = float(weights[layout.SERVICE_MISS_WEIGHT])
    if not record.answered:
        return -_LATENCY_CAP * latency - miss
    joules = 0.0
    if isfinite(record.compute_seconds) and record.batch_rows > 0:
        watts = float(seen.pods[pod, layout.POD_DYNAMIC_WATTS])
        rows = float(seen.request[layout.REQUEST_ROWS])
        joules = watts * record.compute_seconds * rows / record.batch_rows
    return (
        float(weights[layout.SERVICE_ACCURACY_WEIGHT]) * float(accuracy[width] - accuracy.min())
        - latency * min(ratio, _LATENCY_CAP)
        - float(weights[layout.SERVICE_ENERGY_WEIGHT]) * joules
        - miss * (0.0 if record.met else 1.0)
    )


def fine_tune(
    log: Sequence[DecisionRecord],
    weights: PolicyWeights,
    *,
    kl_leash: float = 0.1,
    settings: PpoSettings | None = None,
    horizon_seconds: float = 0.5,
    memory_seconds: float = 0.15,
    rng: np.random.Generator,
) -> FineTuned:
    """`weights` is the policy that made the log. `kl_leash`: weight of the divergence from it.

    Raises NotEnough below LEAST_DECISIONS decisions that count.
    """
    counted = [one for one in log if one.acted and one.sends == 1]
    if len(counted) < LEAST_DECISIONS:
        raise NotEnough(
            f"the log has {len(counted)} decisions that the policy itself made, of {len(log)};"
            f" {LEAST_DECISIONS} are needed: raise decisionLog.samplePercent or wait"
        )
    rollouts = [_rollout(group, weights) for group in _alike(counted)]
    values = LinearValue()
    returns = [
        discounted_returns(
            one.reward - one.reward.mean(), one.at_seconds, horizon_seconds=horizon_seconds
        )
        for one in rollouts
    ]
    values.fit(np.concatenate([one.regime for one in rollouts]), np.concatenate(returns))
    found = [
        advantages(
            one.reward - one.reward.mean(), values(one.regime), one.at_seconds,
            horizon_seconds=horizon_seconds, memory_seconds=memory_seconds,
        )
        for one in rollouts
    ]  # fmt: skip
    together = np.concatenate(found)
    spread = float(together.std()) + 1e-6
    batch = [
        (one, np.clip((gain - together.mean()) / spread, -5.0, 5.0))
        for one, gain in zip(rollouts, found, strict=True)
    ]
    update = settings or PpoSettings(epochs=4, minibatch=1024, rate=0.003)
    tuned, report = improve(
        weights,
        batch,
        replace(update, leash=kl_leash, entropy=0.0),
        adam=Adam(len(pack(weights))),
        scale=parameter_scale(weights, 0.4),
        rng=rng,
    )
    return FineTuned(
        weights=replace(tuned, version=f"{weights.version}+log"[:64]),
        decisions=len(counted),
        kl=report.kl,
        mean_reward=float(np.concatenate([one.reward for one in rollouts]).mean()),
    )


def may_publish(before: PolicyWeights, after: PolicyWeights, cases: Iterable[Case]) -> Verdict:
    """Whether a new policy may go to the routers: better in the mean, nowhere much worse."""
    gains = []
    for case in cases:
        gain = value_of_policy(after, case) - value_of_policy(before, case)
        if gain < -_MOST_WORSE:
            where = f"{case.scene.regime.name} at load {case.load:g}"
            return Verdict(False, f"worse by {-gain:.3f} J in {where}", gain)
        gains.append(gain)
    if not gains:
        return Verdict(False, "there are no validation cases", 0.0)
    mean = float(np.mean(gains))
    if mean < 0.0:
        return Verdict(False, f"worse by {-mean:.4f} J in the mean", mean)
    return Verdict(True, f"{mean:+.4f} J in the mean over {len(gains)} cases", mean)


def _alike(log: Sequence[DecisionRecord]) -> Iterable[list[DecisionRecord]]:
    """In pieces of the same number of pods and widths, each in the order of time."""
    ordered = sorted(log, key=lambda one: one.at_seconds)
    for _, piece in groupby(ordered, key=lambda one: one.observation.mask.shape):
        records = list(piece)
        for first in range(0, len(records), _TABLE_EVERY):
            yield records[first : first + _TABLE_EVERY]


def _rollout(log: Sequence[DecisionRecord], weights: PolicyWeights) -> Rollout:
    table = _table([one.observation for one in log])
    features = [cell_features(one.observation, table) for one in log]
    masks = np.array([one.observation.mask.ravel() for one in log])
    held = np.array([(caps > 0.0).ravel() for _, caps in features])
    widths, cells = log[0].observation.mask.shape[1], masks.shape[1]
    action = np.array([
        pod * widths + width + (cells if hold and can[pod * widths + width] else 0)
        for (pod, width, _, hold), can in zip((one.done for one in log), held, strict=True)
    ])  # fmt: skip
    allowed = np.concatenate([masks, masks & held], axis=1)
    allowed[np.arange(len(log)), action] = True
    regime = np.array([regime_features(one.observation, table.capacity) for one in log])
    phi = np.array([one for one, _ in features], dtype=np.float32)
    chances = probabilities(weights, phi, allowed, regime)
    return Rollout(
        phi=phi,
        allowed=allowed,
        regime=regime,
        action=action,
        # Not the logged ones: those rest on plans that the router knew and the log does not.
        log_probability=np.log(np.maximum(chances[np.arange(len(log)), action], 1e-300)),
        at_seconds=np.array([one.at_seconds for one in log]),
        reward=np.array([reward_of(one) for one in log]),
        missed=np.array([0.0 if one.met else 1.0 for one in log]),
        accuracy=np.array([
            one.observation.widths[one.done[1], layout.WIDTH_ACCURACY] if one.answered else 0.0
            for one in log
        ]),
        area=np.zeros(len(log)),
    )  # fmt: skip


def _table(seen: Sequence[Observation]) -> PriceTable:
    slos = Counter(float(one.request[layout.REQUEST_SLO_SECONDS]) for one in seen)
    table = PriceTable([SloClass(slo, float(count)) for slo, count in slos.most_common(8)])
    first = seen[0]
    deployed = np.any([one.mask for one in seen], axis=0)
    table.refresh(replace(first, mask=deployed))
    return table
