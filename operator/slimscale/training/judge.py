"""How much throughput a predicted curve's choice gives up: 1 - T(k_hat)/max T.

The greatest of many measured rates is too high by their noise, so a loss against it is too large
for everybody; with a plateau of ten counts measured within 1 % it shows a loss where there is none.
The test splits are therefore measured twice. `Truth.losses` finds the best count in one measurement
and compares in the other, both ways round: the noise has no part in the mean. What it misses is
what the best count of one measurement gives up itself, so `Truth.at_most` gives the loss against
the greatest rate of the same measurement: the true one lies between.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slimscale.threads.features import log_odds
from slimscale.threads.operator_network import OperatorWeights
from slimscale.training.dataset import Dataset
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = [
    "Spread",
    "Truth",
    "chosen_threads",
    "corrected_curves",
    "operator_curves",
    "smooth_log",
    "smooth_truth",
    "spread_of",
    "throughput_loss",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOG_THREADS = np.log(np.arange(1, MOST_THREADS + 1, dtype=np.float64))
_LOG_GRID = np.log(GRID.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Spread:
    """Of losses over rows: shares of throughput, 0.01 is one per cent."""

    rows: int
    mean: float
    median: float
    p90: float
    p95: float
    worst: float


@dataclass(frozen=True, slots=True)
class Truth:
    """Two independent measurements of R curves, each smoothed: (R, MOST_THREADS) tasks a second."""

    one: FloatArray
    other: FloatArray

    @staticmethod
    def of(data: Dataset) -> "Truth":
        return Truth(
            smooth_truth(data.labels.astype(np.float64)),
            smooth_truth(data.again.astype(np.float64)),
        )

    def take(self, rows: NDArray[np.bool_]) -> "Truth":
        return Truth(self.one[rows], self.other[rows])

    def losses(self, threads: IntArray) -> FloatArray:
        """1 - T(k_hat)/T(k*), k* by the other measurement, mean of both ways; may be below 0. (R,)."""
        return (
            _against(self.one, self.other, threads) + _against(self.other, self.one, threads)
        ) / 2

    def at_most(self, threads: IntArray) -> FloatArray:
        """1 - T(k_hat)/max T in the mean of both measurements, (R,)."""
        return throughput_loss(np.sqrt(self.one * self.other), threads)


def _against(measured: FloatArray, finds_best: FloatArray, threads: IntArray) -> FloatArray:
    rows = np.arange(len(measured))
    best = measured[rows, np.argmax(finds_best, axis=1)]
    return np.asarray(1.0 - measured[rows, threads - 1] / best)


def chosen_threads(curves: FloatArray, *, tolerance: float) -> IntArray:
    """Fewest threads within `tolerance` of each curve's maximum, as `objective.choose`. (R,)."""
    goal = curves.max(axis=1, keepdims=True) * (1.0 - tolerance)
    return np.asarray(np.argmax(curves >= goal * (1.0 - 1e-9), axis=1) + 1, dtype=np.int64)


def corrected_curves(data: Dataset, correction: FloatArray, *, bounded: bool = True) -> FloatArray:
    """Curves (R, MOST_THREADS) from g (R, G) at GRID; not `bounded`: g itself is log T."""
    spread = np.vstack([np.interp(_LOG_THREADS, _LOG_GRID, row) for row in correction])
    if not bounded:
        return np.asarray(np.exp(spread))
    bound = data.bound.astype(np.float64)
    odds = log_odds(data.analytic.astype(np.float64), bound)
    return np.asarray(bound / (1.0 + np.exp(-odds - spread)))


def operator_curves(weights: OperatorWeights, data: Dataset) -> FloatArray:
    """Curves (R, MOST_THREADS) as the operator draws them: analytic outside the training range."""
    branch = data.branch.astype(np.float64)
    inside = np.all((branch >= weights.range_low) & (branch <= weights.range_high), axis=1)
    corrected = corrected_curves(data, weights.correction(branch, data.trunk.astype(np.float64)))
    corrected[~inside] = data.analytic[~inside]
    return corrected


def smooth_truth(labels: FloatArray) -> FloatArray:
    """Curves (R, MOST_THREADS) from measurements (R, G): the nearest that rise and then fall.

    Pooling what violates that order takes out most of the measurement's noise. Between the points
    even in log T over log k.
    """
    return np.vstack(
        [np.exp(np.interp(_LOG_THREADS, _LOG_GRID, row)) for row in smooth_log(labels)]
    )


def smooth_log(labels: FloatArray) -> FloatArray:
    """The same as log T at GRID, (R, G). Of NaN, not measured, only those outside of all measured
    counts stay NaN.
    """
    found = np.empty(labels.shape)
    for row, rates in enumerate(labels):
        known = np.flatnonzero(np.isfinite(rates) & (rates > 0))
        smooth = _rise_and_fall(np.log(rates[known]))
        found[row] = np.interp(_LOG_GRID, _LOG_GRID[known], smooth, left=np.nan, right=np.nan)
    return found


@njit(cache=True)
def _rise_and_fall(values: FloatArray) -> FloatArray:  # pragma: no cover - compiled
    """The nearest sequence that rises up to some place and falls from there on."""
    best, fitted = np.inf, values
    for mode in range(1, len(values) + 1):
        candidate = np.concatenate((_rising(values[:mode]), _rising(values[mode:][::-1])[::-1]))
        miss = ((candidate - values) ** 2).sum()
        if miss < best - 1e-12:
            best, fitted = miss, candidate
    return fitted


@njit(cache=True)
def _rising(values: FloatArray) -> FloatArray:  # pragma: no cover - compiled
    """Pools neighbours that fall into their mean (Barlow, Bartholomew, Bremner and Brunk 1972)."""
    means, sizes = np.empty(len(values)), np.empty(len(values), np.int64)
    count = 0
    for value in values:
        means[count], sizes[count] = value, 1
        count += 1
        while count > 1 and means[count - 2] > means[count - 1]:
            size = sizes[count - 2] + sizes[count - 1]
            whole = means[count - 2] * sizes[count - 2] + means[count - 1] * sizes[count - 1]
            means[count - 2], sizes[count - 2] = whole / size, size
            count -= 1
    found = np.empty(len(values))
    start = 0
    for pool in range(count):
        found[start : start + sizes[pool]] = means[pool]
        start += sizes[pool]
    return found


def throughput_loss(truth: FloatArray, threads: IntArray) -> FloatArray:
    """1 - T(k_hat)/max T of each row; `truth` (R, MOST_THREADS), `threads` (R,)."""
    reached = truth[np.arange(len(truth)), threads - 1]
    return np.asarray(1.0 - reached / truth.max(axis=1))


def spread_of(losses: FloatArray) -> Spread:
    p50, p90, p95 = (float(x) for x in np.percentile(losses, (50, 90, 95)))
    return Spread(len(losses), float(losses.mean()), p50, p90, p95, float(losses.max()))
