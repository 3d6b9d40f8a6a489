"""How fast requests come, over a short and a long horizon."""

from math import exp

from slimscale.routing.learned.layout import FAST_SECONDS, SLOW_SECONDS

__all__ = ["ArrivalRates", "decayed_rate"]


def decayed_rate(rate: float, *, gap_seconds: float, rows: float, horizon_seconds: float) -> float:
    """Rows a second with exponentially fading memory, just after `rows` have arrived.

    rate' = rate * exp(-gap/horizon) + rows/horizon: its mean is the arrival rate whatever the gaps are
    (a shot-noise estimate), and it falls while nobody comes.
    """
    return rate * exp(-max(gap_seconds, 0.0) / horizon_seconds) + rows / horizon_seconds


class ArrivalRates:
    """Fast and slow rows a second. Times are seconds on one clock.

    Until `SLOW_SECONDS` have passed the memory is not full yet: the rates are divided by the share of it
    that is, so that a service that has just begun does not look idle.
    """

    __slots__ = ("_began", "_fast", "_last", "_slow")

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0
        self._fast = 0.0
        self._slow = 0.0

    def arrived(self, rows: int, *, now: float) -> None:
        if self._began is None:
            self._began, self._last = now, now
        gap = now - self._last
        self._last = max(now, self._last)
        self._fast = decayed_rate(
            self._fast, gap_seconds=gap, rows=rows, horizon_seconds=FAST_SECONDS
        )
        self._slow = decayed_rate(
            self._slow, gap_seconds=gap, rows=rows, horizon_seconds=SLOW_SECONDS
        )

    def per_second(self, *, now: float) -> tuple[float, float]:
        """(fast, slow) rows a second as they look now; zeros before the first arrival."""
        if self._began is None:
            return 0.0, 0.0
        gap = max(now - self._last, 0.0)
        fast, slow = self._fast * exp(-gap / FAST_SECONDS), self._slow * exp(-gap / SLOW_SECONDS)
        age = max(now - self._began, 0.0)
        return fast / filled(age, FAST_SECONDS), slow / filled(age, SLOW_SECONDS)


def filled(age_seconds: float, horizon_seconds: float) -> float:
    """Share of the memory that has been filled, from below bounded by a tenth."""
    return max(1.0 - exp(-age_seconds / horizon_seconds), 0.1)
