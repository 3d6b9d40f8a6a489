"""What one pod takes within the SLO: a greedy batch server under Poisson arrivals.

A pod works greedily: as soon as an instance is idle it takes all that waits, at most `max_rows`.
A batch of b rows takes `base + b * row` seconds. Looked at when batches start, the number of waiting
rows is a Markov chain (Inoue, Queueing analysis of GPU-based inference servers with dynamic
batching, Performance Evaluation 147, 2021, arXiv 1912.06322, there without a largest batch).

Of s rows b = min(s, max_rows) go; with A ~ Poisson(rate * l(b)) arrivals meanwhile the next batch
starts at s - b + A rows, or at 1 once somebody has come. A row that finds the pod idle takes l(1).
One that comes after a share v of a batch waits for its rest, for full batches before it and for its
own batch. Its place among those who come meanwhile is taken as its mean.

Arrivals at one of n pods are taken as a random split of the whole stream. Any policy that looks at
queues does better, so replicas from here are on the safe side; bursts beyond Poisson are the
business of the windows and of the headroom.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchServer", "Latency", "latency", "pod_capacity"]

FloatArray = NDArray[np.float64]

MOST_ROWS = 64
"""Largest batch that is looked at: beyond it the time of a row hardly falls."""
MOST_LOAD = 0.96
"""Of the full batches' rate: above it the queue is long whatever the SLO is."""
STATES_BEYOND = 4
"""The chain is cut at so many full batches of waiting rows."""
SHARES = (np.arange(12) + 0.5) / 12
RARE = 1e-7
BISECTIONS = 12
REQUIRED_ACCURACY = 3
"""Digits of a service time that matter: measured ones jitter below, and equal ones are kept."""


@dataclass(frozen=True, slots=True)
class BatchServer:
    """One instance. Raises ValueError for times that no server has."""

    base_seconds: float
    row_seconds: float
    max_rows: int

    def __post_init__(self) -> None:
        times = (self.base_seconds, self.row_seconds)
        if not all(math.isfinite(t) and t >= 0 for t in times) or sum(times) <= 0:
            raise ValueError(
                f"base_seconds {self.base_seconds!r} and row_seconds {self.row_seconds!r} must be"
                " finite, not negative and not both 0; measure the service times again"
            )
        if self.max_rows < 1:
            raise ValueError(f"max_rows is {self.max_rows}; a batch has at least 1 row")

    def seconds(self, rows: float) -> float:
        return self.base_seconds + rows * self.row_seconds

    @property
    def rows_per_second(self) -> float:
        """With full batches only: no load above it is stable."""
        return self.max_rows / self.seconds(self.max_rows)


@dataclass(frozen=True, slots=True)
class Latency:
    """Of a row, from arrival to the end of its batch."""

    mean_seconds: float
    within: float
    """Share of rows within the limit that was asked for."""


def latency(server: BatchServer, rows_per_second: float, limit_seconds: float) -> Latency:
    """Mean latency, and the share within the limit, at this arrival rate (above 0).

    Raises ValueError where full batches do not keep up with the rate.
    """
    if not 0 < rows_per_second < server.rows_per_second:
        raise ValueError(
            f"rows_per_second is {rows_per_second:g}; a stable load is above 0 and below"
            f" {server.rows_per_second:g}"
        )
    rate, most = rows_per_second, server.max_rows
    states = np.arange(1, STATES_BEYOND * most + 9)
    batch = np.minimum(states, most)
    left = states - batch
    lasts = server.base_seconds + batch * server.row_seconds
    chance = _stationary(states, left, rate * lasts)
    empties = float(chance @ np.where(left == 0, np.exp(-rate * lasts), 0.0)) / rate
    busy = float(chance @ lasts)
    idle_share = empties / (empties + busy)

    kept = chance > RARE
    weight = chance[kept] * lasts[kept]
    weight *= (1.0 - idle_share) / weight.sum()
    times, weights = _waits(server, rate, left[kept], lasts[kept], weight)
    alone = server.seconds(1)
    mean = idle_share * alone + float(np.sum(weights * times))
    within = float(np.sum(weights[times <= limit_seconds]))
    return Latency(mean, within + (idle_share if alone <= limit_seconds else 0.0))


def _stationary(
    states: NDArray[np.int64], left: NDArray[np.int64], means: FloatArray
) -> FloatArray:
    """Shape (states,): how often a batch starts at each number of waiting rows."""
    size = len(states)
    table = np.zeros((size, size))
    for row, (kept, mean) in enumerate(zip(left.tolist(), means.tolist(), strict=True)):
        arrivals = _poisson(mean, size - kept + 1)
        table[row, max(kept - 1, 0) :] = arrivals[1:] if kept == 0 else arrivals
        if kept == 0:
            table[row, 0] += arrivals[0]
        table[row, -1] += max(0.0, 1.0 - arrivals.sum())
    system = table.T - np.eye(size)
    system[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    chance = np.maximum(np.linalg.solve(system, right), 0.0)
    return np.asarray(chance / chance.sum())


def _waits(
    server: BatchServer,
    rate: float,
    left: NDArray[np.int64],
    lasts: FloatArray,
    weight: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """(latencies, their chances) of rows that come while a batch runs, flat."""
    most = server.max_rows
    widest = int(rate * lasts.max() + 8 * math.sqrt(rate * lasts.max()) + 8)
    others = np.arange(widest + 1)
    chances = np.stack([_poisson(float(rate * last), widest + 1) for last in lasts])
    # Axes: state, others that come during the same batch, share of the batch that is over.
    waiting = left[:, None, None] + 1 + others[None, :, None]
    place = left[:, None, None] + 1 + others[None, :, None] * SHARES[None, None, :]
    ahead = np.ceil(place / most) - 1
    full = server.seconds(most)
    own = np.minimum(waiting - ahead * most + rate * full * ahead, most)
    rest = lasts[:, None, None] * (1.0 - SHARES[None, None, :])
    times = rest + ahead * full + server.base_seconds + own * server.row_seconds
    weights = weight[:, None, None] * chances[:, :, None] / len(SHARES)
    return times.ravel(), np.broadcast_to(weights, times.shape).ravel()


def _poisson(mean: float, count: int) -> FloatArray:
    """Chances of 0 to count - 1 arrivals, by logarithms so that large means do not underflow."""
    if mean <= 0:
        return np.asarray(np.eye(1, count)[0])
    numbers = np.arange(count)
    steps = np.concatenate([[0.0], np.log(mean) - np.log(numbers[1:])])
    return np.asarray(np.exp(np.cumsum(steps) - mean))


def pod_capacity(
    server: BatchServer,
    *,
    slo_seconds: float,
    percentile: float,
    rows_per_request: float = 1.0,
    instances: int = 1,
) -> float:
    """Rows a second that a pod takes while `percentile` of them stay within the SLO; 0: none.

    Requests of several rows come and go together: they count as one row that takes as long.
    Raises ValueError for an SLO or a percentile that means nothing.
    """
    if not (math.isfinite(slo_seconds) and slo_seconds > 0):
        raise ValueError(f"slo_seconds is {slo_seconds!r}; give a time above 0")
    if not 0 < percentile < 1:
        raise ValueError(f"percentile is {percentile!r}; give a share between 0 and 1")
    together = max(1.0, rows_per_request if math.isfinite(rows_per_request) else 1.0)
    together = min(round(together, 1), float(server.max_rows))
    requests = _request_capacity(
        _rounded(server.base_seconds),
        _rounded(server.row_seconds * together),
        max(1, int(server.max_rows / together)),
        slo_seconds,
        percentile,
    )
    return requests * together * max(1, instances)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{REQUIRED_ACCURACY}g}")


@lru_cache(maxsize=256)
def _request_capacity(
    base_seconds: float, row_seconds: float, max_rows: int, slo_seconds: float, percentile: float
) -> float:
    within_slo = max_rows
    if row_seconds > 0:
        # Of a larger batch not even the first row is in time: the router's caps keep them small.
        within_slo = math.floor((slo_seconds - base_seconds) / row_seconds + 1e-9)
    if within_slo < 1 or base_seconds + row_seconds > slo_seconds:
        return 0.0
    server = BatchServer(base_seconds, row_seconds, min(max_rows, within_slo, MOST_ROWS))
    low, high = 0.0, MOST_LOAD * server.rows_per_second
    if latency(server, high, slo_seconds).within >= percentile:
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if latency(server, middle, slo_seconds).within >= percentile:
            low = middle
        else:
            high = middle
    return low
