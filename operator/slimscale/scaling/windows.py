"""How much demand counts now: stable and panic windows, the backlog, and what was needed lately.

After Knative's pod autoscaler (pkg/autoscaler/scaling/autoscaler.go): the mean of the stable window
rules; when the panic window asks for more than a threshold times what is ready, its own mean rules
until a whole stable window has passed without such a call, and nothing shrinks meanwhile. Beyond it:
rows that wait add the rate at which they are to be worked off; a panic has to be more than chance;
and pods go by the highest need of the stabilisation window, as with Kubernetes' own autoscaler, or
by what recurring bursts need (`bursts.py`).
"""

import math
from dataclasses import dataclass, replace

from slimscale.domain.scaling import DemandObservation, ScalingSpec
from slimscale.scaling.bursts import recurring_floor
from slimscale.scaling.memo import MOST_SLICES, ScalingMemo

__all__ = ["Need", "assess", "finite_rate"]

BURST_SLICE_SECONDS = 10.0
UNKNOWN_START_SECONDS = 30.0
SLICES = 30
"""Of the stabilisation window: what the memo keeps."""
CHANCE = 3.0
"""Standard deviations of a Poisson count by which a panic must exceed the stable window."""
MOST_ROWS_PER_SECOND = 1e12
"""More is no rate either; what is reckoned with it has to stay finite."""


@dataclass(frozen=True, slots=True)
class Need:
    """Rows a second, headroom included."""

    now: float | None
    """What replicas have to take; None: unknown."""
    lately: float | None
    """Highest of the stabilisation window: down to here pods may go; None: not long enough known."""
    panicking: bool
    complete: bool
    reason: str


def finite_rate(value: float | None) -> float | None:
    """A rate that can be one; else None. What is not a number is unknown (pitfalls E1, E2)."""
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return min(value, MOST_ROWS_PER_SECOND)


def assess(
    demand: DemandObservation | None,
    *,
    backlog_rows: int,
    ready_rows_per_second: float,
    spec: ScalingSpec,
    memo: ScalingMemo,
    now_seconds: float,
) -> tuple[Need, ScalingMemo]:
    """The need, and the memo with it written in. `backlog_rows` waits in pods and routers."""
    memo = _without_ended_panic(memo, spec, now_seconds)
    grown = 1.0 + max(0.0, spec.headroom)
    draining = backlog_rows / max(spec.drain_seconds, 1e-3)
    complete = demand is not None and demand.complete
    stable = finite_rate(demand.stable_rows_per_second) if demand is not None else None
    panic = finite_rate(demand.panic_rows_per_second) if demand is not None else None
    known = [rate for rate in (stable, panic) if rate is not None]
    if demand is None or not known:
        # Rows that wait are demand too: enough to grow by, never to shrink by.
        waiting = draining if backlog_rows > 0 else None
        return Need(waiting, None, memo.panic_at_seconds is not None, False, _missing(demand)), memo

    base = (stable if stable is not None else known[0]) * grown
    sudden = panic * grown if panic is not None else 0.0
    together = max(1.0, demand.rows_per_request)
    # A Poisson count's deviation: what a window shows may be chance.
    chance = CHANCE * math.sqrt(sudden * together / max(spec.panic_window_seconds, 1e-3))
    ready = ready_rows_per_second
    if sudden - chance > base and sudden >= spec.panic_threshold * ready:
        need = max(memo.panic_need, sudden)
        memo = replace(memo, panic_at_seconds=now_seconds, panic_need=need)
    panicking = memo.panic_at_seconds is not None
    now = max(base, memo.panic_need if panicking else 0.0)
    # The headroom works off what waits, as far as it reaches.
    now = max(now, now / grown + draining)
    # A sudden rise that the present pods can take is no panic, and no time to shrink either.
    # It counts as a panic would count it: what is saved between bursts is what the next one needs.
    rise = sudden if sudden - chance > base else base
    memo = _remember(memo, max(now, rise), spec, now_seconds, complete=complete)
    memo = _note_burst(memo, rise, spec, now_seconds)
    lately = _lately(memo, spec, now_seconds) if complete else None
    words = "the panic window rules" if panicking else "the stable window rules"
    if backlog_rows:
        words += f", {backlog_rows} rows wait"
    return Need(now, lately, panicking, complete, words if complete else _missing(demand)), memo


def _missing(demand: DemandObservation | None) -> str:
    if demand is None:
        return "no router has been asked with success"
    if demand.routers_answering < max(1, demand.routers):
        return f"{demand.routers_answering} of {demand.routers} routers answer"
    if demand.complete:
        return ""
    return f"the demand is {demand.freshness.value.lower()} or not a number"


def _without_ended_panic(memo: ScalingMemo, spec: ScalingSpec, now_seconds: float) -> ScalingMemo:
    began = memo.panic_at_seconds
    if began is not None and now_seconds - began > spec.stable_window_seconds:
        return replace(memo, panic_at_seconds=None, panic_need=0.0)
    return memo


def _remember(
    memo: ScalingMemo, need: float, spec: ScalingSpec, now_seconds: float, *, complete: bool
) -> ScalingMemo:
    width = max(spec.down_stabilisation_seconds, 1.0) / SLICES
    start = math.floor(now_seconds / width) * width
    oldest = now_seconds - spec.down_stabilisation_seconds - width
    kept = [(at, rows) for at, rows in memo.needs if oldest <= at <= start]
    if kept and kept[-1][0] == start:
        kept[-1] = (start, max(kept[-1][1], need))
    else:
        kept.append((start, need))
    covered, last = memo.covered_since_seconds, memo.complete_at_seconds
    if complete:
        gap = math.inf if last is None else now_seconds - last
        if covered is None or not 0 <= gap <= spec.stable_window_seconds:
            covered = now_seconds
        last = now_seconds
    return replace(memo, needs=tuple(kept), covered_since_seconds=covered, complete_at_seconds=last)


def _lately(memo: ScalingMemo, spec: ScalingSpec, now_seconds: float) -> float | None:
    since = memo.covered_since_seconds
    if since is None or now_seconds - since < spec.down_stabilisation_seconds:
        return None
    return max(memo.floor, *(rows for _, rows in memo.needs))


def _note_burst(
    memo: ScalingMemo, rise: float, spec: ScalingSpec, now_seconds: float
) -> ScalingMemo:
    """Write the need into its slice; with each new slice work out anew what bursts keep."""
    most = min(round(spec.burst_memory_seconds / BURST_SLICE_SECONDS), MOST_SLICES)
    if most < 1:
        return replace(memo, history=(), floor=0.0)
    number = math.floor(now_seconds / BURST_SLICE_SECONDS)
    passed = number - memo.history_slice
    rise = float(f"{rise:.3g}")
    if memo.history and passed == 0:
        return replace(memo, history=(*memo.history[:-1], max(memo.history[-1], rise)))
    kept = memo.history if 0 < passed <= most else ()
    gap = (0.0,) * (passed - 1 if kept else 0)
    history = (*kept, *gap, rise)[-most:]
    starts = memo.start_seconds if memo.start_seconds is not None else UNKNOWN_START_SECONDS
    floor = recurring_floor(
        history,
        lead=math.ceil((starts + spec.panic_window_seconds) / BURST_SLICE_SECONDS),
        hold=math.floor(spec.down_stabilisation_seconds / BURST_SLICE_SECONDS),
        apart=math.ceil(spec.stable_window_seconds / BURST_SLICE_SECONDS),
        allowed=1.0 - spec.percentile,
    )
    return replace(memo, history=history, history_slice=number, floor=floor)
