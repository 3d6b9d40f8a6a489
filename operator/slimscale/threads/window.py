"""The window that a decision looks at: the pods' work over the last seconds, in one figure each.

All its samples were taken with one thread count and one quota, after the last change of load, so
that before and after are never mixed.
"""

import math
from dataclasses import dataclass, replace

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import Metrics, MetricsSource, Tuning
from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import Observation, PodObservation
from slimscale.threads.histogram import merge
from slimscale.threads.sampling import (
    PodData,
    SamplePair,
    consecutive_pairs,
    difference,
    eligible_pods,
    judge_pod,
    spaced,
    steady_samples,
)

__all__ = [
    "DISPATCH_PROBABILITIES",
    "HISTORY_INTERVALS",
    "TASK_PROBABILITIES",
    "WindowResult",
    "WorkloadWindow",
    "aggregate",
    "observe_window",
]

FEWEST_TASKS = 8
QUORUM = 0.5
"""Share of the ready pods that must have usable samples: one bad scrape must not stop a decision."""
TASK_PROBABILITIES = (
    *(0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9),
    *(0.925, 0.95, 0.965, 0.98, 0.99, 0.995, 0.998, 0.999),
)
DISPATCH_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
HISTORY_INTERVALS = 16
LEAST_TASK_TIMES = 4.0
"""Before that the tasks that have finished are the short ones, and their rate is not the rate."""
SHORTEST_WINDOW_SHARE = 0.5
"""Of one scrape interval: below it rates are noise."""


@dataclass(frozen=True, slots=True)
class WorkloadWindow:
    """Means over pods and tasks. Seconds a task; rates a pod. None: not served by the pods."""

    pods: int
    threads: int
    started_at_seconds: float
    ended_at_seconds: float
    tasks: float
    tasks_per_second: float
    task_seconds: float
    task_cpu_seconds: float | None
    task_runqueue_seconds: float | None
    dispatch_seconds: float | None
    dispatch_median_seconds: float | None
    dispatch_squared_variation: float | None
    task_quantiles_seconds: tuple[float | None, float | None, float | None]
    """At 0.5, 0.9 and 0.99."""
    outstanding: float | None
    saturated: bool
    cpu_quota_cores: float | None
    cpu_used_cores: float | None
    cpu_seconds_a_task: float | None
    """The container's whole CPU use over its tasks: with dispatch and everything else it does."""
    throttled_ratio: float | None
    throttled_seconds_per_second: float | None
    """Summed over CPUs, as the kernel counts it."""
    task_shape_seconds: tuple[float, ...] = ()
    """Quantiles of the task time at `TASK_PROBABILITIES`; empty without a histogram."""
    dispatch_shape_seconds: tuple[float, ...] = ()
    """Of the dispatch time at `DISPATCH_PROBABILITIES`."""
    history_per_second: tuple[float, ...] = ()
    """Tasks a second of a pod in the last intervals, oldest first, at most `HISTORY_INTERVALS`."""
    task_squared_variation: float | None = None
    """CV^2 of the task times, as coarse as the buckets are."""

    @property
    def threads_outside_tasks(self) -> float:
        """Mean number, k - T*wall (Little's law): at the dispatcher, where demand is saturated."""
        return self.threads - self.tasks_per_second * self.task_seconds

    @property
    def span_seconds(self) -> float:
        return self.ended_at_seconds - self.started_at_seconds


@dataclass(frozen=True, slots=True)
class WindowResult:
    """A window, or why there is none. `problem` tells a fault of the data from a quiet workload."""

    window: WorkloadWindow | None
    reason: Reason
    message: str
    problem: bool = False
    usable_pods: int = 0
    ready_pods: int = 0


def observe_window(
    observation: Observation,
    *,
    tuning: Tuning,
    metrics: Metrics,
    now_seconds: float,
    not_before_seconds: float,
    first_look: bool = False,
) -> WindowResult:
    """Aggregate the newest comparable samples of every ready pod; never raises.

    `first_look`: the load has just changed and the count in force is that of another one, so fewer
    tasks than `tuning.min_tasks` say enough.
    """
    if first_look:
        few = max(min(FEWEST_TASKS, tuning.min_tasks), tuning.min_tasks // 3)
        tuning = tuning.model_copy(update={"min_tasks": few})
    ready = eligible_pods(observation)
    if not ready:
        return WindowResult(None, Reason.WARMING_UP, "no pod is ready yet")
    if observation.metrics_problem:
        reason = (
            Reason.PROMETHEUS_ERROR
            if metrics.source is MetricsSource.PROMETHEUS
            else Reason.METRICS_MISSING
        )
        return WindowResult(None, reason, observation.metrics_problem, True, 0, len(ready))
    usable: list[PodObservation] = []
    faults: dict[PodData, int] = {}
    for pod in ready:
        verdict = judge_pod(
            pod, now_seconds=now_seconds, max_age_seconds=float(metrics.max_age_seconds)
        )
        if verdict is PodData.USABLE:
            usable.append(pod)
        else:
            faults[verdict] = faults.get(verdict, 0) + 1
    if len(usable) < max(1, math.ceil(QUORUM * len(ready))):
        return _without_quorum(faults, usable=len(usable), ready=len(ready))
    return _window_of(
        usable,
        ready=len(ready),
        tuning=tuning,
        interval_seconds=float(metrics.interval_seconds),
        not_before_seconds=not_before_seconds,
    )


_FAULT_REASON = {
    PodData.MISSING: Reason.METRICS_MISSING,
    PodData.STALE: Reason.METRICS_STALE,
    PodData.INVALID: Reason.METRICS_INVALID,
    PodData.NO_CONTRACT: Reason.NO_CONTRACT,
}


def _without_quorum(faults: dict[PodData, int], *, usable: int, ready: int) -> WindowResult:
    worst = max(faults, key=lambda kind: faults[kind])
    words = ", ".join(f"{count} {kind.value}" for kind, count in faults.items())
    return WindowResult(
        None,
        _FAULT_REASON[worst],
        f"{usable} of {ready} ready pods have usable metrics ({words}); at least half must",
        True,
        usable,
        ready,
    )


def _window_of(
    pods: list[PodObservation],
    *,
    ready: int,
    tuning: Tuning,
    interval_seconds: float,
    not_before_seconds: float,
) -> WindowResult:
    pairs = _pairs(
        pods,
        tuning=tuning,
        shortest_seconds=SHORTEST_WINDOW_SHARE * interval_seconds,
        not_before_seconds=not_before_seconds,
    )
    seen = len(pods)
    if not pairs:
        return WindowResult(
            None,
            Reason.WARMING_UP,
            "waiting for two samples taken under the present threads, CPU and load",
            usable_pods=seen,
            ready_pods=ready,
        )
    tasks = sum(p.tasks for p in pairs)
    if _idle(pairs):
        return WindowResult(
            None,
            Reason.IDLE,
            "the pods answer and have no work: nothing to learn from",
            usable_pods=seen,
            ready_pods=ready,
        )
    if tasks < tuning.min_tasks:
        return WindowResult(
            None,
            Reason.WARMING_UP,
            f"{tasks:.0f} tasks finished so far, {tuning.min_tasks} are needed (tuning.minTasks)",
            usable_pods=seen,
            ready_pods=ready,
        )
    window = replace(
        aggregate(pairs, with_shape=True),
        history_per_second=_history(pods, interval_seconds=interval_seconds),
    )
    if window.span_seconds < LEAST_TASK_TIMES * window.task_seconds:
        return WindowResult(
            None,
            Reason.WARMING_UP,
            f"a task takes {window.task_seconds:.3g} s: the window of {window.span_seconds:.0f} s is"
            f" still shorter than {LEAST_TASK_TIMES:g} tasks",
            usable_pods=seen,
            ready_pods=ready,
        )
    partial = len(pods) < ready
    return WindowResult(
        window,
        Reason.METRICS_PARTIAL if partial else Reason.METRICS_FOUND,
        f"{tasks:.0f} tasks in {window.span_seconds:.0f} s from {len(pairs)} of {ready} ready pods",
        usable_pods=seen,
        ready_pods=ready,
    )


def _pairs(
    pods: list[PodObservation],
    *,
    tuning: Tuning,
    shortest_seconds: float,
    not_before_seconds: float,
) -> list[SamplePair]:
    """One pair a pod; of pods with unlike threads or quotas the largest group."""
    steady = [steady_samples(pod, not_before_seconds=not_before_seconds) for pod in pods]
    span = float(tuning.window_seconds)
    best: list[SamplePair] = []
    for _ in range(4):  # a longer look back where too few tasks finished
        groups: dict[tuple[int, float | None], list[SamplePair]] = {}
        for samples in steady:
            if len(samples) < 2:
                continue
            latest = samples[-1]
            old_enough = [
                s for s in samples[:-1] if latest.sampled_at_seconds - s.sampled_at_seconds >= span
            ]
            first = old_enough[-1] if old_enough else samples[0]
            pair = _with_gaps(difference(latest, first), first, samples)
            if pair is not None and pair.span_seconds >= shortest_seconds:
                groups.setdefault((pair.threads, pair.cpu_quota_cores), []).append(pair)
        if not groups:
            return []
        best = max(groups.values(), key=lambda pairs: (len(pairs), -pairs[0].threads))
        if sum(p.tasks for p in best) >= tuning.min_tasks or _idle(best):
            break  # idle now is idle, whatever was done before
        span *= 2
    return best


def _with_gaps(
    pair: SamplePair | None, first: ContractSample, samples: tuple[ContractSample, ...]
) -> SamplePair | None:
    """Demand counts as saturated only where no sample in between found the pod short of work."""
    if pair is None:
        return None
    waiting = [
        s.tasks_outstanding
        for s in samples[:-1]
        if s.sampled_at_seconds >= first.sampled_at_seconds and s.tasks_outstanding is not None
    ]
    return replace(pair, outstanding_at_start=min(waiting, default=pair.outstanding_at_start))


def _idle(pairs: list[SamplePair]) -> bool:
    return not any(p.tasks or p.outstanding_at_start or p.outstanding_at_end for p in pairs)


def aggregate(pairs: list[SamplePair], *, with_shape: bool = False) -> WorkloadWindow:
    """Sum over pods, then divide. The pairs share one thread count; `pairs` is not empty.

    The quantiles of the shape are left out unless asked for: change detection needs none.
    """
    tasks = sum(p.tasks for p in pairs)
    count = sum(p.task.count for p in pairs)
    task = merge([p.task for p in pairs])
    dispatch = merge([p.dispatch for p in pairs if p.dispatch is not None])
    usage = _sum([p.cpu_usage_seconds for p in pairs])
    cpu, runqueue = (
        _sum([p.task_cpu_seconds for p in pairs]),
        _sum([p.task_runqueue_seconds for p in pairs]),
    )
    throttled = _sum([p.throttled_seconds for p in pairs])
    seconds = sum(p.span_seconds for p in pairs)
    ratios = [p.throttled_ratio for p in pairs if p.throttled_ratio is not None]
    outstanding = [p.outstanding_at_end for p in pairs if p.outstanding_at_end is not None]
    return WorkloadWindow(
        pods=len(pairs),
        threads=pairs[0].threads,
        started_at_seconds=min(p.started_at_seconds for p in pairs),
        ended_at_seconds=max(p.ended_at_seconds for p in pairs),
        tasks=tasks,
        tasks_per_second=sum(p.tasks / p.span_seconds for p in pairs) / len(pairs),
        task_seconds=sum(p.task.sum_seconds for p in pairs) / count if count > 0 else 0.0,
        task_cpu_seconds=cpu / tasks if cpu is not None and tasks else None,
        task_runqueue_seconds=runqueue / tasks if runqueue is not None and tasks else None,
        dispatch_seconds=dispatch.mean_seconds if dispatch else None,
        dispatch_median_seconds=dispatch.quantile_seconds(0.5) if dispatch else None,
        dispatch_squared_variation=dispatch.squared_variation() if dispatch else None,
        task_squared_variation=task.squared_variation() if task else None,
        task_quantiles_seconds=(
            task.quantile_seconds(0.5) if task else None,
            task.quantile_seconds(0.9) if task else None,
            task.quantile_seconds(0.99) if task else None,
        ),
        outstanding=sum(outstanding) / len(outstanding) if outstanding else None,
        saturated=all(p.saturated for p in pairs),
        cpu_quota_cores=pairs[0].cpu_quota_cores,
        cpu_used_cores=usage / seconds if usage is not None else None,
        cpu_seconds_a_task=usage / tasks if usage is not None and tasks else None,
        throttled_ratio=max(ratios) if ratios else None,
        throttled_seconds_per_second=throttled / seconds if throttled is not None else None,
        task_shape_seconds=(
            task.quantiles_seconds(TASK_PROBABILITIES) if task and with_shape else ()
        ),
        dispatch_shape_seconds=(
            dispatch.quantiles_seconds(DISPATCH_PROBABILITIES) if dispatch and with_shape else ()
        ),
    )


def _history(pods: list[PodObservation], *, interval_seconds: float) -> tuple[float, ...]:
    """Mean tasks a second of a pod in each of the last intervals, whatever its threads were.

    Pods are scraped together, so their n-th last intervals are the same time. Samples of quick
    looks in between are left out: an interval is one whatever was going on.
    """
    recent = [
        list(consecutive_pairs(spaced(pod.samples, interval_seconds)[-HISTORY_INTERVALS - 1 :]))
        for pod in pods
    ]
    found = []
    for back in range(min(HISTORY_INTERVALS, max(map(len, recent), default=0)), 0, -1):
        pairs = [pairs[-back] for pairs in recent if len(pairs) >= back]
        found.append(sum(p.tasks / p.span_seconds for p in pairs) / len(pairs))
    return tuple(found)


def _sum(values: list[float | None]) -> float | None:
    """None as soon as one pod does not serve the figure: a sum without it would be too small."""
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None
