"""The closed queueing network alone: measured once, predicted once, never tuned."""

from dataclasses import dataclass, field

from slimscale.bench.baselines.formula import FirstWindow
from slimscale.bench.policy import MAX_THREADS, PolicyView
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.memo import Regime
from slimscale.threads.predictor import AnalyticPredictor, ThreadPredictor

__all__ = ["PredictOnce", "estimate_of_view", "fewest_within"]

TOLERANCE = 0.03
"""Throughput given up for fewer threads: the operator's default."""


@dataclass(slots=True)
class PredictOnce(FirstWindow):
    """Any predictor of the operator on the first window; by default the analytic one."""

    name: str = "analytic-once"
    predictor: ThreadPredictor = field(default_factory=AnalyticPredictor, repr=False)

    def of_view(self, view: PolicyView) -> float | None:
        estimate = estimate_of_view(view)
        if estimate is None:
            return None
        surface = self.predictor.surface(
            estimate, cpu_cores=(view.cores_in_reach,), max_threads=MAX_THREADS
        )
        return fewest_within([float(rate) for rate in surface.tasks_per_second[0]], TOLERANCE)


def estimate_of_view(view: PolicyView) -> Estimate | None:
    """What the operator would read off this window alone; None where it can say nothing."""
    window = view.window()
    if window is None:
        return None
    return estimate_parameters(
        window,
        cores=view.cores_in_reach,
        node_cores=float(view.cores),
        regime=Regime(),
        min_tasks=30,
    )


def fewest_within(curve: list[float], tolerance: float) -> int:
    """Fewest threads whose throughput is within `tolerance` of the curve's best; curve[0] is k=1."""
    goal = max(curve) * (1.0 - tolerance)
    return next(k for k, rate in enumerate(curve, start=1) if rate >= goal)
