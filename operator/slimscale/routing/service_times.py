"""How long a batch takes on a pod: measured there, else on its pool's other pods, else a prior.

A batch of b rows takes `base + b * row` seconds (science brief 2.4: fit `l = t0 + t1 * b`). A pod
that has not served a width yet is judged by, in this order: the other pods of its pool, its own
other widths scaled by their FLOPs, and a prior.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.policy import PodView, Width

__all__ = ["ServiceTime", "ServiceTimes", "finite_or"]

PRIOR_BASE_SECONDS = 0.002
PRIOR_ROW_SECONDS = 0.004
"""Of the widest width; a small CNN on one CPU core."""
PRIOR_LOAD_SECONDS = 2.0
_MOST_SECONDS = 86_400.0


class ServiceTime(NamedTuple):
    """One width on one pod. `load_seconds` is 0 where an instance is loaded."""

    base_seconds: float
    row_seconds: float
    load_seconds: float
    measured: bool
    """On this very pod: only then may a request be refused because of it."""

    def batch_seconds(self, rows: int) -> float:
        return self.base_seconds + rows * self.row_seconds


def finite_or(value: float | None, fallback: float) -> float:
    """`value` where it is a time that can be, else `fallback` (NaN fails each comparison)."""
    return value if value is not None and 0.0 <= value <= _MOST_SECONDS else fallback


def _measured(width: WidthTelemetry) -> tuple[float, float] | None:
    base = finite_or(width.base_seconds, -1.0)
    row = finite_or(width.row_seconds, -1.0)
    return (base, row) if base >= 0.0 and row >= 0.0 and base + row > 0.0 else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class ServiceTimes:
    """The estimates for pods as they look now. Remembers what the same telemetry gave before."""

    def __init__(self) -> None:
        self._memo: dict[str, tuple[PodTelemetry, Sequence[Width], list[ServiceTime | None]]] = {}

    def of(
        self, pod: PodView, pods: Sequence[PodView], widths: Sequence[Width]
    ) -> list[ServiceTime | None]:
        """One estimate a width, in the order of `widths`; None where the pod lacks the width."""
        telemetry = pod.telemetry
        if telemetry is None:
            return [_guess(width, pod, pods) for width in widths]
        memo = self._memo.get(pod.name)
        if memo is not None and memo[0] is telemetry and memo[1] is widths:
            return memo[2]
        times, complete = _estimate(pod, telemetry, pods, widths)
        if complete:
            self._memo[pod.name] = (telemetry, widths, times)
        return times

    def forget(self, present: Iterable[str]) -> None:
        """Drop what belongs to pods that are gone."""
        kept = set(present)
        for name in [name for name in self._memo if name not in kept]:
            del self._memo[name]


def _estimate(
    pod: PodView, telemetry: PodTelemetry, pods: Sequence[PodView], widths: Sequence[Width]
) -> tuple[list[ServiceTime | None], bool]:
    """The estimates, and whether they rest on this pod's telemetry alone."""
    by_model = {width.model: width for width in telemetry.widths}
    times: list[ServiceTime | None] = []
    complete = True
    for width in widths:
        seen = by_model.get(width.model)
        if seen is None:
            times.append(None)
            continue
        pair = _measured(seen)
        load = finite_or(seen.load_seconds, -1.0)
        if pair is None or (load < 0.0 and seen.instances < 1):
            complete = False
            times.append(_guess(width, pod, pods, seen=seen, widths=widths))
        else:
            times.append(ServiceTime(*pair, _load_left(seen, load), measured=True))
    return times, complete


def _load_left(seen: WidthTelemetry, load_seconds: float) -> float:
    if seen.instances >= 1:
        return 0.0
    return load_seconds / 2.0 if seen.loading else load_seconds


def _guess(
    width: Width,
    pod: PodView,
    pods: Sequence[PodView],
    *,
    seen: WidthTelemetry | None = None,
    widths: Sequence[Width] = (),
) -> ServiceTime:
    own = pod.telemetry.widths if pod.telemetry is not None else ()
    mates = [
        other
        for mate in pods
        if mate.pool == pod.pool and mate.name != pod.name and mate.telemetry is not None
        for other in mate.telemetry.widths
        if other.model == width.model
    ]
    pair = _measured(seen) if seen is not None else None
    measured = pair is not None
    if pair is None:
        pair = _of_mates(mates) or _scaled(width, own, widths)
    if pair is None:
        pair = (PRIOR_BASE_SECONDS, PRIOR_ROW_SECONDS * width.flops_ratio)
    load = 0.0
    if seen is not None:  # a pod that has said nothing yet was ready: it has something loaded
        loads = [mate.load_seconds for mate in mates if mate.load_seconds is not None]
        known = finite_or(seen.load_seconds, -1.0)
        if known < 0.0:
            known = finite_or(_mean(loads), PRIOR_LOAD_SECONDS)
        load = _load_left(seen, known)
    return ServiceTime(*pair, load, measured=measured and load == 0.0)


def _of_mates(mates: Sequence[WidthTelemetry]) -> tuple[float, float] | None:
    pairs = [pair for mate in mates if (pair := _measured(mate)) is not None]
    if not pairs:
        return None
    count = len(pairs)
    return sum(pair[0] for pair in pairs) / count, sum(pair[1] for pair in pairs) / count


def _scaled(
    width: Width, own: Sequence[WidthTelemetry], widths: Sequence[Width]
) -> tuple[float, float] | None:
    """From the pod's own measured width of the most like FLOPs: rows scale, the base does not."""
    flops = {other.model: other.flops_ratio for other in widths}
    known = [
        (abs(flops[seen.model] - width.flops_ratio), flops[seen.model], pair)
        for seen in own
        if seen.model in flops and (pair := _measured(seen)) is not None
    ]
    if not known:
        return None
    _, ratio, (base, row) = min(known)
    return base, row * width.flops_ratio / ratio
