"""What a configuration means for a request: policies, widths, limits. Swapped as a whole.

A request keeps the one it began with, so that a swap drops nothing. `policy` acts; with a candidate
(PPO, or any policy in mode Canary or Shadow) the rollout says which requests are the candidate's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slimscale.api.serving_config import ObjectiveWeights, PolicyName, RouterConfig, RoutingMode
from slimscale.routing.admission import BufferLimits
from slimscale.routing.ejection import EjectionRules
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.heuristics import Heuristic
from slimscale.routing.policy import RoutingPolicy, Width
from slimscale.routing.registry import make_policy, shielded
from slimscale.routing.rollout import Arm, Rollout, RolloutRules, Stage
from slimscale.routing.shielded import LearnedPolicy, ShieldedPolicy
from slimscale.serving.router.decision_log import DecisionLog

__all__ = ["Live", "LoadedPolicy", "make_live", "widths_of"]


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A learned policy from a file that was found good."""

    make: Callable[[Sequence[Width], int, ObjectiveWeights], LearnedPolicy]
    """For widths, the most rows of a batch, and what its owner wants."""
    version: str
    digest: str
    """Of the file's content."""


@dataclass(frozen=True, slots=True)
class Live:
    config: RouterConfig
    widths: tuple[Width, ...]
    policy: RoutingPolicy
    """The one that acts, on what is not the candidate's."""
    candidate: RoutingPolicy | None
    learned: LearnedPolicy | None
    """The candidate without its shield, where it is one."""
    log: DecisionLog | None
    """Of what a learned candidate saw and did; None: none is kept."""
    rollout: Rollout | None
    """Which requests are the candidate's; None where there is none."""
    loaded: LoadedPolicy | None
    """What the candidate was made of, where it is a learned one."""
    learns: bool
    """Whether one of them wants to know how its routes end."""
    delays: DelayModel
    targets: Mapping[str, bytes]
    """Path of a width's model on a sidecar."""
    pools: frozenset[str]

    def whose(self, request_id: bytes) -> tuple[RoutingPolicy, Arm | None]:
        """The policy that decides on this request, and whose figures it counts in."""
        rollout, candidate = self.rollout, self.candidate
        if rollout is None or candidate is None:
            return self.policy, None
        if rollout.acts_on(request_id):
            return candidate, rollout.candidate
        return self.policy, rollout.incumbent

    @property
    def buffer_limits(self) -> BufferLimits:
        return BufferLimits(self.config.buffer_requests, self.config.buffer_bytes)

    @property
    def ejection_rules(self) -> EjectionRules:
        return EjectionRules(
            failures=self.config.eject_after_failures, seconds=self.config.eject_seconds
        )


def make_live(
    config: RouterConfig,
    before: Live | None = None,
    *,
    loaded: LoadedPolicy | None = None,
    now: float = 0.0,
) -> Live:
    """A policy that stays the same keeps what it has learnt, and a candidate its stage.

    A minimum accuracy that no width has would refuse every request: the best width's counts instead.
    `loaded`: the policy file's, where the policy is PPO; None: the heuristic answers for it.
    """
    best = max(width.accuracy for width in config.widths)
    if config.min_accuracy > best:
        config = config.model_copy(update={"min_accuracy": best})
    if config.policy is not PolicyName.PPO:
        loaded = None
    widths = _widths(config, before)
    policy = _kept(_incumbent(config), config, before)
    candidate = _candidate(config, widths, before, loaded)
    return Live(
        config=config,
        widths=widths,
        policy=policy,
        candidate=candidate,
        learned=candidate.learned if isinstance(candidate, ShieldedPolicy) else None,
        log=None if loaded is None else _log(config, before, loaded, now),
        rollout=None if candidate is None else _rollout(config, before, loaded, now),
        loaded=loaded,
        learns=any(map(_learns, (policy, candidate))),
        delays=DelayModel(max_batch_rows=config.max_batch_rows),
        targets={
            width.model: f"/v2/models/{width.model}/infer".encode() for width in config.widths
        },
        pools=frozenset(pool.name for pool in config.pools),
    )


def _learns(policy: RoutingPolicy | None) -> bool:
    if isinstance(policy, ShieldedPolicy):
        return policy.learns
    return policy is not None and not isinstance(policy, Heuristic)


def _incumbent(config: RouterConfig) -> PolicyName:
    """What acts where the policy asked for does not."""
    if config.policy is PolicyName.PPO:
        return PolicyName.COLD_AWARE_SED
    return config.policy if config.mode is RoutingMode.ACTIVE else PolicyName.SED


def _candidate(
    config: RouterConfig,
    widths: tuple[Width, ...],
    before: Live | None,
    loaded: LoadedPolicy | None,
) -> RoutingPolicy | None:
    """None: the policy that acts is the one that was asked for, or there is no good file."""
    if config.policy is not PolicyName.PPO:
        return None if config.mode is RoutingMode.ACTIVE else _kept(config.policy, config, before)
    if loaded is None:
        return None
    if (
        before is not None
        and before.candidate is not None
        and before.loaded is loaded
        and before.widths is widths
        and before.config.objective == config.objective
        and _same_batches(config, before)
    ):
        return before.candidate
    learned = loaded.make(widths, config.max_batch_rows, config.objective)
    return shielded(learned, max_batch_rows=config.max_batch_rows)


def _rollout(
    config: RouterConfig, before: Live | None, loaded: LoadedPolicy | None, now: float
) -> Rollout:
    """A file that comes while running has to earn its place; what is asked for by name need not."""
    rules = RolloutRules(
        allowed=1.0 - config.slo_percentile / 100.0, canary_share=config.canary_percent / 100.0
    )
    asked = Stage(config.mode.value)
    if before is None or before.config.policy is not config.policy:
        return Rollout(asked, rules, now=now)
    was, same_file = before.rollout, before.loaded is loaded
    if was is not None and same_file and was.asked is asked:
        was.rules = rules
        return was
    return Rollout(asked, rules, now=now, new_policy=not same_file)


def _log(
    config: RouterConfig, before: Live | None, loaded: LoadedPolicy, now: float
) -> DecisionLog | None:
    """What was kept stays while decisions are kept at all."""
    share, most = config.decision_log.sample_percent / 100.0, config.decision_log.max_bytes
    if share <= 0.0:
        return None
    facts = {
        "service": config.service,
        "policy": loaded.version,
        "digest": loaded.digest,
        "models": ",".join(width.model for width in config.widths),
    }
    log = before.log if before is not None else None
    if log is None:
        return DecisionLog(share=share, max_bytes=most, facts=facts, now=now)
    log.share, log.max_bytes = share, most
    log.replace_facts(facts)
    return log


def widths_of(config: RouterConfig) -> tuple[Width, ...]:
    return tuple(
        Width(width.ratio, width.model, width.accuracy, width.flops_ratio)
        for width in config.widths
    )


def _widths(config: RouterConfig, before: Live | None) -> tuple[Width, ...]:
    """The same object while they stay the same: estimates are remembered by it."""
    widths = widths_of(config)
    return before.widths if before is not None and before.widths == widths else widths


def _kept(name: PolicyName, config: RouterConfig, before: Live | None) -> RoutingPolicy:
    if before is not None and _same_batches(config, before):
        for policy in (before.policy, before.candidate):
            if policy is not None and policy.name == name:
                return policy
    return make_policy(name, max_batch_rows=config.max_batch_rows)


def _same_batches(config: RouterConfig, before: Live) -> bool:
    return before.config.max_batch_rows == config.max_batch_rows
