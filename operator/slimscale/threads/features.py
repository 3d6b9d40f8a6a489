"""What the operator network sees: only what the operator measures at run time (ADR 0009).

Branch: the shape of the task time and of the dispatch time as quantile functions, the throughput
of the last windows, and scalars. Trunk: where a thread count lies against what bounds it. All
features are logarithms or shares, so they keep their meaning from microseconds to seconds; the
only absolute time is the task's CPU time against the quota's period of 100 ms.
"""

import math

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.estimate import Estimate
from slimscale.threads.predictor import AnalyticView
from slimscale.threads.window import (
    DISPATCH_PROBABILITIES,
    HISTORY_INTERVALS,
    TASK_PROBABILITIES,
    WorkloadWindow,
)

__all__ = [
    "BOUND_MARGIN",
    "BRANCH_FEATURES",
    "TRUNK_FEATURES",
    "branch_features",
    "log_odds",
    "throughput_bound",
    "trunk_features",
]

FloatArray = NDArray[np.float64]

SCALARS = (
    "log ratio r",
    "log outstanding a thread",
    "log cores",
    "log cores over measured cores",
    "CPU share of the task",
    "log task wall over its parts",
    "throttled share of periods",
    "run-queue share of the task",
    "CPU used share",
    "log CPU a task over D+S",
    "log threads now",
    "log threads now over knee",
    "log measured over network",
    "log measured over bound",
    "log network over bound at threads now",
    "demand saturates",
    "share of threads at the dispatcher",
    "log1p hand-over contention",
    "log1p linear contention",
    "log1p dispatch squared variation",
    "log node cores over cores",
    "under a quota",
    "log task CPU over 100 ms",
    "log dispatch over 60 us",
    "log tasks seen",
)
BRANCH_FEATURES = (
    *(f"log task quantile {p:g} over mean" for p in TASK_PROBABILITIES),
    *(f"log dispatch quantile {p:g} over mean" for p in DISPATCH_PROBABILITIES),
    *(f"log throughput {back} windows ago over now" for back in range(HISTORY_INTERVALS, 0, -1)),
    *SCALARS,
)
"""Names, in the order of the columns."""
TRUNK_FEATURES = (
    "log2 k over 8",
    "log k over 1+r",
    "log k over knee",
    "log k over cores",
    "log k over outstanding",
    "log k over threads now",
    "log odds of analytic over bound",
    "log analytic over its maximum",
)
BOUND_MARGIN = 1.05
"""How far above the bound of the *estimated* means the throughput may lie: they are measured."""
PERIOD_SECONDS = 0.1
HANDOVER_SECONDS = 60e-6
WIDEST_LOG = 8.0
NARROWEST_ODDS = 1e-6
"""T_analytic/Bd is kept this far from 0 and 1."""


def branch_features(estimate: Estimate, view: AnalyticView, window: WorkloadWindow) -> FloatArray:
    """Shape (M, F): one row for each CPU value of the view's surface, F = len(BRANCH_FEATURES)."""
    cores = np.asarray(view.surface.cpu_cores, dtype=np.float64)
    shared = np.concatenate(
        (
            _shape(window.task_shape_seconds, len(TASK_PROBABILITIES), window.task_seconds),
            _shape(
                window.dispatch_shape_seconds,
                len(DISPATCH_PROBABILITIES),
                window.dispatch_seconds or 0.0,
            ),
            _history(window),
        )
    )
    table = np.empty((len(cores), len(BRANCH_FEATURES)))
    table[:, : len(shared)] = shared
    scalars = _scalars(estimate, view, window)
    knee = _knee(estimate, cores)
    measured_cores = estimate.parameters.cpu_servers
    node_cores = estimate.node_cores or measured_cores
    per_row = {
        "log cores": np.log(cores),
        "log cores over measured cores": np.log(cores / measured_cores),
        "log threads now over knee": np.log(estimate.threads / knee),
        "log node cores over cores": np.log(node_cores / cores),
    }
    for offset, name in enumerate(SCALARS):
        table[:, len(shared) + offset] = per_row[name] if name in per_row else scalars[name]
    return np.clip(table, -WIDEST_LOG, WIDEST_LOG)


def _scalars(estimate: Estimate, view: AnalyticView, window: WorkloadWindow) -> dict[str, float]:
    parameters = estimate.parameters
    own = parameters.cpu_seconds + parameters.dispatch_seconds
    parts = parameters.blocking_seconds + parameters.cpu_seconds
    wall = max(window.task_seconds, 1e-9)
    here = float(view.here[min(estimate.threads, len(view.here)) - 1])
    bound = float(_law(estimate, np.asarray([parameters.cpu_servers]), estimate.threads)[0, -1])
    crowd = 1.0 - estimate.tasks_per_second * wall / estimate.threads
    return {
        "log ratio r": _log(estimate.ratio),
        "log outstanding a thread": _log((window.outstanding or 0.0) / estimate.threads, -2.0, 4.0),
        "CPU share of the task": parameters.cpu_seconds / max(parts, 1e-12),
        "log task wall over its parts": _log(wall / max(parts, 1e-12)),
        "throttled share of periods": window.throttled_ratio or 0.0,
        "run-queue share of the task": (window.task_runqueue_seconds or 0.0) / wall,
        "CPU used share": (window.cpu_used_cores or 0.0) / parameters.cpu_servers,
        "log CPU a task over D+S": _log(estimate.cpu_seconds_a_task / own),
        "log threads now": math.log(estimate.threads),
        "log measured over network": _log(estimate.tasks_per_second / here),
        "log measured over bound": _log(estimate.tasks_per_second / bound),
        "log network over bound at threads now": _log(here / bound),
        "demand saturates": float(estimate.saturated),
        "share of threads at the dispatcher": crowd,
        "log1p hand-over contention": math.log1p(parameters.contention_handover),
        "log1p linear contention": math.log1p(parameters.contention_linear),
        "log1p dispatch squared variation": math.log1p(window.dispatch_squared_variation or 0.0),
        "under a quota": float(window.cpu_quota_cores is not None),
        "log task CPU over 100 ms": _log(parameters.cpu_seconds / PERIOD_SECONDS),
        "log dispatch over 60 us": _log(parameters.dispatch_seconds / HANDOVER_SECONDS),
        "log tasks seen": _log(window.tasks / 1000.0),
    }


def trunk_features(
    estimate: Estimate, view: AnalyticView, odds: FloatArray, threads: NDArray[np.int64]
) -> FloatArray:
    """Shape (M, P, len(TRUNK_FEATURES)) at the P counts of `threads`; `odds` as `log_odds` (M, K)."""
    rates = view.surface.tasks_per_second
    cores = np.asarray(view.surface.cpu_cores, dtype=np.float64)[:, np.newaxis]
    outstanding = estimate.window.outstanding if estimate.window is not None else None
    counts = threads.astype(np.float64)[np.newaxis, :]
    log_k = np.log(counts)
    columns = (
        log_k / math.log(2.0) / 8.0,
        log_k - math.log1p(estimate.ratio),
        log_k - np.log(_knee(estimate, cores)),
        log_k - np.log(cores),
        log_k - _log(outstanding or 1e9),
        log_k - math.log(estimate.threads),
        odds[:, threads - 1],
        np.log(rates[:, threads - 1] / rates.max(axis=1, keepdims=True)),
    )
    table = np.empty((rates.shape[0], len(threads), len(columns)))
    for index, column in enumerate(columns):
        table[:, :, index] = column
    return np.clip(table, -WIDEST_LOG, WIDEST_LOG)


def throughput_bound(estimate: Estimate, view: AnalyticView) -> FloatArray:
    """Bd(k), shape (M, K): no correction passes it.

    The operational law min(k/(Zio+D+S), C/D, 1/S) of science.md 1.4, and C over the CPU that a task
    costs, with a margin for the means being measured. Where the measurement itself lies above the
    model, the bound moves with it; it is never below the analytic curve, so that no correction at
    all gives exactly that curve.
    """
    surface = view.surface
    law = _law(estimate, np.asarray(surface.cpu_cores), surface.tasks_per_second.shape[1])
    law *= max(1.0, view.scale)
    return np.asarray(BOUND_MARGIN * np.maximum(law, surface.tasks_per_second))


def log_odds(rates: FloatArray, bound: FloatArray) -> FloatArray:
    """logit(T/Bd), with T/Bd kept within 1e-6 of 0 and 1."""
    share = np.clip(rates / bound, NARROWEST_ODDS, 1.0 - NARROWEST_ODDS)
    return np.asarray(np.log(share / (1.0 - share)))


def _law(estimate: Estimate, cores: FloatArray, max_threads: int) -> FloatArray:
    parameters = estimate.parameters
    threads = np.arange(1, max_threads + 1, dtype=np.float64)
    most = 1.0 / _slowest(estimate, cores)
    return np.minimum(threads[np.newaxis, :] / parameters.cycle_seconds, most[:, np.newaxis])


def _slowest(estimate: Estimate, cores: FloatArray) -> FloatArray:
    """Seconds a task of the station that limits, at each CPU value."""
    parameters = estimate.parameters
    cpu = max(parameters.cpu_seconds, estimate.cpu_seconds_a_task)
    dispatch = parameters.dispatch_seconds / np.minimum(1.0, cores)
    return np.asarray(np.maximum(cpu / cores, dispatch))


def _knee(estimate: Estimate, cores: FloatArray) -> FloatArray:
    return np.asarray(estimate.parameters.cycle_seconds / _slowest(estimate, cores))


def _shape(quantiles: tuple[float, ...], count: int, mean_seconds: float) -> FloatArray:
    """log Q(p)/mean; zeros (a constant time) where the pods serve no such histogram."""
    if len(quantiles) != count or mean_seconds <= 0:
        return np.zeros(count)
    return np.log(np.maximum(np.asarray(quantiles), 1e-3 * mean_seconds) / mean_seconds)


def _history(window: WorkloadWindow) -> FloatArray:
    """log T_i/T, oldest first; zero (no change) for windows that were not seen."""
    found = np.zeros(HISTORY_INTERVALS)
    known = window.history_per_second[-HISTORY_INTERVALS:]
    if known and window.tasks_per_second > 0:
        rates = np.maximum(np.asarray(known), 1e-3 * window.tasks_per_second)
        found[HISTORY_INTERVALS - len(known) :] = np.log(rates / window.tasks_per_second)
    return np.clip(found, -3.0, 3.0)


def _log(value: float, low: float = -WIDEST_LOG, high: float = WIDEST_LOG) -> float:
    return min(max(math.log(value), low), high) if value > 0 else low
