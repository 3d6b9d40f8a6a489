"""When the requests of an open loop are due: Poisson, bursts, recorded traces. Pure; seeds are arguments."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["mmpp", "poisson", "read_trace", "squeezed"]

Seconds = NDArray[np.float64]
BURST_RATIO = 4.0
"""Rate of the busy state over that of the calm one."""
BURST_SHARE = 0.25
"""Of the time spent in the busy state."""


def poisson(rate: float, seconds: float, *, seed: int) -> Seconds:
    """Ascending arrival times in [0, seconds) at `rate` a second."""
    rng = np.random.default_rng(seed)
    return _poisson(rate, 0.0, seconds, rng)


def mmpp(rate: float, seconds: float, *, stay_seconds: float, seed: int) -> Seconds:
    """Markov-modulated Poisson process of two states with mean `rate` (Fischer and Meier-Hellstern 1993).

    The busy state has `BURST_RATIO` times the calm state's rate and lasts `stay_seconds` in the mean.
    """
    rng = np.random.default_rng(seed)
    calm = rate / (1.0 - BURST_SHARE + BURST_SHARE * BURST_RATIO)
    rates = (calm, calm * BURST_RATIO)
    stays = (stay_seconds * (1.0 - BURST_SHARE) / BURST_SHARE, stay_seconds)
    at, busy = 0.0, int(rng.random() < BURST_SHARE)
    pieces = []
    while at < seconds:
        until = min(seconds, at + rng.exponential(stays[busy]))
        pieces.append(_poisson(rates[busy], at, until, rng))
        at, busy = until, 1 - busy
    return np.concatenate(pieces)


def _poisson(rate: float, start: float, end: float, rng: np.random.Generator) -> Seconds:
    count = rng.poisson(rate * (end - start))
    return np.sort(rng.uniform(start, end, count))


def read_trace(path: Path) -> Seconds:
    """The column `t_ms` of a trace in data/traces as seconds from its first row.

    Raises OSError, or KeyError where the column is missing.
    """
    with path.open() as file:
        millis = [float(row["t_ms"]) for row in csv.DictReader(file)]
    times = np.sort(np.asarray(millis)) / 1000.0
    return np.asarray(times - times[0])


def squeezed(trace: Seconds, rate: float, seconds: float, *, seed: int) -> Seconds:
    """A stretch of the trace, its time scaled so that it brings `rate` a second in the mean.

    The order and the shape of the gaps stay. The stretch begins at a random place.

    Raises ValueError where the trace has fewer rows than the stretch asks for.
    """
    count = max(2, round(rate * seconds))
    if len(trace) <= count:
        raise ValueError(f"the trace has {len(trace)} rows, fewer than the {count} asked for")
    first = int(np.random.default_rng(seed).integers(0, len(trace) - count))
    part = trace[first : first + count + 1]
    return np.asarray((part[:-1] - part[0]) * (seconds / max(part[-1] - part[0], 1e-9)))
