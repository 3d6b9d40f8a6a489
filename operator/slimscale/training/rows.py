"""From what was simulated to rows for training: observe as the operator does, then its features.

A row is one workload at one CPU value: what the operator sees of it at its observed thread count,
the analytic curve and its bound, and the measured throughput at some thread counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.api.simworkload import Metrics, Tuning
from slimscale.simulate.observe import observation_of
from slimscale.simulate.plant import Plant
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.features import Setting, branch_features, trunk_features
from slimscale.threads.memo import Regime
from slimscale.threads.operator_network import not_trained_for
from slimscale.threads.predictor import AnalyticPredictor
from slimscale.threads.window import WorkloadWindow, observe_window
from slimscale.training.raw import GRID, RawCase, cpu_values, unpack_samples
from slimscale.training.workloads import MOST_THREADS, Case

__all__ = ["Rows", "look", "observe_case", "rows_of"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rows:
    """R rows of one case. NaN: not labelled."""

    branch: FloatArray
    """(R, F)."""
    trunk: FloatArray
    """(R, G, T) at GRID."""
    analytic: FloatArray
    """(R, MOST_THREADS) tasks a second."""
    bound: FloatArray
    """(R, MOST_THREADS)."""
    physics: FloatArray
    """(R, 4): Zio, D, S in seconds and C, as measured, for the balance equations."""
    labels: FloatArray
    """(R, G) measured tasks a second."""
    again: FloatArray
    """(R, G) measured independently of them; for the test splits."""
    facts: FloatArray
    """(R, 4): observed threads, cores of the row, whether it was observed at these cores, and the
    count of looks at the load."""


def observe_case(case: Case, raw: RawCase) -> tuple[WorkloadWindow, Estimate] | None:
    """What the operator makes of the case's pod; None where it could not decide.

    With an earlier look it knows that look's point, as `recommend` would remember it.
    """
    regime = Regime()
    if case.earlier_threads is not None:
        span = float(raw.earlier[1, 0] - raw.earlier[0, 0])
        before = look(
            replace(case, threads=case.earlier_threads), raw.earlier, (span, span, 0.0), regime
        )
        if before is not None and before[0].saturated:
            estimate = before[1]
            contention = estimate.parameters.contention_linear if estimate.crowd_seen else None
            regime = replace(regime.with_point(estimate.point), contention_linear=contention)
    return look(case, raw.samples, raw.timing, regime)


def look(
    case: Case, packed: FloatArray, timing: Sequence[float] | FloatArray, regime: Regime
) -> tuple[WorkloadWindow, Estimate] | None:
    """The window and estimate of one look at the case's own thread count, with that memory."""
    interval, window_seconds, steady_from = (float(t) for t in timing)
    plant = Plant(case.workload, case.host, threads=case.threads, seed=0)  # for its outside only
    samples = unpack_samples(packed, plant.pod_uid)
    now_seconds = samples[-1].sampled_at_seconds
    # Their smallest values are whole seconds, for people; simulated windows may be shorter.
    tuning: dict[str, Any] = {"window_seconds": window_seconds * (1.0 - 1e-9), "min_tasks": 10}
    metrics: dict[str, Any] = {"interval_seconds": interval, "max_age_seconds": 1e9}
    result = observe_window(
        observation_of(plant, samples, now_seconds=now_seconds),
        tuning=Tuning.model_construct(None, **tuning),
        metrics=Metrics.model_construct(None, **metrics),
        now_seconds=now_seconds,
        not_before_seconds=steady_from,
    )
    if result.window is None:
        return None
    node_cores = float(case.host.cores)
    cores = min(result.window.cpu_quota_cores or node_cores, node_cores)
    estimate = estimate_parameters(
        result.window, cores=cores, node_cores=node_cores, regime=regime, min_tasks=30
    )
    return None if estimate is None else (result.window, estimate)


def rows_of(case: Case, raw: RawCase) -> Rows | None:
    """None where the operator would not have decided, or would have used another model."""
    observed = observe_case(case, raw)
    if observed is None:
        return None
    window, estimate = observed
    if not_trained_for(estimate):
        return None
    node_cores = float(case.host.cores)
    cores = [min(quota or node_cores, node_cores) for quota in cpu_values(case)]
    if len(cores) > 1 and math.isclose(cores[0], cores[1]):
        cores.pop()
    view = AnalyticPredictor().view(estimate, cpu_cores=tuple(cores), max_threads=MOST_THREADS)
    setting = Setting.of(estimate, window, view)
    dispatch = estimate.parameters.dispatch_seconds
    looks = 1.0 if case.earlier_threads is None else 2.0
    return Rows(
        branch=branch_features(setting),
        trunk=trunk_features(setting, GRID),
        analytic=view.surface.tasks_per_second,
        bound=setting.bound,
        physics=np.asarray(
            [
                (
                    setting.blocking_seconds,
                    estimate.parameters.cpu_seconds,
                    dispatch / min(1.0, c),
                    c,
                )
                for c in cores
            ]
        ),
        labels=raw.labels[: len(cores)],
        again=raw.again[: len(cores)],
        facts=np.asarray([(case.threads, c, float(i == 0), looks) for i, c in enumerate(cores)]),
    )
