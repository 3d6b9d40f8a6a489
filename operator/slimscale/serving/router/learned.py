"""From a policy's file to a policy that routes: the one place that knows how its network is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slimscale.api.serving_config import ObjectiveWeights
from slimscale.routing.policy import Width
from slimscale.serving.router.candidate import CandidateKeeper
from slimscale.serving.router.live import LoadedPolicy
from slimscale.serving.router.policy_file import PolicyFile
from slimscale.weights import read_weights

__all__ = ["SHIPPED_POLICY", "keep_candidates", "read_policy"]

SHIPPED_POLICY = "router-ppo"
"""Name of its files in `slimscale.weights`."""


def keep_candidates(config_folder: Path) -> CandidateKeeper:
    """`config_folder`: of router.json; the policy's files are in `policy/` below it."""
    file = PolicyFile(read_policy)
    found = read_weights(SHIPPED_POLICY)
    problem, shipped = "", None
    if found is not None:
        try:
            shipped = read_policy(*found)
        except ValueError as error:
            problem = f"the policy that ships cannot be read: {error}"
    return CandidateKeeper(file, config_folder / "policy", shipped=shipped, problem=problem)


def read_policy(data: bytes, card: Mapping[str, Any]) -> LoadedPolicy:
    """ValueError, which says what is wrong, for what is no policy of this version."""
    # Imported with the first policy: routers without one need no safetensors.
    from slimscale.routing.amortised import AmortisedRouter
    from slimscale.routing.learned.objective import Objective
    from slimscale.routing.learned.weights import PolicyWeights

    weights = PolicyWeights.read(data, card)

    def make(
        widths: Sequence[Width], max_batch_rows: int, objective: ObjectiveWeights
    ) -> AmortisedRouter:
        return AmortisedRouter(
            weights,
            widths=widths,
            max_batch_rows=max_batch_rows,
            objective=Objective(
                accuracy=objective.accuracy,
                latency=objective.latency,
                energy=objective.energy,
                miss=objective.miss,
            ),
        )

    return LoadedPolicy(make, weights.version, str(card.get("sha256", "")))
