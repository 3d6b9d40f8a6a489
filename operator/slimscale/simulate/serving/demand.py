"""The routers' figures of demand, as their state tells them: rates of two windows by seconds."""

from collections import deque

from slimscale.domain.scaling import DemandObservation

__all__ = ["DemandMeter"]


class DemandMeter:
    """Counts arrivals in slices of a second."""

    def __init__(self, *, stable_seconds: float, panic_seconds: float) -> None:
        self._stable = stable_seconds
        self._panic = panic_seconds
        self._slices: deque[tuple[int, int]] = deque()
        self._rejected: deque[tuple[int, int]] = deque()
        self._last: float | None = None

    def arrived(self, now: float, rows: int) -> None:
        self._last = now
        _count(self._slices, now, rows)

    def rejected(self, now: float, rows: int) -> None:
        _count(self._rejected, now, rows)

    def observe(self, now: float, *, buffered_rows: int) -> DemandObservation:
        for slices in (self._slices, self._rejected):
            while slices and slices[0][0] < now - self._stable:
                slices.popleft()
        age = max(now, 1.0)
        panic = sum(rows for second, rows in self._slices if second >= now - self._panic)
        return DemandObservation(
            sampled_at_seconds=now,
            stable_rows_per_second=sum(r for _, r in self._slices) / min(self._stable, age),
            panic_rows_per_second=panic / min(self._panic, age),
            buffered_rows=buffered_rows,
            rejected_rows_per_second=sum(r for _, r in self._rejected) / min(self._stable, age),
            idle_seconds=now if self._last is None else now - self._last,
        )


def _count(slices: deque[tuple[int, int]], now: float, rows: int) -> None:
    second = int(now)
    if slices and slices[-1][0] == second:
        slices[-1] = (second, slices[-1][1] + rows)
    else:
        slices.append((second, rows))
