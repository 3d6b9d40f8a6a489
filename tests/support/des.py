"""A discrete-event simulation of threads that block, compute on C servers and share a dispatcher.

Each thread, task and queue exists on its own here; first come, first served at the CPUs and at
the dispatcher. Times come from samplers, so a test may also ask what the distribution does.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from statistics import stdev

Sampler = Callable[[random.Random], float]

_BATCHES = 20
_STUDENT_T_999_PERCENT = 3.883  # 19 degrees of freedom, two-sided


@dataclass(frozen=True, slots=True)
class SimulatedThroughput:
    """Tasks a second with the half width of its own 99.9 % confidence interval."""

    per_second: float
    half_width: float

    def agrees_with(self, expected: float) -> bool:
        return abs(self.per_second - expected) <= self.half_width


def exponential(mean_seconds: float) -> Sampler:
    """Sampler of an exponential time; a mean of 0 is no time at all."""
    if mean_seconds == 0:
        return lambda _rng: 0.0
    return lambda rng: rng.expovariate(1 / mean_seconds)


def constant(seconds: float) -> Sampler:
    return lambda _rng: seconds


class _Station:
    """First come, first served with a number of servers; None serves everyone at once."""

    def __init__(self, servers: int | None, sampler: Sampler) -> None:
        self._free = servers
        self._sampler = sampler
        self._queue: deque[int] = deque()

    def enter(self, thread: int, rng: random.Random) -> list[tuple[int, float]]:
        """Threads whose service starts now, with its length: this one or none."""
        if self._free is None:
            return [(thread, self._sampler(rng))]
        if self._free == 0:
            self._queue.append(thread)
            return []
        self._free -= 1
        return [(thread, self._sampler(rng))]

    def leave(self, rng: random.Random) -> list[tuple[int, float]]:
        """Threads whose service starts now because a server came free."""
        if self._free is None:
            return []
        if self._queue:
            return [(self._queue.popleft(), self._sampler(rng))]
        self._free += 1
        return []


def simulate_throughput(
    *,
    threads: int,
    blocking: Sampler,
    cpu: Sampler,
    dispatch: Sampler,
    cpu_servers: int,
    completions: int,
    seed: int,
) -> SimulatedThroughput:
    """Run until ``completions`` tasks have passed the dispatcher, after a tenth as warm-up."""
    rng = random.Random(seed)
    stations = (_Station(None, blocking), _Station(cpu_servers, cpu), _Station(1, dispatch))
    order = count()  # ties in time are served in the order in which they were planned
    agenda: list[tuple[float, int, int, int]] = []

    def plan(now: float, where: int, starts: list[tuple[int, float]]) -> None:
        for thread, length in starts:
            heapq.heappush(agenda, (now + length, next(order), thread, where))

    for thread in range(threads):
        plan(0.0, 0, stations[0].enter(thread, rng))
    warm_up, batch = completions // 10, completions // _BATCHES
    boundaries: list[float] = []
    done = -warm_up
    while len(boundaries) <= _BATCHES:
        now, _, thread, where = heapq.heappop(agenda)
        plan(now, where, stations[where].leave(rng))
        following = (where + 1) % len(stations)
        plan(now, following, stations[following].enter(thread, rng))
        if where == len(stations) - 1:
            if done >= 0 and done % batch == 0:
                boundaries.append(now)
            done += 1
    rates = [batch / (end - start) for start, end in pairwise(boundaries)]
    half_width = _STUDENT_T_999_PERCENT * stdev(rates) / _BATCHES**0.5
    return SimulatedThroughput(
        per_second=batch * _BATCHES / (boundaries[-1] - boundaries[0]), half_width=half_width
    )
