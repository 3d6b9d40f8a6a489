"""Views, runs and curves with the figures that a test wants, and the rest plausible."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.policy import PolicyView
from slimscale.bench.runner import RunRecord
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.simulate.workload import Family, Host, TimeDistribution, Workload

__all__ = ["curves_of", "make_run", "make_sample", "make_view", "make_workload"]


def make_sample(at_seconds: float, **figures: Any) -> ContractSample:
    """Cumulative figures of a pod that has done nothing but what is given."""
    given: dict[str, Any] = {
        "pod_uid": "pod",
        "sampled_at_seconds": at_seconds,
        "process_start_seconds": 0.0,
        "threads_applied": 4,
        "tasks_total": 0.0,
        "tasks_outstanding": 100.0,
        "task": HistogramSnapshot((1.0, float("inf")), (0.0, 0.0), 0.0),
        "dispatch": HistogramSnapshot((1.0, float("inf")), (0.0, 0.0), 0.0),
        "task_cpu_seconds_total": 0.0,
        "task_runqueue_seconds_total": 0.0,
        "cpu_quota_cores": None,
        "cpu_usage_seconds_total": 0.0,
        "cpu_periods_total": 0.0,
        "cpu_throttled_periods_total": 0.0,
        "cpu_throttled_seconds_total": 0.0,
    }
    return ContractSample(**{**given, **figures})


def make_view(**figures: Any) -> PolicyView:
    """4 threads on 8 cores, 100 tasks a second of 10 ms, a quarter of it computing."""
    span = figures.get("span_seconds", 1.0)
    rate = figures.get("tasks_per_second", 100.0)
    at = figures.get("now_seconds", 10.0)
    given: dict[str, Any] = {
        "earlier": make_sample(at - span),
        "later": make_sample(at),
        "cores": 8,
        "now_seconds": at,
        "span_seconds": span,
        "threads": 4,
        "tasks": rate * span,
        "tasks_per_second": rate,
        "task_seconds": 0.010,
        "task_cpu_seconds": 0.0025,
        "task_runqueue_seconds": 0.0,
        "dispatch_seconds": 0.0005,
        "cpu_used_cores": 1.0,
        "quota_cores": None,
        "throttled_ratio": 0.0,
        "outstanding": 100.0,
        "saturated": True,
    }
    return PolicyView(**{**given, **figures})


def make_workload(
    *,
    cpu_seconds: float = 0.010,
    blocking_seconds: float = 0.030,
    dispatch_seconds: float = 0.0005,
    family: Family = Family.EXPONENTIAL,
) -> Workload:
    return Workload(
        cpu=TimeDistribution(family, cpu_seconds),
        blocking=TimeDistribution(family, blocking_seconds),
        dispatch=TimeDistribution(family, dispatch_seconds),
    )


def curves_of(
    *phases: tuple[float, Sequence[float]], threads: Sequence[int] = (1, 2, 4, 8)
) -> PhaseCurves:
    """(seconds, tasks a second at each of `threads`) for each phase, one after the other."""
    lengths = [seconds for seconds, _ in phases]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    return PhaseCurves(
        threads=tuple(threads),
        starts=tuple(starts),
        seconds=tuple(lengths),
        rates=tuple(np.asarray(rates, dtype=np.float64) for _, rates in phases),
    )


def make_run(
    policy: str = "autothread",
    *,
    tasks: Sequence[int] = (10, 10),
    changes: Sequence[tuple[float, int]] = ((0.0, 4),),
    scenario: str = "steps-c4-whole-exponential",
    seed: int = 1,
    tick_seconds: float = 5.0,
    cores: float = 4.0,
) -> RunRecord:
    return RunRecord(
        scenario=scenario,
        policy=policy,
        seed=seed,
        tick_seconds=tick_seconds,
        tasks=tuple(tasks),
        threads=tuple(changes[-1][1] for _ in tasks),
        changes=tuple(changes),
        cpu_core_seconds=cores * tick_seconds * len(tasks),
        cpu_used_seconds=1.0,
    )


HOST = Host(4)
