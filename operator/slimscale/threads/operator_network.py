"""The operator network at run time: NumPy alone, float64, on top of the analytic model.

A DeepONet (Lu et al. 2021, Nature Machine Intelligence 3): a branch network reads the workload, a
trunk network reads where a thread count lies, their inner product is a correction g(a, k):

    T(k) = Bd(k) * sigmoid(logit(T_analytic(k)/Bd(k)) + g(a, k))

So the bound Bd holds whatever the weights say, and g = 0 is exactly the analytic model. The trunk
is evaluated at the few counts of `GRID_THREADS`; between them g is taken to be even in log k.

The analytic model answers where the network was not trained for the case, where it returns what is
no number, or where its file cannot be read; `Surface.note` says which.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from slimscale.threads.estimate import Estimate
from slimscale.threads.features import (
    BRANCH_FEATURES,
    TRUNK_FEATURES,
    Setting,
    branch_features,
    trunk_features,
)
from slimscale.threads.predictor import AnalyticPredictor, AnalyticView, Surface

__all__ = [
    "FORMAT",
    "GRID_THREADS",
    "OperatorPredictor",
    "OperatorWeights",
    "load_operator",
    "not_trained_for",
]

FloatArray = NDArray[np.float64]

GRID_THREADS = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50),
    *(60, 72, 86, 103, 124, 149, 178, 214, 256),
)
LARGEST_CORRECTION = 12.0
"""Of g; beyond it a sigmoid has nothing more to say."""
FORMAT = "slimscale-operator-network-1"


@dataclass(frozen=True, slots=True)
class OperatorWeights:
    """Layers as (weight (out, in), bias (out,)); `read` checks that they fit each other."""

    version: str
    branch: tuple[tuple[FloatArray, FloatArray], ...]
    trunk: tuple[tuple[FloatArray, FloatArray], ...]
    bias: float
    branch_mean: FloatArray
    branch_scale: FloatArray
    trunk_mean: FloatArray
    trunk_scale: FloatArray
    range_low: FloatArray
    """(F,) least of each branch feature that the training data had; outside, analytic."""
    range_high: FloatArray

    @staticmethod
    def read(data: bytes, card: Mapping[str, object]) -> "OperatorWeights":
        """From a safetensors file's bytes and its JSON card.

        Raises ValueError where the file is damaged, of another format or another set of features.
        """
        if card.get("format") != FORMAT:
            raise ValueError(f"the card says format {card.get('format')!r}, not {FORMAT!r}")
        for key, expected in (
            ("branch_features", BRANCH_FEATURES),
            ("trunk_features", TRUNK_FEATURES),
        ):
            if tuple(_strings(card.get(key))) != expected:
                raise ValueError(f"the card's {key} are not those of this version; train again")
        try:
            arrays = {k: np.asarray(v, dtype=np.float64) for k, v in load(data).items()}
            weights = OperatorWeights(
                version=str(card.get("version", "unknown"))[:64],
                branch=_layers(arrays, "branch"),
                trunk=_layers(arrays, "trunk"),
                bias=float(arrays["bias"].reshape(())),
                **{name: arrays[name] for name in _VECTORS},
            )
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the weights cannot be read: {error}") from error
        weights.check()
        return weights

    def check(self) -> None:
        """Raises ValueError where layers do not fit each other or numbers are not finite."""
        for name, layers, inputs in (
            ("branch", self.branch, len(BRANCH_FEATURES)),
            ("trunk", self.trunk, len(TRUNK_FEATURES)),
        ):
            width = inputs
            for weight, bias in layers:
                if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
                    raise ValueError(f"a {name} layer of {weight.shape} does not take {width}")
                if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                    raise ValueError(f"a {name} layer has numbers that are not finite")
                width = len(bias)
        if self.branch[-1][0].shape[0] != self.trunk[-1][0].shape[0]:
            raise ValueError("branch and trunk end in unlike widths")
        for name in _VECTORS:
            vector = getattr(self, name)
            names = BRANCH_FEATURES if name.startswith(("branch", "range")) else TRUNK_FEATURES
            if vector.shape != (len(names),) or not np.isfinite(vector).all():
                raise ValueError(f"{name} has shape {vector.shape} or is not finite")

    def correction(self, branch: FloatArray, trunk: FloatArray) -> FloatArray:
        """g, shape (M, P), from features of shape (M, F) and (M, P, T)."""
        rows, points, width = trunk.shape
        coefficients = _forward((branch - self.branch_mean) / self.branch_scale, self.branch)
        basis = _forward(
            (trunk.reshape(rows * points, width) - self.trunk_mean) / self.trunk_scale, self.trunk
        ).reshape(rows, points, -1)
        product = np.einsum("mpw,mw->mp", basis, coefficients) / math.sqrt(basis.shape[2])
        corrections = np.clip(product + self.bias, -LARGEST_CORRECTION, LARGEST_CORRECTION)
        return np.asarray(corrections, dtype=np.float64)


_VECTORS = (
    "branch_mean", "branch_scale", "trunk_mean", "trunk_scale", "range_low", "range_high",
)  # fmt: skip


class OperatorPredictor:
    """Implements `ThreadPredictor`: the corrected surface, or the analytic one with its reason."""

    def __init__(self, weights: OperatorWeights | None, *, problem: str = "") -> None:
        self.weights = weights
        self.problem = problem or ("" if weights is not None else "there are no weights")
        self._analytic = AnalyticPredictor()

    @property
    def name(self) -> str:
        if self.weights is None:
            return self._analytic.name
        return f"operator-network {self.weights.version}"

    def surface(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> Surface:
        view = self._analytic.view(estimate, cpu_cores=cpu_cores, max_threads=max_threads)
        if self.weights is None:
            return _analytic(view, self.problem)
        problem = not_trained_for(estimate)
        if problem or estimate.window is None:
            return _analytic(view, problem)
        setting = Setting.of(estimate, estimate.window, view)
        branch = branch_features(setting)
        problem = self._outside(branch)
        if problem:
            return _analytic(view, problem)
        rates = self._corrected(setting, branch)
        if not np.isfinite(rates).all() or (rates <= 0).any():
            return _analytic(view, "the network's throughputs are no positive numbers")
        return replace(view.surface, tasks_per_second=rates)

    def _corrected(self, setting: Setting, branch: FloatArray) -> FloatArray:
        assert self.weights is not None  # noqa: S101 - for the type checker
        grid, spread = _interpolation(setting.odds.shape[1])
        trunk = trunk_features(setting, grid)
        correction = self.weights.correction(branch, trunk) @ spread
        return np.asarray(setting.bound / (1.0 + np.exp(-setting.odds - correction)))

    def _outside(self, branch: FloatArray) -> str:
        """The first feature outside the training range; empty when all are inside."""
        assert self.weights is not None  # noqa: S101 - for the type checker
        low, high = self.weights.range_low, self.weights.range_high
        outside = ~((branch >= low) & (branch <= high))  # NaN is outside
        if not outside.any():
            return ""
        row, column = (int(i) for i in np.argwhere(outside)[0])
        return (
            f"{BRANCH_FEATURES[column]} is {branch[row, column]:.3g}, outside the training range"
            f" {low[column]:.3g} to {high[column]:.3g}"
        )


def load_operator(data: bytes | None, card: Mapping[str, object] | None) -> OperatorPredictor:
    """Never raises: with a missing or damaged file the predictor answers with the analytic model."""
    if data is None or card is None:
        return OperatorPredictor(None, problem="no weights are installed")
    try:
        return OperatorPredictor(OperatorWeights.read(data, card))
    except ValueError as error:
        return OperatorPredictor(None, problem=str(error)[:200])


def not_trained_for(estimate: Estimate) -> str:
    """Why the network has nothing to say of such an estimate; empty when it has."""
    if estimate.window is None:
        return "the estimate was not made from a window"
    if estimate.serial_seconds is not None:
        return "a bottleneck outside the model was found"
    if estimate.alone_per_second is not None:
        return "one thread runs its tasks itself"
    if not estimate.window.task_shape_seconds or not estimate.window.dispatch_shape_seconds:
        return "the pods serve no histogram of task or dispatch times"
    if estimate.window.task_runqueue_seconds is None:
        return "the pods serve no run-queue time"
    return ""


def _analytic(view: AnalyticView, problem: str) -> Surface:
    return replace(view.surface, note=f"analytic model: {problem}")


@lru_cache(maxsize=64)
def _interpolation(max_threads: int) -> tuple[NDArray[np.int64], FloatArray]:
    """The grid up to `max_threads`, and the matrix (P, K) that spreads values on it over 1..K."""
    grid = np.asarray([k for k in GRID_THREADS if k <= max_threads], dtype=np.int64)
    log_k = np.log(np.arange(1, max_threads + 1, dtype=np.float64))
    unit = np.eye(len(grid))
    spread = np.vstack([np.interp(log_k, np.log(grid), row) for row in unit])
    grid.setflags(write=False)
    spread.setflags(write=False)
    return grid, spread


def _forward(values: FloatArray, layers: tuple[tuple[FloatArray, FloatArray], ...]) -> FloatArray:
    for index, (weight, bias) in enumerate(layers):
        values = values @ weight.T + bias
        if index + 1 < len(layers):
            values = values * (0.5 + 0.5 * np.tanh(0.5 * values))  # SiLU
    return values


def _layers(
    arrays: Mapping[str, FloatArray], name: str
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    count = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in arrays)
    if not count:
        raise ValueError(f"the weights have no {name} network")
    return tuple((arrays[f"{name}.{i}.weight"], arrays[f"{name}.{i}.bias"]) for i in range(count))


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
