"""The finite-source M/M/1 queue: k threads that execute in parallel and share one dispatcher.

Also called machine repairman or M/M/1/K/K. A thread executes a task (mean Z = 1/think rate,
nobody in its way) and then passes the dispatcher (mean S = 1/service rate, one at a time). With
r = Z/S and Erlang's loss function B(k, r) (docs/model.md 1):

    T(k) = (1 - B(k, r))/S      rho(k) = 1 - B(k, r)      W(k) = k/T(k) - Z

The model has no interior optimum: throughput rises with every thread. "Best" needs a tolerance
(`smallest_population_within`) or contention (`closed_network`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.checks import require_count, require_in_range

__all__ = [
    "MAX_POPULATION",
    "FiniteSourceMM1",
    "QueueMetrics",
    "erlang_b",
    "smallest_population_by_gain",
    "smallest_population_within",
]

MAX_POPULATION = 1_000_000
"""Recursions take one step a thread; beyond this a caller has mixed up its units."""

_LOWEST_RATE = 1e-12
_HIGHEST_RATE = 1e12
_RATE_REMEDY = "give a rate a second, 1 / mean seconds"


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Steady state of the queue at the dispatcher. Times in seconds, rates a second."""

    throughput_per_second: float
    utilisation: float
    """Share of time in which the dispatcher is held, 0 to 1."""
    mean_number: float
    """Threads at the dispatcher, the one that holds it included."""
    mean_waiting: float
    """Threads that wait for the dispatcher."""
    response_seconds: float
    """Mean time at the dispatcher, waiting and holding it."""
    wait_seconds: float
    """Mean time that a thread waits before it holds the dispatcher."""
    empty_probability: float
    """Probability that no thread is at the dispatcher: B(k, r)."""


@dataclass(frozen=True, slots=True)
class FiniteSourceMM1:
    """A population of threads before one dispatcher.

    Raises
    ------
    ValueError
        The population is not a whole number from 1 to a million, or a rate is NaN or outside
        1e-12 to 1e12 a second. The message names parameter, value and remedy.
    """

    population: int
    """k: threads."""
    think_rate_per_second: float
    """mu_e: 1/Z, tasks that one undisturbed thread executes in a second."""
    service_rate_per_second: float
    """mu_b: 1/S, tasks that the dispatcher hands over in a second when never idle."""

    def __post_init__(self) -> None:
        require_count(
            "population", self.population, 1, MAX_POPULATION, remedy="give the number of threads"
        )
        for name in ("think_rate_per_second", "service_rate_per_second"):
            require_in_range(
                name, getattr(self, name), _LOWEST_RATE, _HIGHEST_RATE, remedy=_RATE_REMEDY
            )

    @property
    def time_ratio(self) -> float:
        """r = Z/S = mu_b/mu_e: execution time over dispatch time."""
        return self.service_rate_per_second / self.think_rate_per_second

    @property
    def saturation_point(self) -> float:
        """1 + r: threads at which the two asymptotes k/(Z + S) and 1/S cross."""
        return 1.0 + self.time_ratio

    def solve(self) -> QueueMetrics:
        """Every mean of the steady state, in O(k) steps without cancellation."""
        service_seconds = 1.0 / self.service_rate_per_second
        think_seconds = 1.0 / self.think_rate_per_second
        utilisation, empty = 1.0, 1.0
        # Exact mean value analysis beside Erlang's recursion: k - T*Z would lose every digit
        # where the dispatcher is nearly idle, and 1 - B where it is nearly always idle.
        response_seconds = service_seconds
        mean_number, met_on_arrival = 0.0, 0.0
        for threads in range(1, self.population + 1):
            utilisation, empty = _next_erlang(threads, self.time_ratio, empty)
            met_on_arrival = mean_number
            response_seconds = service_seconds * (1.0 + met_on_arrival)
            mean_number = threads * response_seconds / (response_seconds + think_seconds)
        throughput = self.service_rate_per_second * utilisation
        wait_seconds = service_seconds * met_on_arrival
        return QueueMetrics(
            throughput_per_second=throughput,
            utilisation=utilisation,
            mean_number=mean_number,
            mean_waiting=throughput * wait_seconds,
            response_seconds=response_seconds,
            wait_seconds=wait_seconds,
            empty_probability=empty,
        )

    def throughput_curve(self) -> NDArray[np.float64]:
        """T(1..population) in tasks a second, shape (population,)."""
        curve = np.empty(self.population)
        empty = 1.0
        for threads in range(1, self.population + 1):
            utilisation, empty = _next_erlang(threads, self.time_ratio, empty)
            curve[threads - 1] = utilisation
        return curve * self.service_rate_per_second

    def bound_curve(self) -> NDArray[np.float64]:
        """min(k/(Z + S), 1/S) for 1..population threads, shape (population,): equation 6."""
        threads = np.arange(1, self.population + 1, dtype=np.float64)
        limit = self.service_rate_per_second
        return np.minimum(threads / self.saturation_point, 1.0) * limit

    def state_probabilities(self) -> NDArray[np.float64]:
        """P(n threads at the dispatcher) for n = 0..population, shape (population + 1,).

        A Poisson distribution of mean r, truncated at k, of the threads that execute.
        """
        # As logarithms, scaled by the likeliest state: r^n/n! leaves float64 early.
        executing = np.arange(self.population, 0, -1, dtype=np.float64)
        steps = np.log(executing) - np.log(self.time_ratio)
        weights = np.concatenate((np.zeros(1), np.cumsum(steps)))
        weights = np.exp(weights - weights.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)


def erlang_b(servers: int, offered_load: float) -> float:
    """Erlang's loss function B(servers, offered_load), a probability.

    B(0) = 1, B(i) = r*B(i-1)/(i + r*B(i-1)): every term is in (0, 1], no factorials.
    Raises ValueError for a negative or NaN load and for servers outside 0..1e6.
    """
    count = require_count(
        "servers", servers, 0, MAX_POPULATION, remedy="give the number of servers, 0 or more"
    )
    load = require_in_range(
        "offered_load",
        offered_load,
        0.0,
        _HIGHEST_RATE / _LOWEST_RATE,
        remedy="give arrival rate x holding time, 0 or more",
    )
    blocked = 1.0
    for server in range(1, count + 1):
        _, blocked = _next_erlang(server, load, blocked)
    return blocked


def smallest_population_within(time_ratio: float, tolerance: float) -> int:
    """Fewest threads whose throughput is within ``tolerance`` of the dispatcher's limit.

    min{k : B(k, r) <= tolerance}, Erlang's dimensioning rule (docs/model.md 2): near
    r + beta*sqrt(r) for large r. ``time_ratio`` is r = Z/S, 0 to 1e6; ``tolerance`` is relative,
    1e-12 to 1 exclusive. Raises ValueError outside.
    """
    ratio = _check_ratio(time_ratio)
    allowed = _check_share("tolerance", tolerance)
    threads, empty = 0, 1.0
    while empty > allowed:
        threads += 1
        _, empty = _next_erlang(threads, ratio, empty)
    return threads


def smallest_population_by_gain(time_ratio: float, least_gain: float) -> int:
    """Fewest threads from which one more adds less than ``least_gain`` of the throughput.

    min{k : T(k+1)/T(k) - 1 < least_gain}. It stops early where r is large: each of many threads
    adds little long before the dispatcher is busy. Ranges and errors as above.
    """
    ratio = _check_ratio(time_ratio)
    wanted = _check_share("least_gain", least_gain)
    threads = 1
    utilisation, empty = _next_erlang(1, ratio, 1.0)
    while True:
        following, empty = _next_erlang(threads + 1, ratio, empty)
        if following / utilisation - 1.0 < wanted:
            return threads
        threads, utilisation = threads + 1, following


def _next_erlang(servers: int, load: float, blocked: float) -> tuple[float, float]:
    """(1 - B, B) for one server more. Both as quotients, so neither loses digits near 0."""
    offered = load * blocked
    return servers / (servers + offered), offered / (servers + offered)


def _check_ratio(time_ratio: float) -> float:
    return require_in_range(
        "time_ratio",
        time_ratio,
        0.0,
        float(MAX_POPULATION),
        remedy="give mean execution seconds / mean dispatch seconds, at most 1e6",
    )


def _check_share(name: str, value: float) -> float:
    return require_in_range(
        name, value, 1e-12, 1.0 - 1e-12, remedy="give a share such as 0.05 for 5 %"
    )
