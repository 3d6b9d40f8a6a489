"""The policies by the names that the custom resource uses."""

from collections.abc import Callable

from slimscale.api.serving_config import PolicyName
from slimscale.routing.heuristics import (
    ColdAwareSED,
    RandomPolicy,
    RoundRobin,
    ShortestExpectedDelay,
)
from slimscale.routing.mixture import Mixture
from slimscale.routing.policy import RoutingPolicy
from slimscale.routing.shielded import LearnedPolicy, ShieldedPolicy

__all__ = ["make_policy", "shielded"]

_MAKERS: dict[PolicyName, Callable[[int], RoutingPolicy]] = {
    PolicyName.RANDOM: lambda rows: RandomPolicy(max_batch_rows=rows),
    PolicyName.ROUND_ROBIN: lambda rows: RoundRobin(max_batch_rows=rows),
    PolicyName.SED: lambda rows: ShortestExpectedDelay(max_batch_rows=rows),
    PolicyName.COLD_AWARE_SED: lambda rows: ColdAwareSED(max_batch_rows=rows),
    PolicyName.MIXTURE: lambda rows: Mixture(max_batch_rows=rows),
    PolicyName.PPO: lambda rows: shielded(None, max_batch_rows=rows),
}


def make_policy(name: PolicyName, *, max_batch_rows: int) -> RoutingPolicy:
    """A fresh policy: nothing learnt, nothing remembered. PPO: the heuristic that it falls back to."""
    return _MAKERS[name](max_batch_rows)


def shielded(learned: LearnedPolicy | None, *, max_batch_rows: int) -> ShieldedPolicy:
    """A learned policy behind its shield; None: there is none yet, the heuristic answers."""
    return ShieldedPolicy(learned, base=ColdAwareSED(max_batch_rows=max_batch_rows))
