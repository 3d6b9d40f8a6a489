"""Arrival times: Poisson, bursts, and a trace made as dense as a simulated service can bear."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

__all__ = ["Arrivals", "bursts", "denser", "poisson"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in the order of their arrival."""

    name: str
    seconds: tuple[float, ...]
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.seconds) != len(self.rows):
            raise ValueError(
                f"{self.name}: {len(self.seconds)} arrivals but {len(self.rows)} row counts; give"
                " one for each"
            )

    @property
    def last(self) -> float:
        return self.seconds[-1] if self.seconds else 0.0


def denser(
    name: str, seconds: Sequence[float], *, copies: int, jitter_seconds: float, rng: Random
) -> Arrivals:
    """Each arrival of a trace `copies` times, each copy up to `jitter_seconds` later.

    Bursts and lulls longer than the jitter stay what they are, at `copies` times the rate.
    """
    if copies < 1:
        raise ValueError(f"copies is {copies}; give at least 1")
    spread = sorted(at + rng.uniform(0.0, jitter_seconds) for at in seconds for _ in range(copies))
    return Arrivals(name, tuple(spread), (1,) * len(spread))


def poisson(name: str, *, rows_per_second: float, duration_seconds: float, rng: Random) -> Arrivals:
    times: list[float] = []
    now = rng.expovariate(rows_per_second)
    while now < duration_seconds:
        times.append(now)
        now += rng.expovariate(rows_per_second)
    return Arrivals(name, tuple(times), (1,) * len(times))


def bursts(
    name: str,
    *,
    low: float,
    high: float,
    low_seconds: float,
    high_seconds: float,
    duration_seconds: float,
    rng: Random,
) -> Arrivals:
    """A Poisson process whose rate jumps between two levels (MMPP-2); rates in rows a second."""
    times: list[float] = []
    now, is_high = 0.0, False
    while now < duration_seconds:
        lasts = rng.expovariate(1.0 / (high_seconds if is_high else low_seconds))
        rate, ends = (high if is_high else low), min(now + lasts, duration_seconds)
        while rate > 0:
            now += rng.expovariate(rate)
            if now >= ends:
                break
            times.append(now)
        now, is_high = ends, not is_high
    return Arrivals(name, tuple(times), (1,) * len(times))
