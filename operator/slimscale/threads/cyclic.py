"""Many tasks, fewer threads: the cyclic queue of one dispatcher and k workers, T(N, k, mu_b, mu_e).

N tasks circulate. The dispatcher hands them to the workers' queue one by one at the rate mu_b as
long as it has any; k workers finish them at min(n, k)*mu_e while n are on the workers' side
(waiting or running). Then a finished task is replaced by a new one at the dispatcher. n is a
birth-death chain on 0..N (docs/model.md 2):

    p(n) * mu_b = p(n+1) * min(n+1, k) * mu_e        T = mu_b * (1 - p(N))

N = k gives back the finite-source M/M/1. As N grows T tends to min(mu_b, k*mu_e), whose knee is
exactly k = r = mu_b/mu_e: the sense in which "the best thread count is r" is true.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.checks import require_count, require_in_range

__all__ = ["MAX_TASKS", "CyclicMetrics", "CyclicQueue"]

MAX_TASKS = 100_000
"""The chain has one state a task; more outstanding tasks change no digit of the throughput."""

_LOWEST_RATE = 1e-12
_HIGHEST_RATE = 1e12


@dataclass(frozen=True, slots=True)
class CyclicMetrics:
    """Steady state of the cyclic queue."""

    throughput_per_second: float
    mean_at_workers: float
    """Tasks that run or wait for a worker."""
    mean_running: float
    """Workers busy: T/mu_e."""
    mean_at_dispatcher: float
    """Tasks that wait to be handed over or are being handed over."""
    dispatcher_utilisation: float


@dataclass(frozen=True, slots=True)
class CyclicQueue:
    """N tasks between a dispatcher and a pool of threads.

    Raises
    ------
    ValueError
        `tasks` is not a whole number from 1 to 100000, or a rate is NaN or outside 1e-12 to
        1e12 a second. The message names parameter, value and remedy.
    """

    tasks: int
    """N: tasks outstanding at any time."""
    dispatch_rate_per_second: float
    """mu_b: tasks handed over in a second by a dispatcher that is never idle."""
    execution_rate_per_second: float
    """mu_e: tasks finished in a second by one busy worker."""

    def __post_init__(self) -> None:
        require_count("tasks", self.tasks, 1, MAX_TASKS, remedy="give the tasks outstanding")
        for name in ("dispatch_rate_per_second", "execution_rate_per_second"):
            require_in_range(
                name,
                getattr(self, name),
                _LOWEST_RATE,
                _HIGHEST_RATE,
                remedy="give a rate a second, 1 / mean seconds",
            )

    @property
    def knee_threads(self) -> float:
        """r = mu_b/mu_e: where k*mu_e reaches mu_b."""
        return self.dispatch_rate_per_second / self.execution_rate_per_second

    def state_probabilities(self, threads: int) -> NDArray[np.float64]:
        """P(n tasks on the workers' side) for n = 0..N, shape (N + 1,)."""
        workers = _check_threads(threads)
        busy = np.minimum(np.arange(1, self.tasks + 1, dtype=np.float64), workers)
        steps = np.log(self.knee_threads) - np.log(busy)
        # As logarithms: r^n/n! leaves float64 from a few hundred tasks on.
        weights = np.concatenate((np.zeros(1), np.cumsum(steps)))
        weights = np.exp(weights - weights.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def solve(self, threads: int) -> CyclicMetrics:
        """The steady state with ``threads`` workers; raises ValueError for less than one."""
        probabilities = self.state_probabilities(threads)
        on_workers = np.arange(self.tasks + 1, dtype=np.float64)
        # The sum without p(N), not 1 - p(N): the dispatcher may be busy one time in 1e12.
        utilisation = float(probabilities[:-1].sum())
        throughput = self.dispatch_rate_per_second * utilisation
        return CyclicMetrics(
            throughput_per_second=throughput,
            mean_at_workers=float(on_workers @ probabilities),
            mean_running=float(np.minimum(on_workers, threads) @ probabilities),
            mean_at_dispatcher=float((self.tasks - on_workers) @ probabilities),
            dispatcher_utilisation=utilisation,
        )

    def throughput_curve(self, max_threads: int) -> NDArray[np.float64]:
        """T(N, k) for k = 1..max_threads in tasks a second, shape (max_threads,).

        Constant from k = N on: no more than N tasks can run.
        """
        count = _check_threads(max_threads)
        useful = min(count, self.tasks)
        rising = [self.solve(threads).throughput_per_second for threads in range(1, useful + 1)]
        return np.pad(np.asarray(rising, dtype=np.float64), (0, count - useful), mode="edge")

    def bound_curve(self, max_threads: int) -> NDArray[np.float64]:
        """min(mu_b, k*mu_e, N/(S + Z)), shape (max_threads,): what the curve cannot exceed."""
        workers = np.arange(1, _check_threads(max_threads) + 1, dtype=np.float64)
        cycle_seconds = 1.0 / self.dispatch_rate_per_second + 1.0 / self.execution_rate_per_second
        limit = min(self.dispatch_rate_per_second, self.tasks / cycle_seconds)
        return np.minimum(workers * self.execution_rate_per_second, limit)


def _check_threads(threads: int) -> int:
    return require_count("threads", threads, 1, MAX_TASKS, remedy="give at least one thread")
