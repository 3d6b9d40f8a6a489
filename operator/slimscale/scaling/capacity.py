"""What each pool has: what a pod of it takes, which pods count, which start for too long."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from slimscale.domain.scaling import PoolObservation, PoolPod, PoolSpec, ScalingSpec
from slimscale.scaling.memo import ScalingMemo
from slimscale.scaling.sizing import BatchServer, pod_capacity

__all__ = ["MEASURED", "PoolCapacity", "backlog_rows", "device_utilisation", "look"]

LARGEST_POOL = 1000
"""Replicas that any bound is cut to, whatever the custom resource says."""
MEASURED = "measured"
SAME_TIMES = 0.05
"""Relative difference up to which a new measurement changes nothing: estimates jitter."""
SUSTAINED = 0.8
"""Of the full batches' rate: what counts where no load at all would meet the SLO."""


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """One pool as decisions see it. `least` and `most` are sane, whatever the spec says."""

    spec: PoolSpec
    observed: PoolObservation
    least: int
    most: int
    bounds_problem: str
    ready: int
    """Ready pods that count: never more than were asked for, so a rollout's surge adds nothing."""
    starting: int
    """On their way and in time."""
    stuck: int
    """Asked for and not ready within the time for it, or not even created."""
    lost: int
    """Pods whose device is gone."""
    service_times: tuple[float, float] | None
    """(base, row) seconds of the target width."""
    source: str
    rows_per_second: float | None
    """A pod, within the SLO. None: service times unknown; 0: the SLO is out of its reach."""
    sustained_rows_per_second: float
    """A pod, whatever the latency; 0: unknown."""
    utilisation: float | None
    shares_devices: bool
    """Several of its ready pods name one device."""
    fresh: bool
    """At least half of the ready pods have said how they are."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def current(self) -> int:
        return self.observed.spec_replicas

    @property
    def on_hand(self) -> int:
        """Ready or on the way: what a pool gives without another pod."""
        return self.ready + self.starting

    @property
    def cost(self) -> float:
        cost = self.spec.cost_per_hour
        return 1.0 if cost is None or not math.isfinite(cost) or cost < 0 else cost


def look(
    pool: PoolSpec,
    observed: PoolObservation,
    *,
    spec: ScalingSpec,
    memo: ScalingMemo,
    rows_per_request: float,
    now_seconds: float,
) -> PoolCapacity:
    """Sum up one pool. Never raises on odd telemetry: what cannot be is unknown."""
    least, most, problem = _bounds(pool)
    alive = [pod for pod in observed.pods if not pod.terminating]
    lost = sum(pod.device_lost for pod in alive)
    late = [pod for pod in observed.starting_pods if _is_late(pod, spec, now_seconds)]
    uncreated = max(0, observed.spec_replicas - len(alive))
    # Pods that a quota keeps from being made have no age: the last change stands for it.
    asked_at = memo.up_at_seconds if memo.up_at_seconds is not None else memo.covered_since_seconds
    overdue = asked_at is not None and now_seconds - asked_at > spec.pending_timeout_seconds
    stuck = len(late) + (uncreated if overdue else 0)
    ready = min(len(observed.ready_pods), max(0, observed.spec_replicas))
    room = max(0, observed.spec_replicas - ready - stuck - lost)
    starting = min(room, len(observed.starting_pods) - len(late) + uncreated)
    times, source = _service_times(observed, spec, memo)
    rate, sustained = _rates(times, pool, spec, rows_per_request)
    return PoolCapacity(
        spec=pool,
        observed=observed,
        least=least,
        most=most,
        bounds_problem=problem,
        ready=ready,
        starting=starting,
        stuck=min(stuck, observed.spec_replicas),
        lost=lost,
        service_times=times,
        source=source,
        rows_per_second=rate,
        sustained_rows_per_second=sustained,
        utilisation=device_utilisation(observed.ready_pods, spec.telemetry_stale_seconds),
        shares_devices=_shares_devices(observed.ready_pods),
        fresh=_fresh(observed.ready_pods, spec),
    )


def backlog_rows(pools: Sequence[PoolObservation], buffered_rows: int, stale_seconds: float) -> int:
    """Rows that wait: in the routers and in the pods' queues. What runs does not wait."""
    queued = sum(
        max(0, pod.telemetry.queued_rows)
        for pool in pools
        for pod in pool.ready_pods
        if pod.telemetry is not None and pod.telemetry_age_seconds <= stale_seconds
    )
    return max(0, buffered_rows) + queued


def device_utilisation(pods: Sequence[PoolPod], stale_seconds: float) -> float | None:
    """Mean over devices, each counted once however many pods share it (pitfall F6); 0 to 1.

    A pod without a device's UUID has one of its own. None where no device says: a GPU that cannot
    tell (MIG) or is lost is unknown, not idle (F2, F4).
    """
    highest: dict[str, float] = {}
    for pod in pods:
        told = pod.telemetry
        if told is None or pod.device_lost or pod.telemetry_age_seconds > stale_seconds:
            continue
        used = told.utilisation
        if used is None or not math.isfinite(used):
            continue
        device = told.device or f"of {pod.name}"
        highest[device] = max(highest.get(device, 0.0), min(max(used, 0.0), 1.0))
    return fmean(highest.values()) if highest else None


def _shares_devices(pods: Sequence[PoolPod]) -> bool:
    named = [pod.telemetry.device for pod in pods if pod.telemetry and pod.telemetry.device]
    return len(set(named)) < len(named)


def _bounds(pool: PoolSpec) -> tuple[int, int, str]:
    """Bounds that can be kept, though admission was passed by (pitfall E11)."""
    least = min(max(pool.min_replicas, 0), LARGEST_POOL)
    most = min(max(pool.max_replicas, 0), LARGEST_POOL)
    problem = ""
    if (least, most) != (pool.min_replicas, pool.max_replicas) or least > most:
        most = max(most, least)
        problem = (
            f"minReplicas {pool.min_replicas} and maxReplicas {pool.max_replicas} cannot both be"
            f" kept: {least} to {most} are used; set 0 <= minReplicas <= maxReplicas"
        )
    return least, most, problem


def _is_late(pod: PoolPod, spec: ScalingSpec, now_seconds: float) -> bool:
    since = max(pod.created_at_seconds, pod.unready_since_seconds or pod.created_at_seconds)
    return now_seconds - since > spec.pending_timeout_seconds


def _fresh(pods: Sequence[PoolPod], spec: ScalingSpec) -> bool:
    told = sum(
        pod.telemetry is not None and pod.telemetry_age_seconds <= spec.telemetry_stale_seconds
        for pod in pods
    )
    return 2 * told >= len(pods)


def _service_times(
    observed: PoolObservation, spec: ScalingSpec, memo: ScalingMemo
) -> tuple[tuple[float, float] | None, str]:
    """Of the target width: measured now, measured once, given, or a wider width's measured now."""
    measured = _measured(observed, spec)
    known = memo.service_times.get(observed.name)
    if spec.target_model in measured:
        times = measured[spec.target_model]
        return (known if known is not None and _alike(known, times) else times), MEASURED
    if known is not None:
        return known, "measured earlier"
    for prior in observed.prior_service_times:
        times = (prior.base_seconds, prior.row_seconds)
        if prior.model == spec.target_model and _possible(times):
            return times, "given"
    if measured:
        model = max(measured, key=lambda name: sum(measured[name]))
        return measured[model], f"of {model}, as {spec.target_model} has not run"
    return None, "unknown"


def _measured(observed: PoolObservation, spec: ScalingSpec) -> dict[str, tuple[float, float]]:
    """Median over fresh ready pods: one odd pod does not size a pool."""
    seen: dict[str, list[tuple[float, float]]] = {}
    for pod in observed.ready_pods:
        if pod.telemetry is None or pod.telemetry_age_seconds > spec.telemetry_stale_seconds:
            continue
        for width in pod.telemetry.widths:
            if width.base_seconds is None or width.row_seconds is None:
                continue
            times = (width.base_seconds, width.row_seconds)
            if _possible(times):
                seen.setdefault(width.model, []).append(times)
    return {
        model: (median(base for base, _ in times), median(row for _, row in times))
        for model, times in seen.items()
    }


def _alike(known: tuple[float, float], now: tuple[float, float]) -> bool:
    """Of single rows and of full batches alike."""
    for rows in (1, 32):
        before, after = known[0] + rows * known[1], now[0] + rows * now[1]
        if abs(after - before) > SAME_TIMES * before:
            return False
    return True


def _possible(times: tuple[float, float]) -> bool:
    return all(math.isfinite(t) and t >= 0 for t in times) and sum(times) > 0


def _rates(
    times: tuple[float, float] | None, pool: PoolSpec, spec: ScalingSpec, rows_per_request: float
) -> tuple[float | None, float]:
    if times is None:
        return None, 0.0
    server = BatchServer(times[0], times[1], max(1, pool.max_batch_rows))
    rate = pod_capacity(
        server,
        slo_seconds=spec.slo_seconds,
        percentile=spec.percentile,
        rows_per_request=rows_per_request,
        instances=pool.instances,
    )
    return rate, SUSTAINED * server.rows_per_second * max(1, pool.instances)
