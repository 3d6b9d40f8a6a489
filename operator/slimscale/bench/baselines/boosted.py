"""Gradient-boosted trees that know the best thread count of other loads: XGBoost, asked once.

Its features are those of the operator network's branch, from the same window; its labels are the
fewest threads within 3 % of a simulated curve's best; its training loads are drawn as the
benchmark's are, from another seed. So it competes where it was trained, which is to its advantage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.baselines.analytic import estimate_of_view, fewest_within
from slimscale.bench.baselines.formula import WINDOW_SECONDS, FirstWindow
from slimscale.bench.curves import curve_of
from slimscale.bench.loads import KINDS, Shape, draw_parts
from slimscale.bench.policy import MAX_THREADS, PolicyView, cores_in_reach, view_between
from slimscale.bench.scenarios import FAMILIES, RATE_PER_SECOND, draw_quota
from slimscale.exceptions import SlimError
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from slimscale.threads.features import BRANCH_FEATURES, Setting, branch_features
from slimscale.threads.predictor import AnalyticPredictor, floor_of_quota

if TYPE_CHECKING:
    from xgboost import Booster

__all__ = ["BoostedTrees", "LabelledLoad", "draw_labelled_load", "features_of", "train_trees"]

FloatArray = NDArray[np.float64]

TOLERANCE = 0.03
ROUNDS = 400
PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.05,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 2,
    "nthread": 1,
    "verbosity": 0,
}


@dataclass(frozen=True, slots=True)
class LabelledLoad:
    """Windows of one load under two thread counts, and its best count."""

    features: tuple[tuple[float, ...], ...]
    log_threads: float


def features_of(view: PolicyView) -> FloatArray | None:
    """Shape (F,): the branch features of the window; None where nothing can be estimated."""
    estimate = estimate_of_view(view)
    if estimate is None or estimate.window is None:
        return None
    analytic = AnalyticPredictor().view(
        estimate, cpu_cores=(view.cores_in_reach,), max_threads=MAX_THREADS
    )
    return np.asarray(branch_features(Setting.of(estimate, estimate.window, analytic))[0])


def draw_labelled_load(suite_seed: int, index: int) -> LabelledLoad | None:
    """Number `index` of the training set; None where its windows held too little to learn from."""
    rng = np.random.default_rng([suite_seed, 4, index])
    cores = round(math.exp(rng.uniform(math.log(2), math.log(64))))
    host = Host(cores, draw_quota(cores, rng) if rng.random() < 0.5 else None)
    reach = cores_in_reach(cores, host.quota_cores)
    parts = draw_parts(str(rng.choice(list(KINDS))), rate=RATE_PER_SECOND, cores=reach, rng=rng)
    workload = parts.workload(Shape.of(FAMILIES[int(rng.integers(len(FAMILIES)))]))
    rows = []
    for threads in (floor_of_quota(reach), round(math.exp(rng.uniform(0.0, math.log(128))))):
        plant = Plant(workload, host, threads=threads, seed=index)
        earlier = plant.sample()
        plant.advance(WINDOW_SECONDS)
        found = features_of(view_between(earlier, plant.sample(), host))
        if found is not None:
            rows.append(tuple(float(x) for x in found))
    if not rows:
        return None
    grid, rates = curve_of(workload, host, seed=index, tasks=1500)
    best = grid[fewest_within([float(r) for r in rates], TOLERANCE) - 1]
    return LabelledLoad(tuple(rows), math.log(best))


def train_trees(loads: Sequence[LabelledLoad], *, seed: int) -> str:
    """The trained trees as XGBoost's own JSON. Raises SlimError where XGBoost is not installed."""
    xgboost = _xgboost()
    rows = np.asarray([row for load in loads for row in load.features])
    labels = np.asarray([load.log_threads for load in loads for _ in load.features])
    if not len(rows):
        raise ValueError("no load to train on; draw some that finish tasks")
    data = xgboost.DMatrix(rows, label=labels, feature_names=list(BRANCH_FEATURES))
    booster = xgboost.train({**PARAMETERS, "seed": seed}, data, num_boost_round=ROUNDS)
    return bytes(booster.save_raw("json")).decode()


@dataclass(slots=True)
class BoostedTrees(FirstWindow):
    """The trees' count from the first window, or from each."""

    name: str = "xgboost-once"
    trees: str = ""
    """What `train_trees` returned."""
    _booster: "Booster | None" = field(default=None, repr=False)

    def of_view(self, view: PolicyView) -> float | None:
        found = features_of(view)
        if found is None:
            return None
        xgboost = _xgboost()
        if self._booster is None:
            self._booster = xgboost.Booster({"nthread": 1})
            self._booster.load_model(bytearray(self.trees.encode()))
        data = xgboost.DMatrix(found[np.newaxis, :], feature_names=list(BRANCH_FEATURES))
        return math.exp(float(self._booster.predict(data)[0]))


def _xgboost() -> Any:
    try:
        import xgboost
    except ModuleNotFoundError as error:
        raise SlimError("xgboost is missing; from a checkout: pip install '.[train]'") from error
    return xgboost
