"""The universal scalability law: speed-up against threads with contention and coherence.

    C(k) = k / (1 + a*(k-1) + b*k*(k-1))                                  (Gunther 1993)

Gunther (arXiv 0808.1431) shows it to be the synchronous throughput bound of the machine repairman
whose service slows down with the queue; so it is kin to `closed_network` with contention, not
equal to it. b = 0 is Amdahl's law: no maximum, limit 1/a. It serves as a static baseline, and to
read a measured curve that has no dispatch times.
"""

import math

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.checks import require_count, require_in_range

__all__ = ["speedup_curve", "threads_at_peak"]


def speedup_curve(*, contention: float, coherence: float, max_threads: int) -> NDArray[np.float64]:
    """C(1..max_threads), throughput relative to one thread, shape (max_threads,).

    ``contention`` is a in 0..1, the serial share; ``coherence`` is b in 0..1, the cost of each
    pair of threads. Raises ValueError outside.
    """
    serial, pairwise = _check_shares(contention, coherence)
    count = require_count(
        "max_threads", max_threads, 1, 1_000_000, remedy="ask for at least one thread"
    )
    threads = np.arange(1, count + 1, dtype=np.float64)
    return threads / (1.0 + serial * (threads - 1.0) + pairwise * threads * (threads - 1.0))


def threads_at_peak(*, contention: float, coherence: float) -> float:
    """Where the law peaks: sqrt((1-a)/b), not rounded; inf without coherence cost.

    Below 1 where a second thread already costs more than it brings. Raises ValueError as above.
    """
    serial, pairwise = _check_shares(contention, coherence)
    return math.inf if pairwise == 0 else math.sqrt((1.0 - serial) / pairwise)


def _check_shares(contention: float, coherence: float) -> tuple[float, float]:
    remedy = "give a share from 0 (none) to 1"
    return (
        require_in_range("contention", contention, 0.0, 1.0, remedy=remedy),
        require_in_range("coherence", coherence, 0.0, 1.0, remedy=remedy),
    )
