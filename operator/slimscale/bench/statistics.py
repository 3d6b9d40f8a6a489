"""Means, intervals and tests for paired runs. All resampling is by clusters and with a given seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "geometric_mean", "holm", "ratio_interval", "sign_flip_p_value"]

FloatArray = NDArray[np.float64]

RESAMPLES, AT_ONCE = 2000, 250
EXACT_UP_TO = 12
"""Pairs of which all sign patterns are counted; beyond, that many random ones."""
RANDOM_PATTERNS = 20_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def geometric_mean(values: Sequence[float]) -> float:
    """Raises ValueError for an empty sequence."""
    if not len(values):
        raise ValueError("no values; give at least one")
    return math.exp(sum(math.log(value) for value in values) / len(values))


def ratio_interval(groups: Mapping[str, Sequence[float]], *, seed: int) -> Interval:
    """Geometric mean of ratios that come in groups (the seeds of a scenario), with its interval.

    Each group counts once, whatever its size. A resample draws groups, then ratios inside each:
    scenarios are as much a sample as the seeds are.
    """
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in groups.values() if values]
    if not logs:
        raise ValueError("no ratios; give at least one group with one")
    rng = np.random.default_rng(seed)
    centre = float(np.mean([group.mean() for group in logs]))
    means = np.concatenate([_resample(logs, rng, AT_ONCE) for _ in range(RESAMPLES // AT_ONCE)])
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(math.exp(centre), math.exp(float(low)), math.exp(float(high)))


def _resample(groups: list[FloatArray], rng: np.random.Generator, count: int) -> FloatArray:
    """Shape (count,): means of groups drawn with replacement, each from values drawn likewise."""
    sizes = np.asarray([len(group) for group in groups])
    widest = int(sizes.max())
    padded = np.zeros((len(groups), widest))
    for row, group in zip(padded, groups, strict=True):
        row[: len(group)] = group
    drawn = rng.integers(len(groups), size=(count, len(groups)))
    here = sizes[drawn][:, :, np.newaxis]
    value = (rng.random((count, len(groups), widest)) * here).astype(np.int64)
    used = np.arange(widest) < here
    sums = (padded[drawn[:, :, np.newaxis], value] * used).sum(axis=2)
    return np.asarray((sums / sizes[drawn]).mean(axis=1))


def sign_flip_p_value(differences: Sequence[float], *, seed: int) -> float:
    """Two-sided paired permutation test of a mean of 0: Fisher's sign flips.

    Under "no difference" each pair's sign is a coin toss. With ten pairs the least value is 1/512.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not len(values) or not np.any(values):
        return 1.0
    if len(values) <= EXACT_UP_TO:
        codes = np.arange(2 ** len(values))[:, np.newaxis]
        signs = 1.0 - 2.0 * ((codes >> np.arange(len(values))) & 1)
    else:
        rng = np.random.default_rng(seed)
        signs = rng.choice((-1.0, 1.0), size=(RANDOM_PATTERNS, len(values)))
        signs[0] = 1.0  # what was seen belongs to the reference set
    means = np.abs(signs @ values)
    return float(np.mean(means >= abs(values.sum()) * (1 - 1e-12)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction (1979): family-wise, for any dependence."""
    corrected: dict[str, float] = {}
    worst = 0.0
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for position, (name, value) in enumerate(ordered):
        worst = max(worst, min(1.0, (len(ordered) - position) * value))
        corrected[name] = worst
    return corrected
