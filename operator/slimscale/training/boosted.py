"""XGBoost on the same rows and features: the baselines that the paper names.

Two of them. `best_threads`: regression of log k*, as it is usually done. `curves`: regression of
log T(k)/Bd(k) on branch and trunk features together, so that trees, too, get all the physics.
"""

import numpy as np
from numpy.typing import NDArray
from xgboost import XGBRegressor

from slimscale.training.dataset import Dataset
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = ["boosted_best_threads", "boosted_curves"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOG_GRID = np.log(GRID.astype(np.float64))
TOLERANCE = 0.01
"""k* is the fewest threads within this share of the best label."""


def boosted_best_threads(train: Dataset, test: Dataset, *, seed: int) -> IntArray:
    """Thread counts for the rows of `test`, (R,), from a regression of log k*."""
    best = np.log([_best_threads(row) for row in train.labels.astype(np.float64)])
    model = _regressor(seed)
    model.fit(train.branch, best)
    counts = np.rint(np.exp(model.predict(test.branch).astype(np.float64)))
    return np.asarray(np.clip(counts, 1, MOST_THREADS), dtype=np.int64)


def boosted_curves(train: Dataset, test: Dataset, *, seed: int) -> FloatArray:
    """Curves (R, MOST_THREADS) for `test` from a regression of log T/Bd, a sample a label."""
    rows, points = np.nonzero(np.isfinite(train.labels))
    inputs = np.concatenate((train.branch[rows], train.trunk[rows, points]), axis=1)
    bound = train.bound[rows, GRID[points] - 1]
    model = _regressor(seed)
    model.fit(inputs, np.log(train.labels[rows, points] / bound))
    count = len(GRID)
    wide = np.repeat(test.branch, count, axis=0)
    flat = test.trunk.reshape(len(test) * count, -1)
    found = model.predict(np.concatenate((wide, flat), axis=1)).reshape(len(test), count)
    log_k = np.log(np.arange(1, MOST_THREADS + 1, dtype=np.float64))
    spread = np.vstack([np.interp(log_k, _LOG_GRID, row) for row in found.astype(np.float64)])
    return np.asarray(test.bound * np.exp(spread), dtype=np.float64)


def _best_threads(labels: FloatArray) -> int:
    known = np.flatnonzero(np.isfinite(labels))
    rates = labels[known]
    return int(GRID[known[int(np.argmax(rates >= (1.0 - TOLERANCE) * rates.max()))]])


def _regressor(seed: int) -> XGBRegressor:
    return XGBRegressor(
        n_estimators=400,
        max_depth=5,
        learning_rate=0.05,
        subsample=0.8,
        colsample_bytree=0.6,
        min_child_weight=2,
        n_jobs=2,
        random_state=seed,
        verbosity=0,
    )
