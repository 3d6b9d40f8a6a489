"""Time as an argument: pure code gets `now`, IO code gets a Clock."""

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    def now_seconds(self) -> float:
        """Wall-clock time, seconds since the epoch: for what users and other processes see."""
        ...

    def monotonic_seconds(self) -> float:
        """Never steps back: for deadlines of this process."""
        ...
