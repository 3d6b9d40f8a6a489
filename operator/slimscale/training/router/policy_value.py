"""What a policy is worth on a case: its most probable actions, as it is deployed."""

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.learned_policy import run_gate, run_policy
from slimscale.training.router.rollout import residual_arrays
from slimscale.training.router.scenes import Case, mean_value

__all__ = ["value_of_policy"]


def value_of_policy(weights: PolicyWeights, case: Case) -> float:
    """Mean J of the case's requests after the warm-up."""
    plane = case.plane()
    if weights.residual is None:
        run_gate(plane, case.plans, weights.start, weights.slopes)
    else:
        run_policy(plane, case.plans, weights.start, weights.slopes, *residual_arrays(weights))
    return mean_value(plane)
