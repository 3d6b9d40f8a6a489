"""Whether an idle instance waits for a fuller batch, and until when.

Work-conserving is the default (it never waits). Waiting saves work a request, at the price of
latency: it is done only where asked for, only while every queued deadline still allows it, and
only while someone else may be expected to come.
"""

from math import inf

__all__ = ["ArrivalRate", "fire_at"]


def fire_at(
    *,
    now: float,
    rows: int,
    full_rows: int,
    oldest_arrival: float,
    first_deadline: float,
    hold_seconds: float,
    full_seconds: float | None,
    arrivals_per_second: float | None,
) -> float:
    """When the next batch of a queue starts: `now`, or a later time unless something changes first.

    `rows` of `full_rows` are queued. `full_seconds`: how long a full batch takes (None: unknown, and
    then nobody waits, since no deadline could be promised). Times are on one clock.
    """
    if hold_seconds <= 0.0 or rows >= full_rows or full_seconds is None:
        return now
    until = min(oldest_arrival + hold_seconds, first_deadline - full_seconds)
    if until <= now:
        return now
    if arrivals_per_second is not None and arrivals_per_second * (until - now) < 1.0:
        return now  # most likely nobody comes: the wait would buy nothing
    return until


class ArrivalRate:
    """Requests a second, from the gaps between them; None until there were two."""

    __slots__ = ("_gap", "_last")

    def __init__(self) -> None:
        self._last = -inf
        self._gap: float | None = None

    def arrived(self, now: float) -> None:
        if self._last > -inf:
            gap = max(now - self._last, 0.0)
            self._gap = gap if self._gap is None else self._gap + 0.1 * (gap - self._gap)
        self._last = now

    def per_second(self, now: float) -> float | None:
        """Falls while nobody comes: a long silence counts as a gap of its own."""
        if self._gap is None:
            return None
        return 1.0 / max(self._gap, 0.1 * (now - self._last), 1e-6)
