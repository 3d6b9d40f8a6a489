"""Kinds of work for the benchmark, each so that the pod's best is about a wanted rate.

A kind is drawn, not fixed: its shares and its contention come from a generator. Times are scaled to
the rate, so that a machine of 64 cores costs no more simulation than one of 2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from slimscale.bench.policy import MAX_THREADS
from slimscale.simulate.workload import Family, TimeDistribution, Waiting, Workload

__all__ = ["KINDS", "Parts", "Shape", "draw_parts"]

DEEPEST = 0.6 * MAX_THREADS
"""Threads that the best may need: the policies' bound must not be what is measured."""
VARIATION = {
    Family.DETERMINISTIC: 0.0,
    Family.EXPONENTIAL: 1.0,
    Family.LOGNORMAL: 4.0,
    Family.BIMODAL: 3.0,
    Family.PARETO: 8.0,
}
"""CV² of a task's parts in each family."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How times are distributed: of a task's parts, and of the dispatcher's hold."""

    family: Family
    variation: float
    dispatch: Family = Family.EXPONENTIAL

    @staticmethod
    def of(family: Family) -> "Shape":
        # Work with one constant time has a constant hand-over too.
        same = Family.DETERMINISTIC if family is Family.DETERMINISTIC else Family.EXPONENTIAL
        return Shape(family, VARIATION[family], same)


@dataclass(frozen=True, slots=True)
class Parts:
    """Means of one task in seconds, and its contention."""

    cpu_seconds: float
    blocking_seconds: float
    dispatch_seconds: float
    linear: float = 0.0
    quadratic: float = 0.0
    handover: float = 0.0
    waiting: Waiting = Waiting.PARK

    def workload(self, shape: Shape, *, outstanding: int | None = None) -> Workload:
        def time(mean: float) -> TimeDistribution:
            return TimeDistribution(shape.family, mean, shape.variation)

        return Workload(
            cpu=time(self.cpu_seconds),
            blocking=time(self.blocking_seconds),
            dispatch=TimeDistribution(shape.dispatch, self.dispatch_seconds, 1.0),
            contention_linear=self.linear,
            contention_quadratic=self.quadratic,
            contention_handover=self.handover,
            waiting=self.waiting,
            outstanding=outstanding,
        )


def computing(rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """CPU all the way: the best is about the cores in reach."""
    whole = cores / rate
    dispatch = min(whole * rng.uniform(0.005, 0.05), 0.3 / rate)
    return Parts(whole - dispatch, whole * rng.uniform(0.0, 0.15), dispatch)


def blocking(rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """Mostly waiting for something outside: many threads share few cores."""
    most = min(0.96, 1.0 - cores / DEEPEST)
    share = rng.uniform(min(0.4, most), most)
    whole = cores / rate
    dispatch = min(whole * rng.uniform(0.005, 0.05), 0.3 / rate)
    computed = whole - dispatch
    return Parts(computed, computed * share / (1.0 - share), dispatch)


def dispatching(rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """The dispatcher is the bottleneck: the best is near r = Z/S, the paper's case."""
    if cores < 2.0:  # the dispatcher burns a core of its own
        return blocking(rate, cores, rng)
    held = 0.9 / rate
    task = held * math.exp(rng.uniform(math.log(2.0), math.log(100.0)))
    computed = min(task * rng.uniform(0.1, 0.9), (0.6 * cores - 1.0) * held)
    return Parts(computed, task - computed, held)


def contended(rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """The dispatcher slows down with the crowd: past the best, throughput falls."""
    parts = dispatching(rate, cores, rng)
    waiting = Waiting.SPIN if rng.random() < 0.25 else Waiting.PARK
    return replace(
        parts,
        linear=rng.uniform(0.01, 0.08),
        quadratic=math.exp(rng.uniform(math.log(1e-5), math.log(3e-3))),
        handover=rng.uniform(0.1, 0.8),
        waiting=waiting,
    )


def light(rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """Tasks as short as their hand-over, which costs more once it is contended: one or two threads."""
    held = min(1.0, cores) / rate
    return Parts(
        held * rng.uniform(0.2, 1.0), 0.0, held, linear=0.02, handover=rng.uniform(0.5, 1.5)
    )


KINDS: dict[str, Callable[[float, float, np.random.Generator], Parts]] = {
    "computing": computing,
    "blocking": blocking,
    "dispatching": dispatching,
    "contended": contended,
    "light": light,
}


def draw_parts(kind: str, *, rate: float, cores: float, rng: np.random.Generator) -> Parts:
    """One load of that kind; `rate` in tasks a second, `cores` in reach (quota or cores).

    Raises KeyError for an unknown kind.
    """
    return KINDS[kind](rate, cores, rng)
