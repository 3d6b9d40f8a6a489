"""How long a thread waited for a CPU, from Linux's per-thread statistics."""

import os

__all__ = ["RunQueueClock"]


class RunQueueClock:
    """The calling thread's time on the run queue. Keeps one file open: use it from its own thread.

    Source: proc_pid_schedstat, the second number is nanoseconds spent waiting on a run queue.
    """

    __slots__ = ("_file",)

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    @property
    def available(self) -> bool:
        return self._file >= 0

    def seconds(self) -> float:
        """Since the thread started; 0.0 where the kernel does not say."""
        if self._file < 0:
            return 0.0
        try:
            return int(os.pread(self._file, 96, 0).split()[1]) * 1e-9
        except (OSError, ValueError, IndexError):
            return 0.0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
