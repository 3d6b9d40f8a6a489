"""The cases of the data set: a random workload, and how it was observed.

A case is a function of (seed, split, index) alone, so a data set can be made in any order, in
parts and again. What is held out follows from a workload's family, never from a row: no training
case has a shape of the held-out families.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from slimscale.simulate.families import FAMILY_NAMES, draw_workload
from slimscale.simulate.workload import Host, Workload

__all__ = ["HELD_OUT_FAMILIES", "MOST_THREADS", "TRAINING_FAMILIES", "Case", "Split", "draw_case"]

MOST_THREADS = 256
HELD_OUT_FAMILIES = tuple(
    name for name in FAMILY_NAMES if name.startswith("pareto-") or name == "bimodal-mixes"
)
"""Seen by tests alone: heavy tails of every kind, and two sizes of task that compute and wait."""
TRAINING_FAMILIES = tuple(name for name in FAMILY_NAMES if name not in HELD_OUT_FAMILIES)


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    """Same families as the training set, other seeds: for early stopping."""
    SEEN = "seen"
    """Same families, other seeds, never looked at while training."""
    HELD_OUT = "held-out"
    """Families that no training case has."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload on one host, and how it was observed."""

    split: Split
    index: int
    seed: int
    family: str
    workload: Workload
    host: Host
    threads: int
    """k at which it was observed."""
    earlier_threads: int | None
    """k of an earlier look at the same load, which the operator remembers; None: the first look."""
    before: Workload | None
    """Another load that ran until shortly before the window: history without consequence."""
    other_quota_cores: float | None
    """A second CPU value to predict; None: only the one it was observed with."""
    window_tasks: float
    """About how many tasks the window holds."""


_SPLITS = tuple(Split)
_LEAST_QUOTA_CORES = 0.25
NEAR_KNEE_FROM = 20_000
"""Training cases from this number on are observed near their knee: where the operator stands after
its first choice, and where contention begins to show."""
_NEAR = 0.6
"""Standard deviation of log k about the knee's."""


def draw_case(split: Split, index: int, *, seed: int) -> Case:
    """The case number `index` of a split. Splits never share random numbers."""
    rng = np.random.default_rng([seed, _SPLITS.index(split), index])
    families = HELD_OUT_FAMILIES if split is Split.HELD_OUT else TRAINING_FAMILIES
    drawn, before = (
        draw_workload(int(rng.integers(2**31)), index, families=families) for _ in range(2)
    )
    other = max(_LEAST_QUOTA_CORES, _log_uniform(rng, _LEAST_QUOTA_CORES, drawn.host.cores))
    case_seed = int(rng.integers(2**31))
    threads = round(_log_uniform(rng, 1, 64))
    if split is Split.TRAIN and index >= NEAR_KNEE_FROM:
        near = _knee_threads(drawn.workload, drawn.host) * math.exp(rng.normal(0.0, _NEAR))
        threads = min(max(round(near), 1), MOST_THREADS)
    return Case(
        split=split,
        index=index,
        seed=case_seed,
        family=drawn.family,
        workload=drawn.workload,
        host=drawn.host,
        threads=threads,
        earlier_threads=round(_log_uniform(rng, 1, 64)) if rng.random() < 0.5 else None,
        before=before.workload if rng.random() < 0.25 else None,
        other_quota_cores=other if rng.random() < 0.25 else None,
        window_tasks=_log_uniform(rng, 300, 4000),
    )


def _knee_threads(workload: Workload, host: Host) -> float:
    """Where the asymptotes cross, without contention."""
    cores = min(host.quota_cores or math.inf, float(host.cores))
    cpu = workload.cpu.mean_seconds + workload.dispatch.mean_seconds
    cycle = cpu + workload.blocking.mean_seconds
    return cycle / max(cpu / cores, workload.dispatch.mean_seconds)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(float(rng.uniform(math.log(low), math.log(high))))
