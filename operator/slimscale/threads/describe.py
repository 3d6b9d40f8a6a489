"""A recommendation in the words and figures of a reader of `kubectl describe`."""

import numpy as np

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import DecisionStep, ModelView, PodTarget
from slimscale.threads.bounds import CpuBounds
from slimscale.threads.estimate import Estimate
from slimscale.threads.objective import Choice
from slimscale.threads.predictor import Surface
from slimscale.threads.window import WorkloadWindow

__all__ = ["choose_step", "estimate_step", "model_view", "recommendation_message", "target_words"]

CURVE_POINTS = 32


def target_words(target: PodTarget) -> str:
    limit = target.cpu_limit_millicores
    cpu = f" on {limit}m CPU" if limit is not None else ""
    return f"{target.threads} thread{'s' if target.threads != 1 else ''}{cpu}"


def estimate_step(estimate: Estimate, window: WorkloadWindow) -> DecisionStep:
    p = estimate.parameters
    words = (
        f"a task computes {p.cpu_seconds * 1e3:.3g} ms, waits {p.blocking_seconds * 1e3:.3g} ms,"
        f" its dispatch takes {p.dispatch_seconds * 1e6:.3g} µs (r = {estimate.ratio:.3g}) on"
        f" {p.cpu_servers:.3g} CPUs"
    )
    if window.throttled_ratio is not None:
        words += f", {window.throttled_ratio:.0%} of periods throttled"
    if estimate.notes:
        words += "; " + "; ".join(estimate.notes)
    return DecisionStep("Estimate", f"Confidence{estimate.confidence.value}", words[:512])


def choose_step(
    choice: Choice, surface: Surface, spec: SimWorkloadSpec, bounds: CpuBounds
) -> DecisionStep:
    kind = spec.objective.type.value
    words = (
        f"{kind}: {choice.threads} threads on {choice.cpu_cores * 1000:.0f}m are predicted to give"
        f" {choice.tasks_per_second:.4g} tasks/s; the best of"
        f" {len(surface.cpu_cores)} CPU values x"
        f" {surface.tasks_per_second.shape[1]} thread counts gives"
        f" {choice.best_tasks_per_second:.4g}"
    )
    if not choice.reached:
        words += "; the rate asked for is out of reach"
    words += (
        f" (CPU up to {bounds.most}m: {bounds.reason})"
        if bounds.adjustable
        else (f" (CPU unchanged: {bounds.reason})")
    )
    outcome = "Chosen" if choice.reached else "OutOfReach"
    return DecisionStep("Choose", outcome, words[:512], constrained=not choice.reached)


def recommendation_message(target: PodTarget, rate: float, window: WorkloadWindow) -> str:
    return (
        f"{target_words(target)}: predicted {rate:.4g} tasks/s a pod, measured"
        f" {window.tasks_per_second:.4g} with {window.threads}"
    )


def model_view(
    surface: Surface,
    estimate: Estimate,
    window: WorkloadWindow,
    target: PodTarget,
    *,
    predictor: str,
    rate: float,
    cores: float,
) -> ModelView:
    p = estimate.parameters
    limit = target.cpu_limit_millicores
    row = int(
        np.argmin(
            np.abs(np.asarray(surface.cpu_cores) - (limit / 1000.0 if limit is not None else cores))
        )
    )
    rates = surface.tasks_per_second[row]
    grid = np.round(np.geomspace(1, len(rates), min(CURVE_POINTS, len(rates)))).astype(int)
    shown = [k for k in (target.threads, window.threads) if k <= len(rates)]
    counts = np.unique(np.concatenate([grid, np.asarray(shown, dtype=int)]))
    return ModelView(
        predictor=predictor,
        task_seconds=window.task_seconds,
        task_cpu_seconds=window.task_cpu_seconds,
        task_blocked_seconds=p.blocking_seconds,
        dispatch_seconds=p.dispatch_seconds,
        contention=p.contention_handover + p.contention_linear,
        cpu_limit_cores=cores,
        throttled_ratio=window.throttled_ratio,
        ratio=estimate.ratio,
        predicted_tasks_per_second=rate,
        measured_tasks_per_second=window.tasks_per_second,
        curve=tuple((int(k), float(rates[k - 1])) for k in counts),
    )
