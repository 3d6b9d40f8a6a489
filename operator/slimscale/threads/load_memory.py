"""What a window adds to the memory of a load, and what the memory says of a load that begins."""

import math
from dataclasses import replace

from slimscale.api.simworkload import ObjectiveType, SimWorkloadSpec
from slimscale.threads.bounds import Standing
from slimscale.threads.change import has_drifted, is_another_load
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.memo import KnownLoad, Memo
from slimscale.threads.recall import Signature, recall
from slimscale.threads.window import WorkloadWindow

__all__ = ["MOST_THREADS", "cores_of", "estimate_of", "known_load", "look_at_load"]

MOST_THREADS = 1024
UNKNOWN_NODE_CORES = 8.0


def cores_of(window: WorkloadWindow, standing: Standing) -> float:
    """CPU that one container may use: its quota or, without one, its node's cores."""
    cores = min(window.cpu_quota_cores or standing.cores, standing.node_cores)
    return cores if math.isfinite(cores) else UNKNOWN_NODE_CORES


def estimate_of(
    memo: Memo,
    window: WorkloadWindow,
    *,
    spec: SimWorkloadSpec,
    standing: Standing,
    contention: bool = True,
) -> Estimate | None:
    """The load by this window and by what is remembered of it."""
    cores = cores_of(window, standing)
    return estimate_parameters(
        window,
        cores=cores,
        node_cores=standing.node_cores if math.isfinite(standing.node_cores) else cores,
        regime=memo.regime,
        min_tasks=spec.tuning.min_tasks,
        contention=contention,
    )


def look_at_load(
    memo: Memo, window: WorkloadWindow, *, spec: SimWorkloadSpec, standing: Standing
) -> tuple[Memo, str]:
    """Keep what this window says of its thread count, also when its change is taken back.

    First: has the load crept away from where it began? Judged by what a task does, not by its
    rate; then a new load begins with this window, and the second value says what drifted.
    """
    drifted = ""
    estimate = estimate_of(memo, window, spec=spec, standing=standing, contention=False)
    if estimate is None or not window.saturated:
        return memo, ""
    if spec.tuning.online:
        memo, drifted = is_another_load(
            memo, window, interval_seconds=float(spec.metrics.interval_seconds)
        )
    if spec.tuning.online and not drifted:
        memo, drifted = has_drifted(
            memo,
            threads=window.threads,
            cpu_seconds=window.task_cpu_seconds or estimate.parameters.cpu_seconds,
            blocked_seconds=estimate.blocked_seconds or 0.0,
            tasks=window.tasks,
            started_at_seconds=window.started_at_seconds,
            ended_at_seconds=window.ended_at_seconds,
        )
    if drifted:
        estimate = estimate_of(memo, window, spec=spec, standing=standing, contention=False)
    if estimate is None or window.threads > MOST_THREADS:
        return memo, drifted
    regime = replace(memo.regime, waits_are_real=estimate.waits_are_real)
    return replace(memo, regime=regime.with_point(estimate.point)), drifted


def known_load(
    memo: Memo, estimate: Estimate, window: WorkloadWindow, *, spec: SimWorkloadSpec
) -> KnownLoad | None:
    """The load that was like the one that has just begun; asked once for each."""
    if not memo.repredict or not spec.tuning.online or not window.saturated:
        return None
    if spec.objective.type is not ObjectiveType.MAX_THROUGHPUT:
        return None
    cpu, cores = window.task_cpu_seconds or 0.0, estimate.parameters.cpu_servers
    return recall(memo, Signature(cpu, estimate.blocked_seconds or 0.0, cores))
