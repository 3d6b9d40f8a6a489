"""Random numbers of a plane: SplitMix64 (Steele, Lea and Flood 2014), whose state is one number of it."""

import math
from typing import Any

import numpy as np

from slimscale.simulate.routing.compiled import inner

__all__ = ["normal", "uniform"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@inner
def uniform(s: Any) -> float:
    """A number between 0 and 1, both excluded."""
    s.rng += _STEP
    mixed = s.rng
    mixed = (mixed ^ (mixed >> _30)) * _MIX_A
    mixed = (mixed ^ (mixed >> _27)) * _MIX_B
    mixed = mixed ^ (mixed >> _31)
    return (np.float64(mixed >> _11) + 0.5) * _UNIT


@inner
def normal(s: Any) -> float:
    """Standard normal (Box and Muller 1958)."""
    return math.sqrt(-2.0 * math.log(uniform(s))) * math.cos(2.0 * math.pi * uniform(s))
