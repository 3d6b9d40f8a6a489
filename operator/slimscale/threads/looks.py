"""When to look next: quickly while something is being found out, at leisure while nothing is.

A change of load or of ours is judged by the windows that follow it. Until it is judged each second
counts, and samples of a second or two say enough; afterwards nothing is gained by haste. Quick looks
end with what they wait for, and at the latest `MOST_QUICK_SECONDS` after it began.
"""

from dataclasses import dataclass

from slimscale.api.simworkload import MetricsSource, SimWorkloadSpec
from slimscale.threads.guards import dwell_seconds
from slimscale.threads.memo import Memo

__all__ = ["MOST_QUICK_SECONDS", "Look", "next_look", "quickest_seconds"]

MOST_QUICK_SECONDS = 40.0
"""After the change of load or of ours that quick looks wait for."""


@dataclass(frozen=True, slots=True)
class Look:
    seconds: float
    reason: str


def next_look(memo: Memo, *, spec: SimWorkloadSpec, now_seconds: float, idle: bool = False) -> Look:
    """After a decision that left `memo`. Never sooner than `metrics.quickIntervalSeconds`.

    `idle`: no work waits, so that the throughput says nothing about a change of ours.
    """
    calm, quick = float(spec.metrics.interval_seconds), quickest_seconds(spec)
    if quick >= calm:
        return Look(calm, "at the pace of the metrics")
    why, since = _waits_for(memo, idle=idle)
    if why and now_seconds - since <= MOST_QUICK_SECONDS:
        return Look(quick, why)
    dwell = dwell_seconds(spec, memo, now_seconds)
    if 0.0 < dwell < calm:
        return Look(max(quick, dwell), "the next change may come then")
    return Look(calm, "nothing is being judged")


def quickest_seconds(spec: SimWorkloadSpec) -> float:
    """Least time between two looks: quick ones are of use only where the pods themselves are asked."""
    calm, quick = spec.metrics.interval_seconds, spec.metrics.quick_interval_seconds
    asked = spec.metrics.source is MetricsSource.PODS
    return float(min(quick, calm) if quick and asked else calm)


def _waits_for(memo: Memo, *, idle: bool) -> tuple[str, float]:
    """What the next samples will tell and since when it is waited for; empty: nothing."""
    regime = memo.regime
    if memo.deviating_since_seconds is not None:
        return "the load may be changing", memo.deviating_since_seconds
    if memo.repredict:
        return "the load has changed", regime.started_at_seconds
    if memo.pending is not None and not idle:
        return "the last change is being judged", memo.pending.since_seconds
    return "", 0.0
