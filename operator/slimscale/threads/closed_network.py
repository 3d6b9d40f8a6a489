"""Throughput against thread count: the closed network of blocking part, CPU part and dispatcher.

Each of k threads goes round three stations for ever: it waits for something outside (blocking
part, no queue), computes (CPU part, shared by the threads that compute), and passes the one
dispatcher or lock, whose holding time may grow with the number of threads that crowd there.
With exponential times the network has product form (Baskett, Chandy, Muntz and Palacios 1975),
so the whole curve follows from convolutions (Buzen 1973):

    f_io(i)   = Zio^i / i!
    f_cpu(i)  = D^i / prod_{j<=i} min(j, C)
    f_lock(i) = prod_{j<=i} S(j),   S(q) = S * (1 + a1*(q-1) + b1*q*(q-1))
    G(n)      = (f_io * f_cpu * f_lock)(n)
    T(k)      = G(k-1) / G(k)

The terms span thousands of decades at K = 1024, so they are kept as logarithms and each sum is
scaled by its own largest term. An FFT would lose everything below 1e-16 of the largest term.

Special cases: with Zio or D alone beside S and C >= k it is the finite-source M/M/1 of
`finite_source`; the shape of the time outside the dispatcher's queue then does not matter, only
its mean. The shape of the dispatcher's time does matter, and so does that of the task time once
threads queue for CPUs first come, first served.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.checks import require_count, require_in_range

__all__ = [
    "MAX_THREADS",
    "NetworkMetrics",
    "NetworkParameters",
    "asymptotic_bound",
    "knee_threads",
    "mean_cpu_in_use",
    "solve_network",
    "throughput_curve",
]

MAX_THREADS = 1024
"""The work grows with the square: 1024 threads need about 16 times what 256 need."""

# Wide enough for any thread, narrow enough that no sum or quotient leaves float64.
_SHORTEST_CYCLE_SECONDS = 1e-12
_LONGEST_PART_SECONDS = 1e12
_FEWEST_CPU_SERVERS = 1e-3  # one millicore, the least that Kubernetes knows
_MOST_CPU_SERVERS = 1e6
_MOST_CONTENTION = 1e6

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NetworkParameters:
    """Means of one task, and what it competes for.

    `cpu_servers` may be fractional: with j threads computing, the CPU part serves at the rate
    min(j, C)/D. C = 1.5 runs one thread at full speed and two or more at 1.5 together; C = 0.5
    runs any number of threads at half a CPU. That is the long-run effect of a quota. The quota
    itself stops all threads for the rest of each period (100 ms), so below that time scale real
    curves show a sawtooth that this model does not.

    Raises
    ------
    ValueError
        A value is NaN, infinite or negative, the parts add up to less than 1e-12 s, or
        `cpu_servers` is below one millicore. The message names parameter, value and remedy.
    """

    blocking_seconds: float
    """Zio: mean time of a task in waits outside the CPU and the dispatcher."""
    cpu_seconds: float
    """D: mean CPU time of a task, that is its time on a CPU of its own."""
    dispatch_seconds: float
    """S: mean time that a task holds the dispatcher when no other thread is there."""
    cpu_servers: float
    """C: usable cores, or the CPU quota in cores where that is less."""
    contention_linear: float = 0.0
    """a1: relative growth of the dispatch time with each further thread at the dispatcher."""
    contention_quadratic: float = 0.0
    """b1: growth with each pair of them, as when all caches hold the lock's line."""
    contention_handover: float = 0.0
    """h: relative growth as soon as any other thread is there, the same for one and for many: a
    contended hand-over wakes a sleeping thread. S(q) = S*(1 + h + a1*(q-1) + b1*q*(q-1)), q > 1."""

    def __post_init__(self) -> None:
        for name in ("blocking_seconds", "cpu_seconds", "dispatch_seconds"):
            require_in_range(
                name,
                getattr(self, name),
                0.0,
                _LONGEST_PART_SECONDS,
                remedy="give a mean time in seconds, 0 where the task has no such part",
            )
        require_in_range(
            "cpu_servers",
            self.cpu_servers,
            _FEWEST_CPU_SERVERS,
            _MOST_CPU_SERVERS,
            remedy="give the cores or the CPU quota in cores, at least 0.001",
        )
        for name in ("contention_linear", "contention_quadratic", "contention_handover"):
            require_in_range(
                name,
                getattr(self, name),
                0.0,
                _MOST_CONTENTION,
                remedy="give 0 for a dispatcher that does not slow down",
            )
        if self.cycle_seconds < _SHORTEST_CYCLE_SECONDS:
            raise ValueError(
                f"blocking_seconds + cpu_seconds + dispatch_seconds is {self.cycle_seconds!r}, "
                f"below {_SHORTEST_CYCLE_SECONDS:g}; measure at least one of the parts"
            )

    @property
    def cycle_seconds(self) -> float:
        """Zio + D + S: seconds that a task takes when it waits for nobody."""
        return self.blocking_seconds + self.cpu_seconds + self.dispatch_seconds


@dataclass(frozen=True, slots=True)
class NetworkMetrics:
    """Steady state for 1..K threads; every array has shape (K,), index k-1 is k threads.

    The three mean numbers add up to k at every index (each thread is somewhere).
    """

    throughput_per_second: FloatArray
    mean_blocked: FloatArray
    """Threads in their blocking part: T*Zio."""
    mean_at_cpu: FloatArray
    """Threads that compute or are runnable and wait for a CPU."""
    mean_at_dispatcher: FloatArray
    """Threads that hold the dispatcher or wait for it."""
    dispatcher_utilisation: FloatArray
    """Share of time in which some thread holds the dispatcher, 0 to 1."""


def throughput_curve(parameters: NetworkParameters, max_threads: int) -> FloatArray:
    """Tasks a second with 1..max_threads threads, shape (max_threads,).

    Concave and rising without contention; with it the curve has one maximum and then falls.
    Raises ValueError where max_threads is not in 1..1024.
    """
    log_io, log_cpu, log_lock = _log_weights(parameters, _check_threads(max_threads))
    log_total = _log_convolve(_log_convolve(log_io, log_cpu), log_lock)
    return _without_rounding(parameters, np.exp(log_total[:-1] - log_total[1:]))


def solve_network(parameters: NetworkParameters, max_threads: int) -> NetworkMetrics:
    """Throughput and where the threads are, for 1..max_threads threads.

    The mean number at a station with weights f is sum_i i*f(i)*G_others(n-i)/G(n), which is one
    more convolution each (Buzen 1973). About three times the work of `throughput_curve`.
    """
    count = _check_threads(max_threads)
    log_io, log_cpu, log_lock = _log_weights(parameters, count)
    log_outside = _log_convolve(log_io, log_cpu)
    log_total = _log_convolve(log_outside, log_lock)
    log_not_cpu = _log_convolve(log_io, log_lock)
    log_index = _log(np.arange(count + 1, dtype=np.float64))
    throughput = _without_rounding(parameters, np.exp(log_total[:-1] - log_total[1:]))
    at_cpu = np.exp(_log_convolve(log_cpu + log_index, log_not_cpu) - log_total)
    at_dispatcher = np.exp(_log_convolve(log_lock + log_index, log_outside) - log_total)
    busy = _log_convolve(_without_empty(log_lock), log_outside)
    return NetworkMetrics(
        throughput_per_second=throughput,
        mean_blocked=throughput * parameters.blocking_seconds,
        mean_at_cpu=at_cpu[1:],
        mean_at_dispatcher=at_dispatcher[1:],
        dispatcher_utilisation=np.minimum(np.exp(busy - log_total)[1:], 1.0),
    )


def asymptotic_bound(parameters: NetworkParameters, max_threads: int) -> FloatArray:
    """Tasks a second that no curve of these means can exceed, shape (max_threads,).

    min(k/(Zio + D + S), C/D, 1/S): docs/model.md 1 (6) and 3, an operational law that holds for
    any distribution and any order of service. For C < 1 the first term is not tightened to one
    thread at C: a thread that blocks in between may use its quota at full speed.
    """
    threads = np.arange(1, _check_threads(max_threads) + 1, dtype=np.float64)
    return np.minimum(threads / parameters.cycle_seconds, _saturated_rate(parameters))


def knee_threads(parameters: NetworkParameters) -> float:
    """Where the two branches of the bound cross: (Zio + D + S) / max(S, D/C); inf without limit.

    Not a recommendation. At the knee the curve itself is well below its limit.
    """
    return parameters.cycle_seconds * _saturated_rate(parameters)


def mean_cpu_in_use(
    parameters: NetworkParameters, curve: FloatArray, *, dispatcher_on_cpu: bool = False
) -> FloatArray:
    """Mean cores that the threads keep busy at the throughputs of ``curve``, shape as the curve.

    ``curve[k-1]`` is tasks a second with k threads: `throughput_curve`, or a corrected curve.
    Each task brings D seconds of CPU, so cores = T*D (utilisation law). ``dispatcher_on_cpu``
    adds the time that a task holds the dispatcher, for a lock held while running. Threads that
    wait for the dispatcher are taken to sleep: with spinning the answer would be near k.
    """
    work_seconds = np.full(curve.shape, parameters.cpu_seconds, dtype=np.float64)
    if dispatcher_on_cpu:
        metrics = solve_network(parameters, len(curve))
        work_seconds += metrics.dispatcher_utilisation / metrics.throughput_per_second
    return curve * work_seconds


def _check_threads(max_threads: int) -> int:
    return require_count(
        "max_threads", max_threads, 1, MAX_THREADS, remedy="ask for a curve of 1 to 1024 threads"
    )


def _saturated_rate(parameters: NetworkParameters) -> float:
    """min(C/D, 1/S) in tasks a second; inf where a part is absent."""
    rates = [math.inf]
    if parameters.cpu_seconds > 0:
        rates.append(parameters.cpu_servers / parameters.cpu_seconds)
    if parameters.dispatch_seconds > 0:
        rates.append(1.0 / parameters.dispatch_seconds)
    return min(rates)


def _log(values: FloatArray) -> FloatArray:
    """Natural logarithm with log(0) = -inf, which stands for a station that is never used."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _log_weights(
    parameters: NetworkParameters, count: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """log f_io, log f_cpu, log f_lock for 0..count threads at each station."""
    here = np.arange(1, count + 1, dtype=np.float64)
    growth = (
        1.0
        + parameters.contention_linear * (here - 1.0)
        + parameters.contention_quadratic * here * (here - 1.0)
        + parameters.contention_handover * (here > 1.0)
    )
    seconds_each = (
        _log(np.float64(parameters.blocking_seconds) / here),
        _log(np.float64(parameters.cpu_seconds) / np.minimum(here, parameters.cpu_servers)),
        _log(np.float64(parameters.dispatch_seconds) * growth),
    )
    log_io, log_cpu, log_lock = (
        np.concatenate((np.zeros(1), np.cumsum(seconds))) for seconds in seconds_each
    )
    return log_io, log_cpu, log_lock


def _without_rounding(parameters: NetworkParameters, curve: FloatArray) -> FloatArray:
    """Take out the last digits' noise (1e-12), which would make a flat curve's maximum random.

    The bound holds for every network, and without contention throughput never falls as threads
    are added; both are theorems, so nothing but rounding is removed.
    """
    bounded = np.minimum(curve, asymptotic_bound(parameters, len(curve)))
    if (
        parameters.contention_linear > 0
        or parameters.contention_quadratic > 0
        or parameters.contention_handover > 0
    ):
        return bounded
    return np.maximum.accumulate(bounded)


def _without_empty(log_weights: FloatArray) -> FloatArray:
    """The same weights with "nobody here" left out."""
    occupied = log_weights.copy()
    occupied[0] = -np.inf
    return occupied


def _log_convolve(left: FloatArray, right: FloatArray) -> FloatArray:
    """log of the convolution of exp(left) and exp(right), cut to their common length.

    Row n of a Toeplitz view holds right[n-i]; each row is scaled by its own largest term, so the
    relative error stays near that of one exponential wherever the row lies. All terms are
    positive: nothing cancels.
    """
    size = len(left)
    padded = np.full(2 * size - 1, -np.inf)
    padded[:size] = right[::-1]
    # windows[n][i] = padded[size-1-n+i] = right[n-i], and -inf where i > n
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)[::-1]
    terms = windows + left
    largest = terms.max(axis=1)
    # A row of zeros alone (a station that is never used) has no scale of its own.
    scale = np.where(np.isneginf(largest), 0.0, largest)
    terms -= scale[:, np.newaxis]
    np.exp(terms, out=terms)
    return _log(terms.sum(axis=1)) + scale
