"""Which curves are measured: a seeded plan over the kinds of load and the shapes of their times.

A family is a kind of load with one shape of its times. Each kind has one shape whose curves are
never trained or tuned on (`split` held-out), so that a test sees families it has not met before.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.workload import Family, TimeDistribution, Waiting, Workload
from slimscale.threads.closed_network import NetworkParameters, knee_threads, throughput_curve

__all__ = [
    "HELD_OUT",
    "KINDS",
    "QUOTAS_CORES",
    "SHAPES",
    "Curve",
    "bounded_curve",
    "curve_plan",
    "network_of",
    "thread_grid",
]

KINDS = ("light", "compute", "engine", "mixed", "contention", "spin", "bounded")
SHAPES = (Family.DETERMINISTIC, Family.EXPONENTIAL, Family.LOGNORMAL, Family.BIMODAL)
QUOTAS_CORES: tuple[float | None, ...] = (0.5, 1.0, 1.5, 2.0, None)
HELD_OUT = {
    "light": Family.LOGNORMAL,
    "compute": Family.BIMODAL,
    "engine": Family.EXPONENTIAL,
    "mixed": Family.LOGNORMAL,
    "contention": Family.EXPONENTIAL,
    "spin": Family.BIMODAL,
    "bounded": Family.DETERMINISTIC,
}
"""One shape of each kind."""

_MICRO, _MILLI = 1e-6, 1e-3
_MOST_THREADS, _MOST_SPINNING = 96, 16
_POINTS = 8
_TASKS_WANTED = 40
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.2, 0.6
"""A window is whole quota periods of 0.1 s: a part of one would see more or less than the quota."""


_Between = Callable[[float, float], float]
_Shape = Callable[[float], TimeDistribution]


@dataclass(frozen=True, slots=True)
class Curve:
    """One load under one quota, and where it is measured."""

    name: str
    kind: str
    shape: Family
    workload: Workload
    quota_cores: float | None
    threads: tuple[int, ...]
    seconds: tuple[float, ...]
    """Of one repeat, for each of `threads`."""
    seed: int

    @property
    def family(self) -> str:
        return f"{self.kind}-{self.shape}"

    @property
    def split(self) -> str:
        return "held-out" if HELD_OUT[self.kind] is self.shape else "train"


def curve_plan(*, seed: int, curves_a_family: int, cores: int) -> list[Curve]:
    """All curves, in a random order, so that a half-done plan already has all families."""
    rng = np.random.default_rng(seed)
    curves = []
    for kind in KINDS:
        for shape in SHAPES:
            # Quotas in turn, not drawn: each family meets all of them.
            first = int(rng.integers(len(QUOTAS_CORES)))
            for index in range(curves_a_family):
                quota = QUOTAS_CORES[(first + index) % len(QUOTAS_CORES)]
                workload = _workload(rng, kind, shape)
                threads = thread_grid(workload, cores=cores, quota_cores=quota)
                curves.append(
                    Curve(
                        name=f"{kind}-{shape}-{index}",
                        kind=kind,
                        shape=shape,
                        workload=workload,
                        quota_cores=quota,
                        threads=threads,
                        seconds=tuple(_durations(workload, threads, cores, quota)),
                        seed=int(rng.integers(1, 2**31)),
                    )
                )
    order = rng.permutation(len(curves))
    return [curves[i] for i in order]


def network_of(workload: Workload, *, cores: int, quota_cores: float | None) -> NetworkParameters:
    """The closed network of a load whose parts are known; shapes do not enter it."""
    servers = min(float(cores), quota_cores) if quota_cores is not None else float(cores)
    return NetworkParameters(
        blocking_seconds=workload.blocking.mean_seconds,
        cpu_seconds=max(workload.cpu.mean_seconds, 1e-9),
        dispatch_seconds=workload.dispatch.mean_seconds,
        cpu_servers=servers,
        contention_linear=workload.contention_linear,
        contention_quadratic=workload.contention_quadratic,
    )


def bounded_curve(
    workload: Workload, most: int, *, cores: int, quota_cores: float | None
) -> NDArray[np.float64]:
    """Tasks a second with 1..most threads by the closed network as the operator uses it.

    A dispatcher on less than one CPU is slower in proportion, no more is done than the CPU pays
    for, and no more tasks run than circulate. Shape (most,).
    """
    network = network_of(workload, cores=cores, quota_cores=quota_cores)
    own = workload.cpu.mean_seconds + workload.dispatch.mean_seconds
    network = replace(
        network,
        dispatch_seconds=network.dispatch_seconds / min(1.0, network.cpu_servers),
        contention_handover=workload.contention_handover,
    )
    running = min(most, workload.outstanding or most)
    curve = throughput_curve(network, running)
    if own > 0:
        curve = np.minimum(curve, network.cpu_servers / own)
    return np.pad(curve, (0, most - running), mode="edge")


def thread_grid(workload: Workload, *, cores: int, quota_cores: float | None) -> tuple[int, ...]:
    """Up to 8 thread counts, evenly in proportion, from one to four times the knee."""
    network = network_of(workload, cores=cores, quota_cores=quota_cores)
    own = network.cpu_seconds + network.dispatch_seconds  # handing over burns CPU too
    knee = min(knee_threads(network), network.cycle_seconds * network.cpu_servers / own + 1)
    ceiling = _MOST_SPINNING if workload.waiting is Waiting.SPIN else _MOST_THREADS
    most = min(max(math.ceil(4 * knee) + 2, 6), ceiling)
    return tuple(sorted({round(k) for k in np.geomspace(1, most, _POINTS)}))


def _durations(
    workload: Workload, threads: tuple[int, ...], cores: int, quota_cores: float | None
) -> Iterator[float]:
    network = network_of(workload, cores=cores, quota_cores=quota_cores)
    own = network.cpu_seconds + network.dispatch_seconds
    for count in threads:
        rate = min(count / network.cycle_seconds, network.cpu_servers / own)
        wanted = min(max(_TASKS_WANTED / rate, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        yield math.ceil(wanted * 10 - 1e-9) / 10


def _workload(rng: np.random.Generator, kind: str, shape: Family) -> Workload:
    def between(low: float, high: float) -> float:
        return float(math.exp(rng.uniform(math.log(low), math.log(high))))

    variation = float(rng.choice((0.25, 1.0, 4.0) if shape is Family.LOGNORMAL else (1.0, 4.0)))
    cpu, blocking, dispatch = _means(between, kind)
    part = _shaped(shape, variation)
    spread = rng.random()
    hold = Family.DETERMINISTIC if spread < 0.6 else Family.EXPONENTIAL
    return Workload(
        cpu=part(cpu),
        blocking=part(blocking),
        dispatch=TimeDistribution(hold, dispatch, 1.0)
        if spread < 0.85
        else TimeDistribution(Family.LOGNORMAL, dispatch, 4.0),
        contention_linear=between(0.01, 0.3) if kind == "contention" else 0.0,
        contention_quadratic=between(1e-4, 1e-2)
        if kind == "contention" and rng.random() < 0.5
        else 0.0,
        waiting=Waiting.SPIN if kind == "spin" else Waiting.PARK,
        outstanding=round(between(2, 24)) if kind == "bounded" else None,
    )


def _means(between: _Between, kind: str) -> tuple[float, float, float]:
    """CPU, blocking and dispatch seconds."""
    if kind == "light":
        return between(5, 100) * _MICRO, 0.0, between(1, 20) * _MICRO
    if kind == "compute":
        return between(0.1, 5) * _MILLI, 0.0, between(1, 200) * _MICRO
    if kind == "engine":
        return between(5, 100) * _MICRO, between(0.2, 20) * _MILLI, between(5, 200) * _MICRO
    if kind == "contention":
        return between(10, 300) * _MICRO, between(0.2, 5) * _MILLI, between(5, 100) * _MICRO
    if kind == "spin":
        return between(20, 1000) * _MICRO, between(0.1, 5) * _MILLI, between(2, 100) * _MICRO
    cpu = between(0.05, 2) * _MILLI
    return cpu, min(cpu * between(0.3, 20), 20 * _MILLI), between(1, 200) * _MICRO


def _shaped(shape: Family, variation: float) -> _Shape:
    def part(mean_seconds: float) -> TimeDistribution:
        return TimeDistribution(shape, mean_seconds, variation)

    return part
