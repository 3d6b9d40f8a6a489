"""Throughput for every thread count and CPU in question, from what was estimated."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.closed_network import (
    MAX_THREADS,
    knee_threads,
)
from slimscale.threads.curve_table import throughput_table
from slimscale.threads.estimate import Estimate

__all__ = [
    "AnalyticPredictor",
    "AnalyticView",
    "Surface",
    "ThreadPredictor",
    "floor_of_quota",
    "worth_looking_at",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Surface:
    """Predicted tasks a second of one pod."""

    cpu_cores: tuple[float, ...]
    """The M candidates, ascending."""
    tasks_per_second: FloatArray
    """(M, K); column k-1 is k threads."""
    cpu_seconds_a_task: float
    note: str = ""
    """Why another model than the predictor's own answered; empty when its own did."""


@dataclass(frozen=True, slots=True)
class AnalyticView:
    """The analytic surface with what it was made of: learned corrections start from it."""

    surface: Surface
    here: FloatArray
    """(K,) the network's curve at the measured CPU, not yet moved onto the measured point."""
    scale: float
    """Factor that moved it there."""


class ThreadPredictor(Protocol):
    """The seam for learned predictors. What it returns is checked before it is used."""

    @property
    def name(self) -> str: ...

    def surface(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> Surface:
        """Throughput for each of `cpu_cores` (M) and 1..max_threads (K): shape (M, K)."""
        ...


class AnalyticPredictor:
    """The closed network of docs/model.md 3, calibrated so that the present point is met.

    The total CPU of a task bounds it from above: T <= C / (CPU a task), an operational law that
    also holds for the dispatch and the overhead which the network's CPU part does not contain.
    """

    name = "analytic"

    def surface(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> Surface:
        return self.view(estimate, cpu_cores=cpu_cores, max_threads=max_threads).surface

    def view(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> AnalyticView:
        """As `surface`, with its parts."""
        curves = _raw_curves(estimate, (estimate.parameters.cpu_servers, *cpu_cores), max_threads)
        anchor = _Anchor.of(curves[0], estimate)
        rows = []
        for cores, raw in zip(cpu_cores, curves[1:], strict=True):
            curve = anchor.apply(raw)
            if estimate.alone_per_second is not None:
                curve[0] = estimate.alone_per_second
            rows.append(np.minimum(curve, cores / estimate.cpu_seconds_a_task))
        surface = Surface(cpu_cores, np.vstack(rows), estimate.cpu_seconds_a_task)
        return AnalyticView(surface, curves[0], anchor.scale)


def _raw_curves(estimate: Estimate, cpu_cores: tuple[float, ...], max_threads: int) -> FloatArray:
    """Shape (len(cpu_cores), max_threads). Under less than one CPU the dispatcher runs slower."""
    dispatch = estimate.parameters.dispatch_seconds
    rows = [(max(c, 0.001), dispatch / min(1.0, max(c, 0.001))) for c in cpu_cores]
    if estimate.serial_seconds is None:
        curves = throughput_table(estimate.parameters, rows, max_threads)
    else:
        curves = np.tile(_serial_curve(estimate, max_threads), (len(rows), 1))
    most = np.asarray(cpu_cores)[:, np.newaxis] / estimate.cpu_seconds_a_task
    return np.asarray(np.minimum(curves, most), dtype=np.float64)


def _serial_curve(estimate: Estimate, max_threads: int) -> FloatArray:
    """Behind a bottleneck that more threads did not lift: min(k/knee, 1)/S (docs/model.md 1).

    Where the knee lies cannot be seen from above it. It is put at half of the fewest threads known
    to reach the rate, which the next window confirms or the regression guard takes back. Measured
    points bound it: a thread never does more in larger company (T(k)/k falls with k), so fewer
    threads that were seen to do little are not promised the whole rate.
    """
    serial = estimate.serial_seconds or estimate.parameters.dispatch_seconds
    knee = max(1, math.ceil((estimate.serial_threads or estimate.threads) / 2))
    threads = np.arange(1, max_threads + 1, dtype=np.float64)
    curve = np.minimum(threads / knee, 1.0) / serial
    for point in estimate.points:
        if point.threads < estimate.threads:
            share = np.maximum(1.0, threads / point.threads)
            curve = np.minimum(curve, point.tasks_per_second * share)
    return np.asarray(curve, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """How the model's curve is moved onto the measured point.

    Below the model's peak by one factor. Beyond it the model falls steeper than programs do, so
    there the curve runs from its peak to what was measured, evenly in log k.
    """

    scale: float = 1.0
    decline: float | None = None
    decline_span: float = 1.0

    @staticmethod
    def of(curve: FloatArray, estimate: Estimate) -> "_Anchor":
        threads = estimate.threads
        if estimate.alone_per_second is not None:
            return (
                _Anchor()
            )  # the measured point is one without a hand-over: it says nothing of k > 1
        if not estimate.saturated or threads > len(curve) or estimate.tasks_per_second <= 0:
            return _Anchor()
        peak = int(np.argmax(curve)) + 1
        measured = estimate.tasks_per_second
        if threads <= peak:
            return _Anchor(scale=float(np.clip(measured / curve[threads - 1], 0.2, 5.0)))
        top = float(curve[peak - 1])
        scale = float(np.clip(measured / top, 1.0, 5.0))
        return _Anchor(
            scale=scale,
            decline=min(1.0, measured / (scale * top)),
            decline_span=math.log(threads / peak),
        )

    def apply(self, curve: FloatArray) -> FloatArray:
        moved = curve * self.scale
        if self.decline is None:
            return moved
        peak = int(np.argmax(curve)) + 1
        beyond = np.arange(peak + 1, len(curve) + 1, dtype=np.float64)
        share = np.minimum(1.0, np.log(beyond / peak) / self.decline_span)
        moved[peak:] = moved[peak - 1] * self.decline**share
        return moved


def worth_looking_at(estimate: Estimate, *, most_cores: float, max_threads: int) -> int:
    """How far to draw the curve: far past the knee, at least to the present count (K <= 1024)."""
    knee = knee_threads(replace(estimate.parameters, cpu_servers=max(most_cores, 0.001)))
    reach = int(min(4.0 * knee + 16.0, float(MAX_THREADS))) if math.isfinite(knee) else MAX_THREADS
    return min(MAX_THREADS, max(min(reach, max_threads), estimate.threads, 1))


def floor_of_quota(quota_cores: float) -> int:
    """max(1, floor(quota)): one thread too many throttles a whole barrier group (pitfalls C2)."""
    return max(1, math.floor(quota_cores + 1e-9)) if math.isfinite(quota_cores) else 1
