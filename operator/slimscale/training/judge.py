"""How much throughput a predicted curve's choice gives up: 1 - T(k_hat)/max T."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from slimscale.threads.features import log_odds
from slimscale.training.dataset import Dataset
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = [
    "Spread",
    "chosen_threads",
    "corrected_curves",
    "noise_floor",
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


def smooth_truth(labels: FloatArray) -> FloatArray:
    """Curves (R, MOST_THREADS) from measurements (R, G): the nearest that rise and then fall.

    Pooling what violates that order takes out most of the measurement's noise, which would
    otherwise make every maximum too high. Between the points even in log T over log k.
    """
    return np.vstack([_curve(np.log(row)) for row in labels])


def _curve(log_rates: FloatArray) -> FloatArray:
    best, fitted = np.inf, log_rates
    for mode in range(1, len(log_rates) + 1):
        rising = isotonic_regression(log_rates[:mode]).x
        falling = (
            isotonic_regression(log_rates[mode:], increasing=False).x
            if mode < len(log_rates)
            else np.empty(0)
        )
        candidate = np.concatenate((rising, falling))
        miss = float(((candidate - log_rates) ** 2).sum())
        if miss < best - 1e-12:
            best, fitted = miss, candidate
    return np.asarray(np.exp(np.interp(_LOG_THREADS, _LOG_GRID, fitted)))


def noise_floor(labels: FloatArray, *, tolerance: float, seed: int) -> FloatArray:
    """Losses of the true best choice where only the measurement's noise speaks against it, (R,).

    The smoothed measurement is taken for the truth, the residuals' spread is put on it again, and
    what that gives is smoothed anew.
    """
    truth = smooth_truth(labels)
    points = np.log(truth[:, GRID - 1])
    spread = (np.log(labels) - points).std(axis=1, keepdims=True)
    noise = np.random.default_rng(seed).normal(size=labels.shape)
    again = smooth_truth(np.exp(points + spread * noise))
    return throughput_loss(again, chosen_threads(truth, tolerance=tolerance))


def throughput_loss(truth: FloatArray, threads: IntArray) -> FloatArray:
    """1 - T(k_hat)/max T of each row; `truth` (R, MOST_THREADS), `threads` (R,)."""
    reached = truth[np.arange(len(truth)), threads - 1]
    return np.asarray(1.0 - reached / truth.max(axis=1))


def spread_of(losses: FloatArray) -> Spread:
    p50, p90, p95 = (float(x) for x in np.percentile(losses, (50, 90, 95)))
    return Spread(len(losses), float(losses.mean()), p50, p90, p95, float(losses.max()))
