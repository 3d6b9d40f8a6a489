"""Whether a batch may run on the event loop itself, without two hand-overs between threads.

A hand-over to a thread and back costs a few tenths of a millisecond, more on a busy machine. A short
batch runs on the loop while no other wants to run at the same time. Probes then wait for one batch.
"""

from math import inf

__all__ = ["Inline", "ShortRuns"]

SHORT_SECONDS = 0.02
"""Longer batches leave the loop free: probes and the next request shall not wait for them."""
_RUNS_TO_TRUST = 8
_NEWEST_SHARE = 0.25
_APART_SECONDS = 10.0
"""So long after two batches have overlapped every batch gets a thread."""
_LOOK_EVERY = 128
"""A batch in a thread, now and then: on the loop nobody can see that another one waits."""


class ShortRuns:
    """How long an instance's batches take, by the power of two that holds their rows."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def took(self, rows: int, seconds: float) -> None:
        runs, mean = self._seen.get(rows.bit_length(), (0, seconds))
        mean += _NEWEST_SHARE * (seconds - mean)
        # One long run, as under a CPU quota, counts at once; it takes many short ones to forget it.
        self._seen[rows.bit_length()] = (runs + 1, max(mean, seconds / 2.0))

    def expected(self, rows: int) -> float:
        """Seconds; infinite while too few such batches have run."""
        runs, seconds = self._seen.get(rows.bit_length(), (0, inf))
        return seconds if runs >= _RUNS_TO_TRUST else inf


class Inline:
    """Shared by all models of a process. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._inside = 0
        self._apart_until = -inf
        self._in_a_row = 0

    def allows(self, expected_seconds: float, *, now: float) -> bool:
        """Whether to run the next batch on the loop. Each True counts as such a batch."""
        if self._inside or expected_seconds > SHORT_SECONDS or now < self._apart_until:
            return False
        self._in_a_row += 1
        if self._in_a_row >= _LOOK_EVERY:
            self._in_a_row = 0
            return False
        return True

    def enter(self, *, now: float) -> None:
        """A batch goes to a thread, or waits for one."""
        if self._inside:
            self._apart_until = now + _APART_SECONDS
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
