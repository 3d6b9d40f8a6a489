"""Shares a machine: measures in short stretches, alone, and not while somebody asks for quiet."""

import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Gate"]

_LOOK_SECONDS = 2.0


class Gate:
    """`enter` before each turn and `leave` after it; without lock and quiet both do nothing.

    `lock` is a folder that whoever measures makes; it is held for `stretch_seconds` at most, and then
    left to others for `pause_seconds`. While `quiet` exists nothing is measured.
    """

    def __init__(
        self,
        lock: Path | None = None,
        quiet: Path | None = None,
        *,
        stretch_seconds: float = 150.0,
        pause_seconds: float = 25.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock = lock
        self._quiet = quiet
        self._stretch = stretch_seconds
        self._pause = pause_seconds
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None

    def enter(self) -> None:
        """Returns when this process may measure."""
        while self._since is None or self._asked_for_quiet():
            if self._asked_for_quiet():
                self.close()
            elif self._taken():
                self._since = self._clock()
                continue
            self._sleep(_LOOK_SECONDS)

    def leave(self) -> None:
        if self._since is None:
            return
        if self._asked_for_quiet():
            self.close()
        elif self._lock is not None and self._clock() - self._since >= self._stretch:
            self.close()
            self._sleep(self._pause)

    def close(self) -> None:
        """Leave the lock to others."""
        if self._since is not None and self._lock is not None:
            self._lock.rmdir()
        self._since = None

    def _asked_for_quiet(self) -> bool:
        return self._quiet is not None and self._quiet.exists()

    def _taken(self) -> bool:
        if self._lock is None:
            return True
        try:
            self._lock.mkdir()
        except FileExistsError:
            return False
        return True
