"""Distributions of times as rows of numbers, which the compiled loop draws from."""

import math

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.workload import Family, TimeDistribution

__all__ = ["ROW", "Kind", "distribution_row", "seed_state"]

FloatArray = NDArray[np.float64]

ROW = 4
"""Numbers that describe a distribution: kind, then three of its own."""


class Kind:
    """The first number of a row."""

    NONE = 0
    """Tasks have no such part."""
    CONSTANT = 1
    EXPONENTIAL = 2
    LOGNORMAL = 3
    TWO_VALUES = 4
    PARETO = 5


_PARETO_EXPONENT = 1.5  # infinite variance without truncation, so any variation can be reached
_LEAST_VARIATION = 1e-9  # below it a time is a constant


def seed_state(*entropy: int) -> int:
    """State of a generator. Seeds that differ in any way give unrelated streams."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def distribution_row(time: TimeDistribution) -> FloatArray:
    """What `draw` needs, shape (ROW,)."""
    mean, variation = time.mean_seconds, time.squared_variation
    row: tuple[float, ...] = (Kind.CONSTANT, mean, 0.0, 0.0)
    if mean == 0:
        row = (Kind.NONE, 0.0, 0.0, 0.0)
    elif time.family is Family.EXPONENTIAL:
        row = (Kind.EXPONENTIAL, mean, 0.0, 0.0)
    elif variation < _LEAST_VARIATION:
        pass
    elif time.family is Family.LOGNORMAL:
        spread = math.log1p(variation)
        row = (Kind.LOGNORMAL, math.log(mean) - spread / 2, math.sqrt(spread), 0.0)
    elif time.family is Family.BIMODAL:
        # m/2 mostly, m*(1 + 2c) with probability 1/(1 + 4c): mean m, squared variation c.
        row = (Kind.TWO_VALUES, mean / 2, mean * (1 + 2 * variation), 1 / (1 + 4 * variation))
    elif time.family is Family.PARETO:
        ratio = _pareto_ratio(variation)
        kept = 1.0 - ratio**-_PARETO_EXPONENT
        row = (Kind.PARETO, mean / _pareto_moments(ratio)[0], kept, -1.0 / _PARETO_EXPONENT)
    return np.array(row, dtype=np.float64)


def _pareto_moments(ratio: float) -> tuple[float, float]:
    """Mean and mean square of a Pareto from 1 to `ratio`."""
    a = _PARETO_EXPONENT
    scale = a / (1.0 - ratio**-a)
    return scale * (1.0 - ratio ** (1.0 - a)) / (a - 1.0), scale * (ratio ** (2.0 - a) - 1.0) / (
        2.0 - a
    )


def _pareto_ratio(variation: float) -> float:
    """Where to truncate so that the squared variation is met (bisection on the logarithm)."""
    low, high = 1e-6, math.log(1e12)
    for _ in range(80):
        middle = (low + high) / 2
        mean, square = _pareto_moments(math.exp(middle))
        if square / (mean * mean) - 1.0 < variation:
            low = middle
        else:
            high = middle
    return math.exp(high)
