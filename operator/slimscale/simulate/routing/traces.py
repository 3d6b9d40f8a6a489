"""Arrivals: Poisson, on/off bursts, the gaps of a recorded trace. Pure; seeds are arguments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.routing.scene import Scene

__all__ = ["BURST_HIGH", "BURST_LOW", "Trace", "bursts", "draw_trace", "poisson", "recorded"]

FloatArray = NDArray[np.float64]

BURST_HIGH, BURST_LOW = 7.0 / 3.0, 3.0 / 7.0
"""Times the mean rate, while a burst lasts and between two: 1 s at 7/3 and 2.33 s at 3/7 mean 1."""
HIGH_SECONDS, LOW_SECONDS = 1.0, 7.0 / 3.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival."""

    arrival: FloatArray
    """Ascending seconds."""
    klass: NDArray[np.int64]
    """An index of the scene's classes."""
    rate: float
    """Mean rows a second."""
    seconds: float
    seed: int


def poisson(rate: float, seconds: float, rng: np.random.Generator) -> FloatArray:
    """Ascending times in [0, seconds) at `rate` a second."""
    return np.sort(rng.uniform(0.0, seconds, rng.poisson(rate * seconds)))


def bursts(rate: float, seconds: float, rng: np.random.Generator) -> FloatArray:
    """A Poisson process of mean `rate` that switches between two rates after exponential times."""
    pieces = []
    at = 0.0
    high = bool(rng.random() < HIGH_SECONDS / (HIGH_SECONDS + LOW_SECONDS))
    while at < seconds:
        stays = rng.exponential(HIGH_SECONDS if high else LOW_SECONDS)
        until = min(at + stays, seconds)
        pieces.append(at + poisson(rate * (BURST_HIGH if high else BURST_LOW), until - at, rng))
        at, high = until, not high
    return np.concatenate(pieces)


def recorded(gaps: FloatArray, rate: float, seconds: float, rng: np.random.Generator) -> FloatArray:
    """A stretch of recorded gaps (seconds, any unit), scaled to a mean of `rate` a second.

    Begins at a random place and goes round; ties of the recording's clock are spread within it.
    """
    count = max(2, int(rate * seconds))
    place = int(rng.integers(len(gaps)))
    taken = gaps[(place + np.arange(count)) % len(gaps)]
    times = np.cumsum(taken)
    return np.asarray(times * (seconds / times[-1]) * (1.0 - 1e-9))


def draw_trace(
    scene: Scene,
    rate: float,
    seconds: float,
    *,
    seed: int,
    gaps: FloatArray | None = None,
) -> Trace:
    """Arrivals of the scene's regime at a mean of `rate` rows a second; classes by their shares.

    `gaps`: of a recorded trace, for the regimes with `trace`. Raises ValueError where they are missing.
    """
    rng = np.random.default_rng((seed, 0))
    if scene.regime.trace:
        if gaps is None:
            raise ValueError(f"regime {scene.regime.name} needs recorded gaps; give `gaps`")
        arrival = recorded(gaps, rate, seconds, rng)
    elif scene.regime.burst:
        arrival = bursts(rate, seconds, rng)
    else:
        arrival = poisson(rate, seconds, rng)
    shares = np.cumsum([one.share for one in scene.classes])
    klass = np.searchsorted(shares / shares[-1], rng.random(len(arrival)), side="right")
    return Trace(arrival, np.minimum(klass, len(shares) - 1), rate, seconds, seed)
