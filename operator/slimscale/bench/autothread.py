"""The operator's own `decide`, as a policy among the others: same code, same memo, simulated pod.

It is asked when it asked to be (`threads/looks.py`), sees the samples that the operator's store
would hold, and what it wants holds a second later, the time of the annotation's way into the pod
(0.2 to 1.2 s, measured).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.bench.policy import MAX_THREADS, Choice, PolicyView, cores_in_reach, within
from slimscale.domain.contract import ContractSample
from slimscale.domain.decision import Decision
from slimscale.simulate.observe import observation_of
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from slimscale.threads.decide import decide
from slimscale.threads.predictor import ThreadPredictor, floor_of_quota
from slimscale.weights.shipped import shipped_predictor

__all__ = ["AutoThread", "benchmark_spec"]

CHANNEL_SECONDS = 1.0
INTERVAL_SECONDS, QUICK_INTERVAL_SECONDS = 5, 2


def benchmark_spec(
    *,
    objective: str = "MaxThroughput",
    limit_policy: str = "Keep",
    tuning: Mapping[str, Any] | None = None,
    max_threads: int = MAX_THREADS,
    interval_seconds: int = INTERVAL_SECONDS,
    quick_interval_seconds: int = QUICK_INTERVAL_SECONDS,
    most_cores: float | None = None,
) -> SimWorkloadSpec:
    """A SimWorkload as a user writes it: defaults but for what is named here."""
    most = {"max": f"{round(1000 * most_cores)}m"} if most_cores is not None else {}
    return SimWorkloadSpec.model_validate(
        {
            "targetRef": {"name": "plant"},
            "updatePolicy": {"mode": "InPlace"},
            "threads": {"max": max_threads},
            "cpu": {"limitPolicy": limit_policy, **most},
            "objective": {"type": objective},
            "metrics": {
                "intervalSeconds": interval_seconds,
                "quickIntervalSeconds": quick_interval_seconds,
            },
            "tuning": dict(tuning or {}),
        }
    )


@dataclass(slots=True)
class AutoThread:
    """Observe, decide, apply. The CPU moves only where the spec lets it."""

    name: str = "autothread"
    spec: SimWorkloadSpec = field(default_factory=benchmark_spec)
    predictor: ThreadPredictor | None = field(default=None, repr=False)
    """None: the operator's default."""
    apply_delay_seconds: float = CHANNEL_SECONDS
    last: Decision | None = None
    """For explaining a timeline: why the present thread count is what it is."""
    looks: int = 0
    """How often it was asked."""
    _memo: dict[str, object] = field(default_factory=dict, repr=False)
    _samples: deque[ContractSample] = field(default_factory=deque, repr=False)
    _plant: Plant | None = field(default=None, repr=False)

    @property
    def step_seconds(self) -> float:
        """Until the next look, as the last decision said."""
        calm = float(self.spec.metrics.interval_seconds)
        return self.last.next_look_seconds or calm if self.last is not None else calm

    @property
    def horizon_seconds(self) -> float:
        """How far back the operator keeps samples (observe.observer.horizon_seconds)."""
        metrics, tuning = self.spec.metrics, self.spec.tuning
        kept = max(4 * tuning.window_seconds, metrics.max_age_seconds)
        return float(kept + 2 * metrics.interval_seconds)

    def start(self, host: Host) -> int:
        """What the admission webhook sets before anything is measured."""
        return within(floor_of_quota(cores_in_reach(host.cores, host.quota_cores)))

    def attach(self, plant: Plant) -> None:
        self._plant = plant
        self._samples.append(plant.sample())

    def choose(self, view: PolicyView) -> Choice:
        if self._plant is None:
            raise RuntimeError("attach the plant before the first question")
        self.looks += 1
        self._samples.append(view.later)
        oldest = view.now_seconds - self.horizon_seconds
        while self._samples[0].sampled_at_seconds < oldest:
            self._samples.popleft()
        decision = decide(
            observation=observation_of(
                self._plant, tuple(self._samples), now_seconds=view.now_seconds
            ),
            spec=self.spec,
            memo=self._memo,
            now_seconds=view.now_seconds,
            predictor=self.predictor or shipped_predictor(),
        )
        self._memo, self.last = decision.memo, decision
        target = decision.target
        if target is None or not decision.may_write:
            return Choice(None)
        limit = target.cpu_limit_millicores
        return Choice(target.threads, quota_cores=limit / 1000.0 if limit is not None else None)
