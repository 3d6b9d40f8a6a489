"""The real clock."""

import time

__all__ = ["SystemClock"]

# Goes on while the machine sleeps, so that a lease does not look fresh after it wakes.
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `domain.clock.Clock`."""

    def now_seconds(self) -> float:
        return time.time()

    def monotonic_seconds(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)
