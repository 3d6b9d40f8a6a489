"""The metrics that a pod serves so that its threads can be chosen (docs/contract.md).

`slimscale.inpod` and programs in other languages write them, `observe/` reads them.
"""

from dataclasses import dataclass

__all__ = ["ContractSample", "HistogramSnapshot", "MetricName"]


class MetricName:
    """Names after the prefix, which is `slimscale` unless the custom resource says otherwise."""

    TASK_SECONDS = "task_seconds"
    """Histogram: wall time of a task from start to end on its thread."""
    DISPATCH_SECONDS = "dispatch_seconds"
    """Histogram: time the dispatcher is held to hand over one task, *without* waiting for it."""
    TASKS_TOTAL = "tasks_total"
    """Counter: tasks finished."""
    TASKS_OUTSTANDING = "tasks_outstanding"
    """Gauge: tasks submitted and not finished. At or above the thread count: demand saturates."""
    THREADS_APPLIED = "threads_applied"
    """Gauge: the thread count in use now. This is the acknowledgement."""
    TASK_CPU_SECONDS_TOTAL = "task_cpu_seconds_total"
    """Counter: CPU time spent inside tasks."""
    TASK_RUNQUEUE_SECONDS_TOTAL = "task_runqueue_seconds_total"
    """Counter, optional: time inside tasks spent runnable but without a CPU (schedstat)."""
    CPU_QUOTA_CORES = "cpu_quota_cores"
    """Gauge, absent where there is no quota."""
    CPU_USAGE_SECONDS_TOTAL = "cpu_usage_seconds_total"
    """Counter: CPU time of the container's control group."""
    CPU_PERIODS_TOTAL = "cpu_periods_total"
    """Counter: scheduling periods of the quota that have passed."""
    CPU_THROTTLED_PERIODS_TOTAL = "cpu_throttled_periods_total"
    """Counter: periods in which the quota ran out."""
    CPU_THROTTLED_SECONDS_TOTAL = "cpu_throttled_seconds_total"
    """Counter: time that threads were held back by the quota, summed over CPUs."""
    PROCESS_START_TIME_SECONDS = "process_start_time_seconds"
    """Gauge: start of the process, seconds since the epoch. A change is a restart."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Cumulative counts as Prometheus serves them; the last bound is +inf."""

    upper_bounds_seconds: tuple[float, ...]
    cumulative_counts: tuple[float, ...]
    sum_seconds: float

    @property
    def count(self) -> float:
        return self.cumulative_counts[-1] if self.cumulative_counts else 0.0


@dataclass(frozen=True, slots=True)
class ContractSample:
    """One scrape of one pod. Counters are cumulative since the process started; None: not served."""

    pod_uid: str
    sampled_at_seconds: float
    process_start_seconds: float
    threads_applied: int | None
    tasks_total: float | None
    tasks_outstanding: float | None
    task: HistogramSnapshot | None
    dispatch: HistogramSnapshot | None
    task_cpu_seconds_total: float | None
    task_runqueue_seconds_total: float | None
    cpu_quota_cores: float | None
    cpu_usage_seconds_total: float | None
    cpu_periods_total: float | None
    cpu_throttled_periods_total: float | None
    cpu_throttled_seconds_total: float | None

    def same_process_as(self, earlier: "ContractSample") -> bool:
        """False after a restart or a counter reset: the two must not be subtracted."""
        if self.pod_uid != earlier.pod_uid:
            return False
        if abs(self.process_start_seconds - earlier.process_start_seconds) > 1.0:
            return False
        return (self.tasks_total or 0.0) >= (earlier.tasks_total or 0.0)
