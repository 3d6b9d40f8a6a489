"""Random workloads and hosts for training and testing, over the ranges of science.md 1.6.

Each is drawn in a family, whose name says what shapes its times and what it does with its CPU.
Data is to be split by that name: two draws of one family are alike, however their numbers differ.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from slimscale.simulate.workload import Family, Host, TimeDistribution, Waiting, Workload

__all__ = ["FAMILY_NAMES", "DrawnWorkload", "Kind", "draw_workload"]


class Kind(StrEnum):
    """What a task mostly does."""

    COMPUTES = "computes"
    BLOCKS = "blocks"
    MIXES = "mixes"


_DISPATCH = (Family.DETERMINISTIC, Family.EXPONENTIAL, Family.LOGNORMAL)
_CORES = (1, 64)
_LEAST_QUOTA_CORES = 0.25
_TASKS_A_CPU_SECOND = (1e2, 1e5)
_RATIO = (0.25, 512.0)
_VARIATION = (0.25, 16.0)
_MOST_DISPATCH_VARIATION = 4.0
_SHORTEST_DISPATCH_SECONDS = 1e-7

FAMILY_NAMES = tuple(f"{family.value}-{kind.value}" for family in Family for kind in Kind)
"""Fifteen: shape of the task times, and what the tasks do."""


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    family: str
    """One of FAMILY_NAMES: what to split data by."""
    workload: Workload
    host: Host


def draw_workload(
    seed: int, index: int, *, families: tuple[str, ...] = FAMILY_NAMES
) -> DrawnWorkload:
    """Number `index` of the sequence that belongs to `seed`; any of them can be drawn alone.

    r = Z/S is log-uniform in 0.25 to 512; a CPU second holds 100 to 100,000 tasks; the cores are
    log-uniform in 1 to 64; half have a quota, log-uniform from 0.25 to the cores; half have N tasks
    outstanding, log-uniform in 1 to 1024; a1 up to 0.1, b1 log-uniform in 1e-6 to 1e-2, hand-over
    up to 2; a quarter spin. Raises ValueError for an unknown family.
    """
    unknown = set(families) - set(FAMILY_NAMES)
    if unknown or not families:
        raise ValueError(f"families {sorted(unknown)} are none of {', '.join(FAMILY_NAMES)}")
    rng = np.random.default_rng([seed, index])
    name = families[int(rng.integers(len(families)))]
    shape, _, kind = name.partition("-")
    return DrawnWorkload(
        family=name, workload=_workload(rng, Family(shape), Kind(kind)), host=_host(rng)
    )


def _workload(rng: np.random.Generator, shape: Family, kind: Kind) -> Workload:
    share = _cpu_share(rng, kind)
    ratio = _log_uniform(rng, *_RATIO)
    # A task costs its CPU part and its dispatch: share*Z + S, with Z = r*S.
    cpu_seconds = 1.0 / _log_uniform(rng, *_TASKS_A_CPU_SECOND)
    held = max(cpu_seconds / (share * ratio + 1.0), _SHORTEST_DISPATCH_SECONDS)
    outside = ratio * held
    spins = rng.random() < 0.25
    return Workload(
        cpu=_time(rng, shape, outside * share),
        blocking=_time(rng, shape, outside * (1.0 - share)),
        dispatch=_dispatch(rng, held),
        contention_linear=_or_none(rng, float(rng.uniform(0.0, 0.1))),
        contention_quadratic=_log_uniform(rng, 1e-6, 1e-2),
        contention_handover=_or_none(rng, float(rng.uniform(0.0, 2.0))),
        waiting=Waiting.SPIN if spins else Waiting.PARK,
        outstanding=round(_log_uniform(rng, 1, 1024)) if rng.random() < 0.5 else None,
    )


def _cpu_share(rng: np.random.Generator, kind: Kind) -> float:
    """Of the task's time outside the dispatcher."""
    if kind is Kind.COMPUTES:
        return 1.0 - float(rng.uniform(0.0, 0.1)) * float(rng.random() < 0.5)
    if kind is Kind.BLOCKS:
        return _log_uniform(rng, 0.005, 0.2) if rng.random() < 0.9 else 0.0
    return float(rng.uniform(0.2, 0.9))


def _time(rng: np.random.Generator, shape: Family, mean_seconds: float) -> TimeDistribution:
    drawn = TimeDistribution(shape, mean_seconds, _log_uniform(rng, *_VARIATION))
    return TimeDistribution(shape, mean_seconds, drawn.effective_variation)


def _dispatch(rng: np.random.Generator, mean_seconds: float) -> TimeDistribution:
    shape = _DISPATCH[int(rng.integers(len(_DISPATCH)))]
    drawn = TimeDistribution(shape, mean_seconds, float(rng.uniform(0.1, _MOST_DISPATCH_VARIATION)))
    return TimeDistribution(shape, mean_seconds, drawn.effective_variation)


def _host(rng: np.random.Generator) -> Host:
    cores = round(_log_uniform(rng, *_CORES))
    if rng.random() < 0.5:
        return Host(cores)
    return Host(cores, _log_uniform(rng, _LEAST_QUOTA_CORES, float(cores)))


def _or_none(rng: np.random.Generator, value: float) -> float:
    """Half of the workloads have none of it."""
    return value if rng.random() < 0.5 else 0.0


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(float(rng.uniform(math.log(low), math.log(high))))
