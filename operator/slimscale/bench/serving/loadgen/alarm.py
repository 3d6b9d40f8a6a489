"""An alarm clock for the event loop that is exact to some 50 microseconds.

The loop's own timers round up to whole milliseconds, which would be seen in medians of a few
milliseconds. Linux's timerfd (timerfd_create(2)) wakes the loop like a socket does.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import Final

__all__ = ["Alarm"]

_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_NANOS: Final = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanos", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Calls `ring` once for each `set`. Times are those of `time.monotonic`. Close it after use."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._ring = ring
        loop.add_reader(self._file, self._woken)

    def set(self, at_seconds: float) -> None:
        nanos = max(1, int(at_seconds * _NANOS))
        when = _Itimerspec(_Timespec(0, 0), _Timespec(nanos // _NANOS, nanos % _NANOS))
        if self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(when), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _woken(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return
        self._ring()

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
