"""Curves without a machine: points that the closed network would have given."""

import numpy as np

from slimscale.bench.native.dataset import MeasuredCurve
from slimscale.bench.native.plan import Curve, bounded_curve, network_of
from slimscale.bench.native.sweep import Point
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.workload import Family, TimeDistribution, Workload
from slimscale.threads.closed_network import solve_network

__all__ = ["curve", "measured", "point", "workload"]

BUCKETS = len(BUCKET_BOUNDS_SECONDS) + 1


def workload(
    *,
    cpu: float = 1e-3,
    blocking: float = 4e-3,
    dispatch: float = 50e-6,
    outstanding: int | None = None,
) -> Workload:
    return Workload(
        cpu=TimeDistribution(Family.EXPONENTIAL, cpu),
        blocking=TimeDistribution(Family.EXPONENTIAL, blocking),
        dispatch=TimeDistribution(Family.EXPONENTIAL, dispatch),
        outstanding=outstanding,
    )


def curve(
    load: Workload | None = None,
    *,
    name: str = "mixed-exponential-0",
    threads: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    quota_cores: float | None = 2.0,
) -> Curve:
    return Curve(
        name=name,
        kind="mixed",
        shape=Family.EXPONENTIAL,
        workload=load or workload(),
        quota_cores=quota_cores,
        threads=threads,
        seconds=(1.0,) * len(threads),
        seed=7,
    )


def _bucket(seconds: float) -> int:
    return int(np.searchsorted(np.asarray(BUCKET_BOUNDS_SECONDS), seconds))


def point(of: Curve, threads: int, *, repeat: int = 0, factor: float = 1.0) -> Point:
    """A second in which the closed network's mean throughput, times `factor`, was done."""
    load = of.workload
    running = min(threads, load.outstanding or threads)
    solved = solve_network(network_of(load, cores=2, quota_cores=of.quota_cores), running)
    rate = bounded_curve(load, threads, cores=2, quota_cores=of.quota_cores)[-1]
    tasks = round(float(rate) * factor)
    held = load.dispatch.mean_seconds
    wall = float(solved.mean_blocked[-1] + solved.mean_at_cpu[-1]) / float(rate)
    computed = load.cpu.mean_seconds
    task_counts, dispatch_counts = [0] * BUCKETS, [0] * BUCKETS
    task_counts[_bucket(wall)] = tasks
    dispatch_counts[_bucket(held)] = tasks
    return Point(
        repeat=repeat,
        threads=threads,
        seconds=1.0,
        tasks=tasks,
        task_seconds=wall * tasks,
        task_cpu_seconds=computed * tasks,
        task_runqueue_seconds=max(0.0, wall - computed - load.blocking.mean_seconds) * tasks,
        blocked_seconds=load.blocking.mean_seconds * tasks,
        dispatch_seconds=held * tasks,
        cpu_usage_seconds=(computed + held) * tasks,
        periods=10,
        throttled_periods=0,
        throttled_seconds=0.0,
        steal_seconds=0.0,
        load_average=0.5,
        drawn_cpu_seconds=computed * tasks,
        drawn_blocking_seconds=load.blocking.mean_seconds * tasks,
        drawn_dispatch_seconds=held * tasks,
        task_counts=tuple(task_counts),
        dispatch_counts=tuple(dispatch_counts),
    )


def measured(
    of: Curve | None = None, *, factors: tuple[float, ...] = (0.98, 1.0, 1.02)
) -> MeasuredCurve:
    """One repeat for each factor."""
    of = of or curve()
    points = [
        point(of, count, repeat=repeat, factor=factor)
        for repeat, factor in enumerate(factors)
        for count in of.threads
    ]
    histograms = {}
    for count in of.threads:
        there = [p for p in points if p.threads == count]
        histograms[count] = (
            tuple(int(n) for n in np.sum([p.task_counts for p in there], axis=0)),
            tuple(int(n) for n in np.sum([p.dispatch_counts for p in there], axis=0)),
        )
    return MeasuredCurve(of, 2, tuple(points), histograms)
