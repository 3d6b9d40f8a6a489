"""The contract's metrics as a page in the Prometheus text format, version 0.0.4."""

import os
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from slimscale.inpod.cgroup import CgroupCpu
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS, HistogramFigures, RecorderFigures

__all__ = [
    "CONTENT_TYPE",
    "KIND_AND_HELP",
    "METRIC_NAMES",
    "PREFIX",
    "process_start_seconds",
    "render",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "slimscale"

KIND_AND_HELP: Final = {
    "task_seconds": ("histogram", "Wall time of a task on its thread."),
    "dispatch_seconds": ("histogram", "Time the dispatcher is busy to hand over one task."),
    "tasks_total": ("counter", "Tasks that have ended."),
    "tasks_outstanding": ("gauge", "Tasks submitted and not ended."),
    "threads_applied": ("gauge", "Threads in use now."),
    "task_cpu_seconds_total": ("counter", "CPU time inside tasks."),
    "task_runqueue_seconds_total": ("counter", "Time inside tasks ready but without a CPU."),
    "cpu_quota_cores": ("gauge", "CPU quota of the container."),
    "cpu_usage_seconds_total": ("counter", "CPU time of the container."),
    "cpu_periods_total": ("counter", "Quota periods."),
    "cpu_throttled_periods_total": ("counter", "Quota periods that ended throttled."),
    "cpu_throttled_seconds_total": ("counter", "Time throttled."),
    "process_start_time_seconds": ("gauge", "When this process began, in Unix time."),
}
METRIC_NAMES: Final = frozenset(KIND_AND_HELP)
"""Names of the contract, without the prefix."""
IGNORED_NAME: Final = "inpod_thread_values_ignored_total"
IGNORED_HELP: Final = "Thread counts not used as they stood."

_started = time.time()


def _start_again() -> None:
    global _started  # noqa: PLW0603
    _started = time.time()


os.register_at_fork(after_in_child=_start_again)


def process_start_seconds() -> float:
    """Unix time at which this process imported us, or was forked."""
    return _started


def render(
    figures: RecorderFigures,
    cgroup: CgroupCpu,
    *,
    start_seconds: float,
    ignored: dict[str, int] | None = None,
) -> str:
    """A page; what is None is not on it."""
    return "\n".join(_lines(figures, cgroup, start_seconds, ignored or {})) + "\n"


def _lines(
    figures: RecorderFigures, cgroup: CgroupCpu, start_seconds: float, ignored: dict[str, int]
) -> Iterator[str]:
    yield from _histogram("task_seconds", figures.task)
    yield from _histogram("dispatch_seconds", figures.dispatch)
    for name, value in (
        ("tasks_total", figures.task.count),
        ("tasks_outstanding", figures.outstanding),
        ("threads_applied", figures.threads_applied),
        ("task_cpu_seconds_total", figures.cpu_seconds),
        ("task_runqueue_seconds_total", figures.runqueue_seconds),
        ("cpu_quota_cores", cgroup.quota_cores),
        ("cpu_usage_seconds_total", cgroup.usage_seconds),
        ("cpu_periods_total", cgroup.periods),
        ("cpu_throttled_periods_total", cgroup.throttled_periods),
        ("cpu_throttled_seconds_total", cgroup.throttled_seconds),
        ("process_start_time_seconds", start_seconds),
    ):
        if value is not None:
            yield from _head(name)
            yield f"{PREFIX}_{name} {value!r}"
    if ignored:
        yield f"# HELP {PREFIX}_{IGNORED_NAME} {IGNORED_HELP}"
        yield f"# TYPE {PREFIX}_{IGNORED_NAME} counter"
        for reason, count in sorted(ignored.items()):
            yield f'{PREFIX}_{IGNORED_NAME}{{reason="{reason}"}} {count}'


def _head(name: str) -> Iterator[str]:
    kind, text = KIND_AND_HELP[name]
    yield f"# HELP {PREFIX}_{name} {text}"
    yield f"# TYPE {PREFIX}_{name} {kind}"


def _histogram(name: str, histogram: HistogramFigures) -> Iterator[str]:
    yield from _head(name)
    bounds = [repr(bound) for bound in BUCKET_BOUNDS_SECONDS] + ["+Inf"]
    for bound, cumulative in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f'{PREFIX}_{name}_bucket{{le="{bound}"}} {cumulative}'
    yield f"{PREFIX}_{name}_sum {histogram.sum_seconds!r}"
    yield f"{PREFIX}_{name}_count {histogram.count}"
