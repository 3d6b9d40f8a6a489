"""What is simulated of a case: the scrapes of its pod, and its measured curve.

Kept apart from the features made of it, so that a new feature or a better estimator needs no new
simulation.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Workload
from slimscale.threads.operator_network import GRID_THREADS
from slimscale.threads.window import HISTORY_INTERVALS
from slimscale.training.workloads import MOST_THREADS, Case

__all__ = [
    "GRID",
    "Labelling",
    "RawCase",
    "cpu_values",
    "look_at",
    "simulate_case",
    "unpack_samples",
]

FloatArray = NDArray[np.float64]

GRID: NDArray[np.int64] = np.asarray([k for k in GRID_THREADS if k <= MOST_THREADS])
"""Thread counts at which rows are drawn; labels are a part of them."""
SHORTEST_SPAN_SECONDS = 0.6
MOST_VARIATION = 8.0
"""Squared variation up to which a label gets more tasks for it."""
MOST_TASKS = 8_000.0
"""Simulated before and in the window: bounds the time that a fast workload takes."""
MOST_SAMPLES = HISTORY_INTERVALS + 4
CPU_VALUES = 2
_OTHER_SEED = 977
_BUCKETS = len(BUCKET_BOUNDS_SECONDS) + 1
_BOUNDS_SECONDS = (*BUCKET_BOUNDS_SECONDS, math.inf)
_NUMBERS = (
    "sampled_at_seconds", "process_start_seconds", "threads_applied", "tasks_total",
    "tasks_outstanding", "task_cpu_seconds_total", "task_runqueue_seconds_total",
    "cpu_quota_cores", "cpu_usage_seconds_total", "cpu_periods_total",
    "cpu_throttled_periods_total", "cpu_throttled_seconds_total",
)  # fmt: skip
SAMPLE_WIDTH = len(_NUMBERS) + 2 * (_BUCKETS + 1)


@dataclass(frozen=True, slots=True)
class Labelling:
    """How the labels are measured."""

    counts: int
    """Thread counts a row, of GRID; len(GRID): all."""
    tasks: int
    """Tasks a measured point."""
    twice: bool = False
    """Measured again, with other random numbers: see `judge.Truth`."""
    even: bool = False
    """As many times more as the squared variation of the task's time is above 1: a mean of
    heavy-tailed times needs more of them to be known as well."""


@dataclass(frozen=True, slots=True)
class RawCase:
    samples: FloatArray
    """(MOST_SAMPLES, SAMPLE_WIDTH), see `unpack_samples`; rows of NaN after the last."""
    earlier: FloatArray
    """(2, SAMPLE_WIDTH) the scrapes of the earlier look; NaN where there was none."""
    timing: FloatArray
    """(3,) seconds: interval, window, and from when on the case's own load ran."""
    labels: FloatArray
    """(CPU_VALUES, len(GRID)) measured tasks a second; NaN: not measured."""
    again: FloatArray
    """The same measured a second time, where the labelling asks for it."""


def simulate_case(case: Case, labelling: Labelling) -> RawCase:
    """Observe the case and measure its curve; the same case gives the same figures."""
    packed, timing = look_at(case)
    earlier = np.full((2, SAMPLE_WIDTH), np.nan)
    if case.earlier_threads is not None:
        first = replace(case, threads=case.earlier_threads, seed=case.seed + 1, before=None)
        earlier[:], _ = _observe_fast(first, _rough_rate(first))
    labels, again = (np.full((CPU_VALUES, len(GRID)), np.nan) for _ in range(2))
    for row, quota in enumerate(cpu_values(case)):
        labels[row] = _measure(case, labelling, row, quota)
        if labelling.twice:
            other = replace(case, seed=case.seed + _OTHER_SEED)
            again[row] = _measure(other, labelling, row, quota)
    return RawCase(packed, earlier, np.asarray(timing), labels, again)


def look_at(case: Case) -> tuple[FloatArray, tuple[float, float, float]]:
    """Packed scrapes and timing of a pod of this case at its thread count, as in `RawCase`."""
    rate = _rough_rate(case)
    fast = rate * SHORTEST_SPAN_SECONDS > MOST_TASKS
    rows, timing = _observe_fast(case, rate) if fast else _observe(case, rate)
    packed = np.full((MOST_SAMPLES, SAMPLE_WIDTH), np.nan)
    packed[: len(rows)] = rows
    return packed, timing


def cpu_values(case: Case) -> list[float | None]:
    """Quotas of the case's rows: the one it was observed with, and the one to predict for."""
    return [case.host.quota_cores] + (
        [] if case.other_quota_cores is None else [case.other_quota_cores]
    )


def unpack_samples(packed: FloatArray, pod_uid: str) -> list[ContractSample]:
    """The scrapes of one `RawCase.samples`, oldest first."""
    found = []
    for row in packed[~np.isnan(packed[:, 0])]:
        numbers = {
            name: (None if math.isnan(value) else float(value))
            for name, value in zip(_NUMBERS, row, strict=False)
        }
        start = len(_NUMBERS)
        task, dispatch = (
            HistogramSnapshot(_BOUNDS_SECONDS, tuple(part[:-1].tolist()), float(part[-1]))
            for part in np.split(row[start:], 2)
        )
        threads = numbers.pop("threads_applied")
        found.append(
            ContractSample(
                pod_uid=pod_uid,
                threads_applied=None if threads is None else int(threads),
                task=task,
                dispatch=dispatch,
                **numbers,  # type: ignore[arg-type]
            )
        )
    return found


def _pack(sample: ContractSample) -> FloatArray:
    numbers = [getattr(sample, name) for name in _NUMBERS]
    parts: list[float] = [math.nan if number is None else number for number in numbers]
    for histogram in (sample.task, sample.dispatch):
        if histogram is None or histogram.upper_bounds_seconds != _BOUNDS_SECONDS:
            raise ValueError("the simulated pod serves other buckets than slimscale.inpod")
        parts.extend((*histogram.cumulative_counts, histogram.sum_seconds))
    return np.asarray(parts, dtype=np.float64)


def _measure(case: Case, labelling: Labelling, row: int, quota: float | None) -> FloatArray:
    """One count from each of `labelling.counts` equal stretches of GRID."""
    edges = np.linspace(0, len(GRID), labelling.counts + 1)
    rng = np.random.default_rng([case.seed, row])
    picked = {int(rng.uniform(low, high)) for low, high in pairwise(edges)}
    wanted = sorted({min(i, len(GRID) - 1) for i in picked})
    labels = np.full(len(GRID), np.nan)
    labels[wanted] = measure_curve(
        case.workload,
        replace(case.host, quota_cores=quota),
        GRID[wanted].tolist(),
        seed=case.seed + row,
        tasks=math.ceil(labelling.tasks * (_variation(case.workload) if labelling.even else 1.0)),
    )
    return labels


def _variation(workload: Workload) -> float:
    """Squared variation of CPU and blocking part together, within 1 to MOST_VARIATION."""
    parts = (workload.cpu, workload.blocking)
    spread = sum(p.mean_seconds**2 * p.effective_variation for p in parts)
    mean = sum(p.mean_seconds for p in parts)
    return min(max(spread / mean**2, 1.0), MOST_VARIATION)


def _observe(case: Case, rate: float) -> tuple[list[FloatArray], tuple[float, float, float]]:
    """Scrapes at even intervals, the last of them under the case's own load."""
    interval = max(case.window_tasks / rate / 3.0, SHORTEST_SPAN_SECONDS)
    affordable = int(MOST_TASKS / max(rate * interval, 1.0))
    in_window = min(3, max(1, affordable))
    earlier = max(0, min(HISTORY_INTERVALS - in_window, affordable - in_window))
    before = case.before if earlier and _rough_rate(case, case.before) <= 2.0 * rate else None
    plant = Plant(before or case.workload, case.host, threads=case.threads, seed=case.seed)
    plant.advance(min(0.2 * interval * in_window, 1e5))
    taken: list[FloatArray] = []
    for _ in range(earlier):
        taken.append(_pack(plant.sample()))
        plant.advance(interval)
    if before is not None:
        taken.append(_pack(plant.sample()))
        plant.set_workload(case.workload)
        plant.advance(max(3.0 * case.threads / rate, 0.1 * interval))
    steady_from = plant.now_seconds
    for _ in range(in_window):
        taken.append(_pack(plant.sample()))
        plant.advance(interval)
    taken.append(_pack(plant.sample()))
    return taken, (interval, in_window * interval, steady_from)


def _observe_fast(case: Case, rate: float) -> tuple[list[FloatArray], tuple[float, float, float]]:
    """Two scrapes, also of a workload of which the shortest window is too long to simulate.

    Its first tasks are simulated, at least three periods of its quota, and its counters grow on
    evenly.
    """
    periods = 0.0 if case.host.quota_cores is None else case.host.period_seconds
    plant = Plant(case.workload, case.host, threads=case.threads, seed=case.seed)
    plant.advance(max(5.0 * case.threads / rate, periods))
    before = _pack(plant.sample())
    seconds = max(case.window_tasks / rate, 3.0 * periods)
    plant.advance(seconds)
    after = _pack(plant.sample())
    span = max(seconds, SHORTEST_SPAN_SECONDS)
    grown = before + (after - before) * (span / seconds)
    for gauge in ("threads_applied", "tasks_outstanding", "cpu_quota_cores"):
        place = _NUMBERS.index(gauge)
        grown[place] = after[place]
    return [before, grown], (span, span, float(before[0]))


def _rough_rate(case: Case, workload: Workload | None = None) -> float:
    """Tasks a second by the asymptotic bound, of the case's workload or another in its place."""
    work = workload or case.workload
    cores = min(case.host.quota_cores or math.inf, float(case.host.cores))
    cpu = work.cpu.mean_seconds + work.dispatch.mean_seconds
    cycle = cpu + work.blocking.mean_seconds
    threads = min(case.threads, work.outstanding or case.threads)
    return min(threads / cycle, cores / cpu, 1.0 / work.dispatch.mean_seconds)
