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


def finite_or(value: float | None, fallback: float) -> float:
    """`value` where it is a time that can be, else `fallback` (NaN fails each comparison)."""
    return value if value is not None and 0.0 <= value <= _MOST_SECONDS else fallback


def _measured(width: WidthTelemetry) -> tuple[float, float] | None:
    base = finite_or(width.base_seconds, -1.0)
    row = finite_or(width.row_seconds, -1.0)
    return (base, row) if base >= 0.0 and row >= 0.0 and base + row > 0.0 else None


class _PoolMeans:
    """Means over the pods of a pool by width's model; worked out when first asked for."""

    def __init__(self, pods: Sequence[PodView]) -> None:
        self._pods = pods
        self._means: dict[tuple[str, str], tuple[tuple[float, float] | None, float | None]] | None
        self._means = None

    def of(self, pool: str, model: str) -> tuple[tuple[float, float] | None, float | None]:
        """(base, row) of the measured ones, and the load time; None: no pod of the pool knows."""
        if self._means is None:
            seen: dict[tuple[str, str], list[WidthTelemetry]] = {}
            for pod in self._pods:
                for width in pod.telemetry.widths if pod.telemetry is not None else ():
                    seen.setdefault((pod.pool, width.model), []).append(width)
            self._means = {key: _means(widths) for key, widths in seen.items()}
        return self._means.get((pool, model), (None, None))


def _means(
    widths: Sequence[WidthTelemetry],
) -> tuple[tuple[float, float] | None, float | None]:
    pairs = [pair for width in widths if (pair := _measured(width)) is not None]
    loads = [load for width in widths if (load := finite_or(width.load_seconds, -1.0)) >= 0.0]
    service = None
    if pairs:
        service = (sum(p[0] for p in pairs) / len(pairs), sum(p[1] for p in pairs) / len(pairs))
    return service, sum(loads) / len(loads) if loads else None


class ServiceTimes:
    """The estimates for pods as they look now. Remembers what the same telemetry gave before."""

    def __init__(self) -> None:
        self._memo: dict[str, tuple[PodTelemetry, Sequence[Width], list[ServiceTime | None]]] = {}

    def of_all(
        self, pods: Sequence[PodView], widths: Sequence[Width]
    ) -> list[list[ServiceTime | None]]:
        """For each pod one estimate a width, in the order given; None where a pod lacks a width."""
        means = _PoolMeans(pods)
        found = []
        for pod in pods:
            telemetry = pod.telemetry
            memo = self._memo.get(pod.name)
            if memo is not None and memo[0] is telemetry and memo[1] is widths:
                found.append(memo[2])
                continue
            times, complete = _estimate(pod, telemetry, widths, means)
            if complete and telemetry is not None:
                self._memo[pod.name] = (telemetry, widths, times)
            found.append(times)
        return found

    def forget(self, present: Iterable[str]) -> None:
        """Drop what belongs to pods that are gone."""
        kept = set(present)
        for name in [name for name in self._memo if name not in kept]:
            del self._memo[name]


def _estimate(
    pod: PodView, telemetry: PodTelemetry | None, widths: Sequence[Width], means: _PoolMeans
) -> tuple[list[ServiceTime | None], bool]:
    """The estimates, and whether they rest on this pod's telemetry alone."""
    if telemetry is None:  # it is ready, so that something is loaded
        return [ServiceTime(*_guess(width, pod, widths, means), 0.0, False) for width in widths], (
            False
        )
    by_model = {width.model: width for width in telemetry.widths}
    times: list[ServiceTime | None] = []
    complete = True
    for width in widths:
        seen = by_model.get(width.model)
        if seen is None:
            times.append(None)
            continue
        pair = _measured(seen)
        load = 0.0 if seen.instances >= 1 else finite_or(seen.load_seconds, -1.0)
        known = pair is not None and load >= 0.0
        complete = complete and known
        if load < 0.0:
            load = finite_or(means.of(pod.pool, width.model)[1], PRIOR_LOAD_SECONDS)
        if seen.loading:
            load /= 2.0
        times.append(ServiceTime(*(pair or _guess(width, pod, widths, means)), load, known))
    return times, complete


def _guess(
    width: Width, pod: PodView, widths: Sequence[Width], means: _PoolMeans
) -> tuple[float, float]:
    return (
        means.of(pod.pool, width.model)[0]
        or _scaled(width, pod, widths)
        or (PRIOR_BASE_SECONDS, PRIOR_ROW_SECONDS * width.flops_ratio)
    )


def _scaled(width: Width, pod: PodView, widths: Sequence[Width]) -> tuple[float, float] | None:
    """From the pod's own measured width of the most like FLOPs: rows scale, the base does not."""
    flops = {other.model: other.flops_ratio for other in widths}
    known = [
        (abs(flops[seen.model] - width.flops_ratio), flops[seen.model], pair)
        for seen in (pod.telemetry.widths if pod.telemetry is not None else ())
        if seen.model in flops and (pair := _measured(seen)) is not None
    ]
    if not known:
        return None
    _, ratio, (base, row) = min(known)
    return base, row * width.flops_ratio / ratio
