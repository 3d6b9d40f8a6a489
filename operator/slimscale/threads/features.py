"""What the operator network sees: only what the operator measures at run time (ADR 0009).

Branch: the shape of the task time and of the dispatch time as quantile functions, the throughput
of the last windows, and scalars. Trunk: where a thread count lies against what bounds it. All
features are logarithms or shares, so they keep their meaning from microseconds to seconds; the
only absolute time is the task's CPU time against the quota's period of 100 ms.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.curve_table import throughput_table
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
    "Setting",
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
    "log1p threads at the dispatcher",
    "log1p hand-over contention",
    "log1p linear contention",
    "log1p dispatch squared variation",
    "log node cores over cores",
    "under a quota",
    "log task CPU over 100 ms",
    "log dispatch over 60 us",
    "log tasks seen",
    "log1p wait for the dispatcher over dispatch",
    "share of that wait that burns CPU",
    "log measured over plain network",
    "log plain network's blocking over task",
    "another point is remembered",
    "log its threads over threads now",
    "log its throughput over measured",
    "log its dispatch over dispatch now",
    "log1p its threads at the dispatcher",
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
    "log odds of plain over bound",
    "log plain over its maximum",
)
BOUND_MARGIN = 1.05
"""How far above the bound of the *estimated* means the throughput may lie: they are measured."""
PERIOD_SECONDS = 0.1
HANDOVER_SECONDS = 60e-6
WIDEST_LOG = 8.0
MOST_HANDOVER, MOST_LINEAR, MOST_QUADRATIC = 2.0, 0.1, 0.01
"""Of the contention in the training data: a slower dispatcher than these make it is no law's."""
LEAST_WAIT = 0.02
"""Of a dispatch: what a wait that is no more than the noise of its parts is taken for."""
LEAST_BLOCKING = 0.02
NARROWEST_ODDS = 1e-6
"""T_analytic/Bd is kept this far from 0 and 1."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the features are made of. `view` and `plain` share their CPU values and counts."""

    estimate: Estimate
    window: WorkloadWindow
    view: AnalyticView
    blocking_seconds: float
    """What a task waits as it was measured; the analytic model takes some of it for contention."""
    plain: FloatArray
    """(M, K) the closed network of the measured means alone: no contention, no calibration."""
    plain_here: float
    """Of that network at the measured count and CPU, tasks a second."""
    bound: FloatArray
    """(M, K) Bd."""
    odds: FloatArray
    """(M, K) logit(T_analytic/Bd)."""

    @staticmethod
    def of(estimate: Estimate, window: WorkloadWindow, view: AnalyticView) -> "Setting":
        blocking = _measured_blocking(estimate, window)
        bound = throughput_bound(estimate, view)
        parameters = replace(
            estimate.parameters,
            blocking_seconds=blocking,
            contention_linear=0.0,
            contention_quadratic=0.0,
            contention_handover=0.0,
        )
        rates = view.surface.tasks_per_second
        rows = [
            (max(cores, 0.001), parameters.dispatch_seconds / min(1.0, max(cores, 0.001)))
            for cores in (*view.surface.cpu_cores, parameters.cpu_servers)
        ]
        plain = throughput_table(parameters, rows, max(rates.shape[1], estimate.threads))
        return Setting(
            estimate=estimate,
            window=window,
            view=view,
            blocking_seconds=blocking,
            plain=plain[:-1, : rates.shape[1]],
            plain_here=float(plain[-1, estimate.threads - 1]),
            bound=bound,
            odds=log_odds(rates, bound),
        )

    @property
    def cores(self) -> FloatArray:
        return np.asarray(self.view.surface.cpu_cores, dtype=np.float64)

    @property
    def cycle_seconds(self) -> float:
        parameters = self.estimate.parameters
        return self.blocking_seconds + parameters.cpu_seconds + parameters.dispatch_seconds

    def knee(self, cores: FloatArray) -> FloatArray:
        return np.asarray(self.cycle_seconds / _slowest(self.estimate, cores))


def branch_features(setting: Setting) -> FloatArray:
    """Shape (M, F): one row for each CPU value of the view's surface, F = len(BRANCH_FEATURES)."""
    estimate, window, cores = setting.estimate, setting.window, setting.cores
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
    scalars = _scalars(setting)
    knee = setting.knee(cores)
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


def _scalars(setting: Setting) -> dict[str, float]:
    estimate, window, view = setting.estimate, setting.window, setting.view
    parameters = estimate.parameters
    own = parameters.cpu_seconds + parameters.dispatch_seconds
    parts = setting.blocking_seconds + parameters.cpu_seconds
    wall = max(window.task_seconds, 1e-9)
    here = float(view.here[min(estimate.threads, len(view.here)) - 1])
    bound = float(_law(estimate, np.asarray([parameters.cpu_servers]), estimate.threads)[0, -1])
    busy = _busy_threads(estimate, window)
    crowd = _crowd(estimate, window)
    # Little: what is left of a thread's turn after task and dispatch, it waited for the dispatcher.
    dispatch = parameters.dispatch_seconds
    wait = max(busy / max(estimate.tasks_per_second, 1e-9) - wall - dispatch, 0.0)
    burnt = (window.cpu_seconds_a_task or own) - own
    return {
        "log ratio r": _log(parts / dispatch),
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
        "share of threads at the dispatcher": crowd / busy,
        "log1p threads at the dispatcher": math.log1p(max(crowd, 0.0)),
        "log1p hand-over contention": math.log1p(parameters.contention_handover),
        "log1p linear contention": math.log1p(parameters.contention_linear),
        "log1p dispatch squared variation": math.log1p(window.dispatch_squared_variation or 0.0),
        "under a quota": float(window.cpu_quota_cores is not None),
        "log task CPU over 100 ms": _log(parameters.cpu_seconds / PERIOD_SECONDS),
        "log dispatch over 60 us": _log(parameters.dispatch_seconds / HANDOVER_SECONDS),
        "log tasks seen": _log(window.tasks / 1000.0),
        "log1p wait for the dispatcher over dispatch": math.log1p(wait / dispatch),
        "share of that wait that burns CPU": min(
            max(burnt / (wait + LEAST_WAIT * dispatch), -1.0), 2.0
        ),
        "log measured over plain network": _log(estimate.tasks_per_second / setting.plain_here),
        "log plain network's blocking over task": _log(
            setting.blocking_seconds / max(parts, 1e-12)
        ),
        **_remembered(estimate),
    }


def _remembered(estimate: Estimate) -> dict[str, float]:
    """The point that tells most about another thread count: the one farthest from the present."""
    others = [p for p in estimate.points if p.threads != estimate.threads]
    if not others:
        return dict.fromkeys(SCALARS[-5:], 0.0)
    here = math.log(estimate.threads)
    point = max(others, key=lambda p: abs(math.log(p.threads) - here))
    held = estimate.held_seconds or estimate.parameters.dispatch_seconds
    figures = (
        1.0,
        math.log(point.threads) - here,
        _log(point.tasks_per_second / max(estimate.tasks_per_second, 1e-9)),
        _log((point.dispatch_seconds or held) / held),
        math.log1p(max(point.crowd or 0.0, 0.0)),
    )
    return dict(zip(SCALARS[-5:], figures, strict=True))


def trunk_features(setting: Setting, threads: NDArray[np.int64]) -> FloatArray:
    """Shape (M, P, len(TRUNK_FEATURES)) at the P counts of `threads`."""
    estimate = setting.estimate
    rates, plain = setting.view.surface.tasks_per_second, setting.plain
    cores = setting.cores[:, np.newaxis]
    log_k = np.log(threads.astype(np.float64))[np.newaxis, :]
    columns = (
        log_k / math.log(2.0) / 8.0,
        log_k - math.log1p(setting.cycle_seconds / estimate.parameters.dispatch_seconds - 1.0),
        log_k - np.log(setting.knee(cores)),
        log_k - np.log(cores),
        log_k - _log(setting.window.outstanding or 1e9, high=20.0),
        log_k - math.log(estimate.threads),
        setting.odds[:, threads - 1],
        np.log(rates[:, threads - 1] / rates.max(axis=1, keepdims=True)),
        log_odds(plain[:, threads - 1], setting.bound[:, threads - 1]),
        np.log(plain[:, threads - 1] / plain.max(axis=1, keepdims=True)),
    )
    table = np.empty((rates.shape[0], len(threads), len(columns)))
    for index, column in enumerate(columns):
        table[:, :, index] = column
    return np.clip(table, -WIDEST_LOG, WIDEST_LOG)


def throughput_bound(estimate: Estimate, view: AnalyticView) -> FloatArray:
    """Bd(k), shape (M, K): no correction passes it.

    The operational law min(k/(Zio+D+S), C/D, 1/S) of science.md 1.4 with the least S that the
    measured one can stand for, and a margin for the means being measured. Where the measurement itself lies above the
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
    """The dispatch was measured in company: alone it may be as much shorter as any crowd slows it."""
    parameters = estimate.parameters
    crowd = 0.0 if estimate.window is None else max(_crowd(estimate, estimate.window), 0.0)
    slowed = 1.0 + min(crowd, 1.0) * MOST_HANDOVER
    slowed += MOST_LINEAR * crowd + MOST_QUADRATIC * crowd * crowd
    dispatch = parameters.dispatch_seconds / slowed
    cycle = parameters.blocking_seconds + parameters.cpu_seconds + dispatch
    most = 1.0 / np.maximum(parameters.cpu_seconds / cores, dispatch / np.minimum(1.0, cores))
    threads = np.arange(1, max_threads + 1, dtype=np.float64)
    return np.minimum(threads[np.newaxis, :] / cycle, most[:, np.newaxis])


def _busy_threads(estimate: Estimate, window: WorkloadWindow) -> float:
    """Threads that have a task: no more than there are tasks."""
    return min(float(estimate.threads), max(window.outstanding or math.inf, 1.0))


def _crowd(estimate: Estimate, window: WorkloadWindow) -> float:
    """Threads at the dispatcher, by Little's law: those with a task less those inside of one."""
    return _busy_threads(estimate, window) - estimate.tasks_per_second * window.task_seconds


def _slowest(estimate: Estimate, cores: FloatArray) -> FloatArray:
    """Seconds a task of the station that limits, at each CPU value.

    Not the CPU that the container was charged for: a part of that may be spent on waiting.
    """
    parameters = estimate.parameters
    dispatch = parameters.dispatch_seconds / np.minimum(1.0, cores)
    return np.asarray(np.maximum(parameters.cpu_seconds / cores, dispatch))


def _measured_blocking(estimate: Estimate, window: WorkloadWindow) -> float:
    """The estimate's, unless it took all waiting for contention: then wall less CPU and queue."""
    if estimate.parameters.blocking_seconds > 0:
        return estimate.parameters.blocking_seconds
    queued = window.task_runqueue_seconds or 0.0
    waited = window.task_seconds - estimate.parameters.cpu_seconds - queued
    return waited if waited > LEAST_BLOCKING * window.task_seconds else 0.0


def _shape(quantiles: tuple[float, ...], count: int, mean_seconds: float) -> FloatArray:
    """log Q(p)/mean; zeros (a constant time) where the pods serve no such histogram."""
    if len(quantiles) != count or mean_seconds <= 0:
        return np.zeros(count)
    shares = np.maximum(np.asarray(quantiles), 1e-3 * mean_seconds) / mean_seconds
    return np.asarray(np.log(shares), dtype=np.float64)


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
