"""Loads that change: a host, and workloads with the second at which each begins.

A slow change is a sequence of small steps. Everything random comes from the seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from slimscale.simulate.workload import Family, Host, TimeDistribution, Workload

__all__ = [
    "LoadScenario",
    "between",
    "bursts",
    "drift",
    "mixture",
    "mixtures",
    "ramps",
    "scaled",
    "steps",
]

_JITTER = 0.25
"""Share of its length by which a phase may begin earlier or later."""


@dataclass(frozen=True, slots=True)
class LoadScenario:
    """What happens to one pod.

    Raises
    ------
    ValueError
        No phase, a first phase that does not begin at 0, phases out of order, or one that begins
        after the end.
    """

    name: str
    host: Host
    phases: tuple[tuple[float, Workload], ...]
    """(second at which it begins, workload), ascending, the first at 0."""
    duration_seconds: float

    def __post_init__(self) -> None:
        begins = [seconds for seconds, _ in self.phases]
        if not begins or begins[0] != 0.0:
            raise ValueError(f"{self.name}: the first phase must begin at 0")
        if any(later <= earlier for earlier, later in pairwise([*begins, self.duration_seconds])):
            raise ValueError(f"{self.name}: phases must begin one after the other, before the end")

    def workload_at(self, seconds: float) -> Workload:
        """The load in force at that second; before 0 the first one."""
        current = self.phases[0][1]
        for begins, workload in self.phases:
            if begins > seconds:
                break
            current = workload
        return current


def scaled(workload: Workload, *, task: float = 1.0, dispatch: float = 1.0) -> Workload:
    """The same load with its tasks (CPU and blocking) and its dispatch longer by these factors."""
    return replace(
        workload,
        cpu=_longer(workload.cpu, task),
        blocking=_longer(workload.blocking, task),
        dispatch=_longer(workload.dispatch, dispatch),
    )


def between(first: Workload, last: Workload, share: float) -> Workload:
    """Means on the way from `first` (share 0) to `last` (share 1), geometric; contention linear.

    What cannot be in between (families, waiting, outstanding) is of the nearer one.
    """
    near = first if share < 0.5 else last

    def on_the_way(a: float, b: float) -> float:
        return a + share * (b - a)

    def time(a: TimeDistribution, b: TimeDistribution) -> TimeDistribution:
        nearer = a if share < 0.5 else b
        if a.mean_seconds <= 0 or b.mean_seconds <= 0:
            mean = on_the_way(a.mean_seconds, b.mean_seconds)
        else:
            mean = math.exp(on_the_way(math.log(a.mean_seconds), math.log(b.mean_seconds)))
        variation = on_the_way(a.squared_variation, b.squared_variation)
        return TimeDistribution(nearer.family, mean, variation)

    return replace(
        near,
        cpu=time(first.cpu, last.cpu),
        blocking=time(first.blocking, last.blocking),
        dispatch=time(first.dispatch, last.dispatch),
        contention_linear=on_the_way(first.contention_linear, last.contention_linear),
        contention_quadratic=on_the_way(first.contention_quadratic, last.contention_quadratic),
        contention_handover=on_the_way(first.contention_handover, last.contention_handover),
    )


def mixture(short: Workload, long: Workload, share: float) -> Workload:
    """Tasks of two sizes, a `share` of them long: as `short`, with the mixture's mean and CV²."""

    def time(a: TimeDistribution, b: TimeDistribution) -> TimeDistribution:
        mean = (1 - share) * a.mean_seconds + share * b.mean_seconds
        square = (1 - share) * _mean_square(a) + share * _mean_square(b)
        variation = max(0.0, square / (mean * mean) - 1.0) if mean > 0 else 0.0
        return TimeDistribution(Family.BIMODAL, mean, variation)

    return replace(
        short, cpu=time(short.cpu, long.cpu), blocking=time(short.blocking, long.blocking)
    )


def steps(
    host: Host, workloads: Sequence[Workload], *, seed: int, duration_seconds: float = 600.0
) -> LoadScenario:
    """Sudden changes from one to the next, about evenly in time."""
    begins = _uneven(len(workloads), duration_seconds, np.random.default_rng(seed))
    phases = tuple(zip(begins, workloads, strict=True))
    return LoadScenario("steps", host, phases, duration_seconds)


def ramps(
    host: Host,
    workloads: Sequence[Workload],
    *,
    seed: int,
    duration_seconds: float = 600.0,
    steps_each: int = 10,
) -> LoadScenario:
    """Each load holds for a while, then slides to the next in `steps_each` small steps."""
    rng = np.random.default_rng(seed)
    begins = _uneven(2 * len(workloads) - 1, duration_seconds, rng)
    phases: list[tuple[float, Workload]] = [(0.0, workloads[0])]
    for index, (before, after) in enumerate(pairwise(workloads)):
        start, end = begins[2 * index + 1], begins[2 * index + 2]
        for step in range(steps_each):
            at = start + (end - start) * step / steps_each
            phases.append((at, between(before, after, (step + 1) / steps_each)))
    return LoadScenario("ramps", host, tuple(phases), duration_seconds)


def bursts(
    host: Host,
    base: Workload,
    burst: Workload,
    *,
    seed: int,
    duration_seconds: float = 600.0,
    count: int = 4,
) -> LoadScenario:
    """A base load into which another one bursts `count` times, for a quarter to half of the time."""
    rng = np.random.default_rng(seed)
    each = duration_seconds / count
    phases: list[tuple[float, Workload]] = [(0.0, base)]
    for index in range(count):
        length = each * rng.uniform(0.25, 0.5)
        begins = each * index + each * rng.uniform(0.15, 0.45)
        phases += [(float(begins), burst), (float(begins + length), base)]
    return LoadScenario("bursts", host, tuple(phases), duration_seconds)


def drift(
    host: Host,
    base: Workload,
    *,
    seed: int,
    duration_seconds: float = 600.0,
    count: int = 20,
    spread: float = 1.0,
) -> LoadScenario:
    """Task times wander, dispatch stays: the ratio r drifts.

    The logarithm of the task times is a random walk that is drawn back to `base`; `spread` is its
    standard deviation in the long run.
    """
    rng = np.random.default_rng(seed)
    kept = 0.8  # of the last step's distance; the noise below then gives `spread`
    away = 0.0
    phases = []
    for index in range(count):
        phases.append((index * duration_seconds / count, scaled(base, task=math.exp(away))))
        away = kept * away + float(rng.normal(0.0, spread * math.sqrt(1 - kept * kept)))
    return LoadScenario("drift", host, tuple(phases), duration_seconds)


def mixtures(
    host: Host,
    short: Workload,
    long: Workload,
    *,
    seed: int,
    duration_seconds: float = 600.0,
    count: int = 4,
) -> LoadScenario:
    """Short and long tasks whose shares change: means and spread of the task times together."""
    rng = np.random.default_rng(seed)
    begins = _uneven(count, duration_seconds, rng)
    phases = tuple((at, mixture(short, long, float(rng.uniform(0.02, 0.6)))) for at in begins)
    return LoadScenario("mixtures", host, phases, duration_seconds)


def _longer(time: TimeDistribution, factor: float) -> TimeDistribution:
    return replace(time, mean_seconds=time.mean_seconds * factor)


def _mean_square(time: TimeDistribution) -> float:
    return time.mean_seconds**2 * (1.0 + time.effective_variation)


def _uneven(count: int, duration_seconds: float, rng: np.random.Generator) -> list[float]:
    """`count` beginnings, the first at 0, each moved by up to a quarter of a phase."""
    each = duration_seconds / max(count, 1)
    moved = rng.uniform(-_JITTER, _JITTER, size=count)
    return [0.0 if index == 0 else each * float(index + moved[index]) for index in range(count)]
