"""When pools may be empty: after a time without arrivals that began with a ready pod."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimscale.domain.scaling import DemandObservation, PoolPod, ScalingSpec
from slimscale.scaling.capacity import PoolCapacity
from slimscale.scaling.windows import finite_rate

__all__ = ["Idleness", "idleness"]


@dataclass(frozen=True, slots=True)
class Idleness:
    to_zero: bool
    """Pools go to their least, or stay there."""
    reason: str


def idleness(
    pools: Sequence[PoolCapacity],
    demand: DemandObservation | None,
    *,
    waiting_rows: int,
    spec: ScalingSpec,
    now_seconds: float,
) -> Idleness:
    """The idle clock starts when a pod has become ready, not when it was asked for (pitfall E9)."""
    limit = spec.idle_to_zero_seconds
    if limit is None or waiting_rows > 0:
        return Idleness(False, "")
    if sum(pool.current for pool in pools) == 0:
        return Idleness(not _wakes(demand, spec), "nothing waits")
    if demand is None or not demand.complete or demand.idle_seconds is None:
        return Idleness(False, "idleness is not known")
    if not demand.idle_seconds >= limit:
        return Idleness(False, "")
    ready = [pod for pool in pools for pod in pool.observed.ready_pods]
    why_not = [_why_not(pod, spec, limit, now_seconds) for pod in ready]
    why_not += ["pods are starting" for pool in pools if pool.starting > 0]
    reason = next(filter(None, why_not), "")
    return Idleness(not reason, reason or f"no arrivals for {demand.idle_seconds:.0f} s")


def _wakes(demand: DemandObservation | None, spec: ScalingSpec) -> bool:
    """An arrival just now, as far as anything is known: a router that is silent wakes nothing.

    The stable window may still hold arrivals from before the pools were emptied.
    """
    if demand is None or not (finite_rate(demand.panic_rows_per_second) or 0.0) > 0:
        return False
    return demand.idle_seconds is None or demand.idle_seconds < spec.panic_window_seconds


def _why_not(pod: PoolPod, spec: ScalingSpec, limit: float, now_seconds: float) -> str:
    if pod.telemetry is None or pod.telemetry_age_seconds > spec.telemetry_stale_seconds:
        return f"{pod.name} does not say whether it is idle"
    if pod.telemetry.queued_rows or pod.telemetry.running_rows:
        return f"{pod.name} is at work"
    since = pod.ready_since_seconds
    if since is None or now_seconds - since < limit:
        return f"{pod.name} has not been ready for {limit:g} s"
    return ""
