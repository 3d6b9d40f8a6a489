"""How full the model server is over time: a look at one instant falls between two batches.

A batch on the event loop can't be seen from the event loop at all: whoever asks is answered after it.
"""

from collections.abc import Callable

__all__ = ["Occupancy"]

SATURATED_SHARE = 0.75
"""Of the time with work inside, from which more work would have been taken."""
_LEAST_SECONDS = 1.0


class Occupancy:
    """Rows inside and the time with any, between two readings. Used from one thread.

    `now`: seconds of a monotonic clock. `threads`: of a session, as applied.
    """

    def __init__(self, *, now: Callable[[], float], threads: Callable[[], int]) -> None:
        self._now = now
        self._threads = threads
        self._rows = 0
        self._at = self._began = now()
        self._row_seconds = self._busy_seconds = 0.0
        self._told = 0

    def entered(self, rows: int) -> None:
        self._advance()
        self._rows += rows

    def left(self, rows: int) -> None:
        self._advance()
        self._rows -= rows

    def outstanding(self) -> int:
        """The contract's tasks outstanding, a row being the task, since the reading before.

        The mean of the rows inside where there was nearly always work; else less than one row for
        each thread, in the share of the time that there was: large batches now and then are no
        saturation.
        """
        self._advance()
        seconds = self._at - self._began
        if seconds >= _LEAST_SECONDS:
            busy = min(1.0, self._busy_seconds / seconds)
            mean = round(self._row_seconds / seconds)
            if busy < SATURATED_SHARE:
                mean = min(mean, int(busy * self._threads()))
            self._told = mean
            self._began = self._at
            self._row_seconds = self._busy_seconds = 0.0
        return self._told

    def _advance(self) -> None:
        now = self._now()
        passed = max(0.0, now - self._at)
        self._at = now
        if self._rows:
            self._row_seconds += self._rows * passed
            self._busy_seconds += passed
