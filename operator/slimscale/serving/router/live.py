"""What a configuration means for a request: policies, widths, limits. Swapped as a whole.

A request keeps the one it began with, so that a swap drops nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slimscale.api.serving_config import PolicyName, RouterConfig, RoutingMode
from slimscale.routing.admission import BufferLimits
from slimscale.routing.ejection import EjectionRules
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.heuristics import Heuristic
from slimscale.routing.policy import RoutingPolicy, Width
from slimscale.routing.registry import make_policy

__all__ = ["Live", "make_live"]


@dataclass(frozen=True, slots=True)
class Live:
    config: RouterConfig
    widths: tuple[Width, ...]
    policy: RoutingPolicy
    """The one that acts."""
    shadow: RoutingPolicy | None
    """One that only says what it would have done."""
    learns: bool
    """Whether the acting policy wants to know how its routes end."""
    delays: DelayModel
    targets: Mapping[str, bytes]
    """Path of a width's model on a sidecar."""
    pools: frozenset[str]

    @property
    def buffer_limits(self) -> BufferLimits:
        return BufferLimits(self.config.buffer_requests, self.config.buffer_bytes)

    @property
    def ejection_rules(self) -> EjectionRules:
        return EjectionRules(
            failures=self.config.eject_after_failures, seconds=self.config.eject_seconds
        )


def make_live(config: RouterConfig, before: Live | None = None) -> Live:
    """A policy that stays the same keeps what it has learnt.

    A minimum accuracy that no width has would refuse every request: the best width's counts instead.
    """
    best = max(width.accuracy for width in config.widths)
    if config.min_accuracy > best:
        config = config.model_copy(update={"min_accuracy": best})
    acting, shadow = config.policy, None
    if config.mode is RoutingMode.SHADOW:
        acting, shadow = PolicyName.SED, config.policy
    policy = _kept(acting, config, before)
    return Live(
        config=config,
        widths=tuple(
            Width(width.ratio, width.model, width.accuracy, width.flops_ratio)
            for width in config.widths
        ),
        policy=policy,
        learns=not isinstance(policy, Heuristic),
        shadow=None if shadow is None else _kept(shadow, config, before),
        delays=DelayModel(max_batch_rows=config.max_batch_rows),
        targets={
            width.model: f"/v2/models/{width.model}/infer".encode() for width in config.widths
        },
        pools=frozenset(pool.name for pool in config.pools),
    )


def _kept(name: PolicyName, config: RouterConfig, before: Live | None) -> RoutingPolicy:
    if before is not None and before.config.max_batch_rows == config.max_batch_rows:
        for policy in (before.policy, before.shadow):
            if policy is not None and policy.name == name:
                return policy
    return make_policy(name, max_batch_rows=config.max_batch_rows)
