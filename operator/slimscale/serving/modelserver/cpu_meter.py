"""How much CPU batches take: all that this process uses while one runs, but for the event loop's own.

onnxruntime computes a batch with threads of its own, so that the calling thread's time tells a part.
"""

import threading
import time
from collections.abc import Callable

__all__ = ["CpuMeter", "cpu_beside_this_thread"]


def cpu_beside_this_thread() -> Callable[[], float]:
    """CPU seconds of the process less those of the thread that calls this now."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.process_time() - time.clock_gettime(clock)


class CpuMeter:
    """Adds up what `cpu_seconds` grows by between `began` and `ended` of batches, however they overlap.

    Used from one thread. What is used while no batch runs (loading, warming) does not count.
    """

    def __init__(self, cpu_seconds: Callable[[], float], add: Callable[[float], None]) -> None:
        self._cpu_seconds = cpu_seconds
        self._add = add
        self._running = 0
        self._mark = 0.0

    def began(self) -> None:
        if not self._running:
            self._mark = self._cpu_seconds()
        self._running += 1

    def ended(self, own_seconds: float = 0.0) -> None:
        """`own_seconds`: CPU of the event loop's thread that went into this batch."""
        self._running -= 1
        now = self._cpu_seconds()
        self._add(max(0.0, now - self._mark) + own_seconds)
        self._mark = now
