"""The one protocol behind which AutoThread and all that it is compared with are run."""

import math
from dataclasses import dataclass
from typing import Protocol

from slimscale.domain.contract import ContractSample
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from slimscale.threads.sampling import difference
from slimscale.threads.window import WorkloadWindow, aggregate

__all__ = [
    "MAX_THREADS",
    "Choice",
    "PlantPolicy",
    "PolicyView",
    "ThreadPolicy",
    "cores_in_reach",
    "view_between",
    "within",
]

MAX_THREADS = 256
"""What every policy of the benchmark may use at most, whatever it would like."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a policy wants from now on. None: that stays as it is."""

    threads: int | None
    quota_cores: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What a policy may see: means between two samples of one pod under one thread count.

    Seconds a task; None where no task finished or the pod does not serve the figure.
    """

    earlier: ContractSample
    later: ContractSample
    cores: int
    """Of the host: what a program without an eye for quotas sees."""
    now_seconds: float
    span_seconds: float
    threads: int
    """As the pod reports it: surplus threads count until their last task has ended."""
    tasks: float
    tasks_per_second: float
    task_seconds: float | None
    task_cpu_seconds: float | None
    task_runqueue_seconds: float | None
    dispatch_seconds: float | None
    cpu_used_cores: float
    quota_cores: float | None
    throttled_ratio: float
    outstanding: float
    saturated: bool

    @property
    def cores_in_reach(self) -> float:
        """min(cores, quota): CPU that the pod can use in the long run."""
        return cores_in_reach(self.cores, self.quota_cores)

    @property
    def task_waiting_seconds(self) -> float | None:
        """Of a task: neither computing nor queueing for a CPU."""
        if self.task_seconds is None or self.task_cpu_seconds is None:
            return None
        busy = self.task_cpu_seconds + (self.task_runqueue_seconds or 0.0)
        return max(0.0, self.task_seconds - busy)

    @property
    def service_seconds(self) -> float | None:
        """Z: of a task without its wait for a CPU."""
        if self.task_cpu_seconds is None or self.task_waiting_seconds is None:
            return None
        return self.task_cpu_seconds + self.task_waiting_seconds

    def window(self) -> WorkloadWindow | None:
        """The same interval as the operator's own stages see it."""
        pair = difference(self.later, self.earlier)
        return aggregate([pair]) if pair is not None and pair.tasks > 0 else None


class ThreadPolicy(Protocol):
    """Asked every `step_seconds`; what it answers holds `apply_delay_seconds` later."""

    @property
    def name(self) -> str: ...

    @property
    def step_seconds(self) -> float:
        """Simulated seconds between two questions; inf: never asked."""
        ...

    @property
    def apply_delay_seconds(self) -> float:
        """0 for what runs inside the program; the annotation's way for an operator."""
        ...

    def start(self, host: Host) -> int:
        """The thread count that the program begins with."""
        ...

    def choose(self, view: PolicyView) -> Choice: ...


class PlantPolicy(ThreadPolicy, Protocol):
    """A policy that builds the operator's own Observation: it needs the pod, not just a view."""

    def attach(self, plant: Plant) -> None: ...


def cores_in_reach(cores: int, quota_cores: float | None) -> float:
    return min(float(cores), quota_cores) if quota_cores is not None else float(cores)


def within(threads: float, most: int = MAX_THREADS) -> int:
    """The nearest allowed thread count; 1 for what is no number."""
    if not math.isfinite(threads):
        return 1 if math.isnan(threads) or threads < 0 else most
    return min(max(round(threads), 1), most)


def view_between(earlier: ContractSample, later: ContractSample, host: Host) -> PolicyView:
    """Subtract two samples of one process; the thread count is the later one's.

    Raises ValueError where the samples are not of one process in the order of time.
    """
    span = later.sampled_at_seconds - earlier.sampled_at_seconds
    if span <= 0 or not later.same_process_as(earlier):
        raise ValueError(
            f"samples {span} s apart cannot be compared; give two of one process, oldest first"
        )
    tasks = _grown(earlier.tasks_total, later.tasks_total)
    periods = _grown(earlier.cpu_periods_total, later.cpu_periods_total)
    throttled = _grown(earlier.cpu_throttled_periods_total, later.cpu_throttled_periods_total)
    threads = later.threads_applied or 1
    waiting = min(earlier.tasks_outstanding or 0.0, later.tasks_outstanding or 0.0)
    return PolicyView(
        earlier=earlier,
        later=later,
        cores=host.cores,
        now_seconds=later.sampled_at_seconds,
        span_seconds=span,
        threads=threads,
        tasks=tasks,
        tasks_per_second=tasks / span,
        task_seconds=_mean(
            earlier.task.sum_seconds if earlier.task else None,
            later.task.sum_seconds if later.task else None,
            tasks,
        ),
        task_cpu_seconds=_mean(earlier.task_cpu_seconds_total, later.task_cpu_seconds_total, tasks),
        task_runqueue_seconds=_mean(
            earlier.task_runqueue_seconds_total, later.task_runqueue_seconds_total, tasks
        ),
        dispatch_seconds=_mean(
            earlier.dispatch.sum_seconds if earlier.dispatch else None,
            later.dispatch.sum_seconds if later.dispatch else None,
            _grown(
                earlier.dispatch.count if earlier.dispatch else None,
                later.dispatch.count if later.dispatch else None,
            ),
        ),
        cpu_used_cores=_grown(earlier.cpu_usage_seconds_total, later.cpu_usage_seconds_total)
        / span,
        quota_cores=later.cpu_quota_cores or None,
        throttled_ratio=min(1.0, throttled / periods) if periods > 0 else 0.0,
        outstanding=later.tasks_outstanding or 0.0,
        saturated=waiting >= threads,
    )


def _grown(earlier: float | None, later: float | None) -> float:
    if earlier is None or later is None:
        return 0.0
    return max(0.0, later - earlier)


def _mean(earlier: float | None, later: float | None, count: float) -> float | None:
    if earlier is None or later is None or count <= 0:
        return None
    return max(0.0, later - earlier) / count
