"""XGBoost on the same rows and features: the baselines that the paper names.

Two of them. `best_threads`: regression of log k*, as it is usually done. `curves`: regression of
log T(k)/Bd(k) on branch and trunk features together, so that trees, too, get all the physics.
"""

import numpy as np
import xgboost
from numpy.typing import NDArray

from slimscale.training.dataset import Dataset
from slimscale.training.judge import smooth_log
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = ["boosted_best_threads", "boosted_curves"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOG_GRID = np.log(GRID.astype(np.float64))
ROUNDS = 400
TOLERANCE = 0.01
"""k* is the fewest threads within this share of the best of the smoothed labels."""


def boosted_best_threads(train: Dataset, test: Dataset, *, seed: int) -> IntArray:
    """Thread counts for the rows of `test`, (R,), from a regression of log k*."""
    best = np.log([_best_threads(row) for row in smooth_log(train.labels.astype(np.float64))])
    counts = np.rint(np.exp(_regress(train.branch, best, test.branch, seed=seed)))
    return np.asarray(np.clip(counts, 1, MOST_THREADS), dtype=np.int64)


def boosted_curves(train: Dataset, test: Dataset, *, seed: int) -> FloatArray:
    """Curves (R, MOST_THREADS) for `test` from a regression of log T/Bd, a sample a label."""
    rows, points = np.nonzero(np.isfinite(train.labels))
    inputs = np.concatenate((train.branch[rows], train.trunk[rows, points]), axis=1)
    bound = train.bound[rows, GRID[points] - 1]
    count = len(GRID)
    wide = np.repeat(test.branch, count, axis=0)
    flat = test.trunk.reshape(len(test) * count, -1)
    asked = np.concatenate((wide, flat), axis=1)
    found = _regress(inputs, np.log(train.labels[rows, points] / bound), asked, seed=seed)
    found = found.reshape(len(test), count)
    log_k = np.log(np.arange(1, MOST_THREADS + 1, dtype=np.float64))
    spread = np.vstack([np.interp(log_k, _LOG_GRID, row) for row in found])
    return np.asarray(test.bound * np.exp(spread), dtype=np.float64)


def _best_threads(log_rates: FloatArray) -> int:
    return int(GRID[int(np.argmax(log_rates >= np.nanmax(log_rates) + np.log(1.0 - TOLERANCE)))])


def _regress(
    inputs: NDArray[np.floating], targets: FloatArray, asked: NDArray[np.floating], *, seed: int
) -> FloatArray:
    """Targets predicted for the rows of `asked`."""
    settings = {
        "objective": "reg:squarederror",
        "max_depth": 5,
        "learning_rate": 0.05,
        "subsample": 0.8,
        "colsample_bytree": 0.6,
        "min_child_weight": 2,
        "nthread": 2,
        "seed": seed,
        "verbosity": 0,
    }
    model = xgboost.train(settings, xgboost.DMatrix(inputs, targets), num_boost_round=ROUNDS)
    return np.asarray(model.predict(xgboost.DMatrix(asked)), dtype=np.float64)
