"""What goes wrong with metrics on their way, as pure functions on a run's samples.

Each takes samples of one pod, oldest first, and returns what an observer would hold. They compose:
`late(missing(samples, share=0.2, seed=1), now_seconds=now, delay_seconds=8)`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slimscale.domain.contract import ContractSample, HistogramSnapshot

__all__ = ["late", "missing", "noisy", "not_a_number", "restarted", "stuck"]

Samples = tuple[ContractSample, ...]


def late(samples: Sequence[ContractSample], *, now_seconds: float, delay_seconds: float) -> Samples:
    """What has arrived by now where each sample takes `delay_seconds`; its own time is true."""
    return tuple(s for s in samples if s.sampled_at_seconds <= now_seconds - delay_seconds)


def missing(samples: Sequence[ContractSample], *, share: float, seed: int) -> Samples:
    """A share of the scrapes failed. Which ones hangs on the sample's time: a longer run of the
    same pod lacks the same ones."""
    return tuple(s for s in samples if _random(s, seed, 1).random() >= share)


def restarted(samples: Sequence[ContractSample], *, at_seconds: float) -> Samples:
    """The process began anew at that second: later counters count from there.

    Counters of the last sample before it are taken off, so the restart seems to be at that sample.
    """
    before = [s for s in samples if s.sampled_at_seconds <= at_seconds]
    if not before:
        return tuple(samples)
    return tuple(
        s if s.sampled_at_seconds <= at_seconds else _since(s, before[-1], at_seconds)
        for s in samples
    )


def not_a_number(samples: Sequence[ContractSample], *, share: float, seed: int) -> Samples:
    """A share of the samples has a NaN in one of its numbers."""
    fields = (
        "tasks_total",
        "task_cpu_seconds_total",
        "cpu_usage_seconds_total",
        "tasks_outstanding",
    )
    spoiled = []
    for sample in samples:
        rng = _random(sample, seed, 2)
        if rng.random() < share:
            field = fields[int(rng.integers(len(fields)))]
            sample = replace(sample, **{field: math.nan})  # type: ignore[arg-type]  # noqa: PLW2901
        spoiled.append(sample)
    return tuple(spoiled)


def stuck(samples: Sequence[ContractSample], *, from_seconds: float) -> Samples:
    """From then on the page shows the same old figures, with new times."""
    before = [s for s in samples if s.sampled_at_seconds <= from_seconds]
    if not before:
        return tuple(samples)
    last = before[-1]
    return tuple(
        s
        if s.sampled_at_seconds <= from_seconds
        else replace(last, sampled_at_seconds=s.sampled_at_seconds)
        for s in samples
    )


def noisy(samples: Sequence[ContractSample], *, deviation_seconds: float, seed: int) -> Samples:
    """Times of the samples are off by a normal error: rates are noisy, counters are not.

    Errors are cut at two deviations; the order stays where samples lie four deviations apart.
    """
    return tuple(
        replace(s, sampled_at_seconds=s.sampled_at_seconds + _error(s, deviation_seconds, seed))
        for s in samples
    )


def _error(sample: ContractSample, deviation_seconds: float, seed: int) -> float:
    error = float(_random(sample, seed, 3).normal(0.0, deviation_seconds))
    return min(max(error, -2 * deviation_seconds), 2 * deviation_seconds)


def _random(sample: ContractSample, seed: int, purpose: int) -> np.random.Generator:
    milliseconds = round(sample.sampled_at_seconds * 1000)
    return np.random.default_rng([seed, purpose, abs(milliseconds)])


def _since(later: ContractSample, earlier: ContractSample, at_seconds: float) -> ContractSample:
    return replace(
        later,
        process_start_seconds=at_seconds,
        tasks_total=_less(later.tasks_total, earlier.tasks_total),
        task=_less_histogram(later.task, earlier.task),
        dispatch=_less_histogram(later.dispatch, earlier.dispatch),
        task_cpu_seconds_total=_less(later.task_cpu_seconds_total, earlier.task_cpu_seconds_total),
        task_runqueue_seconds_total=_less(
            later.task_runqueue_seconds_total, earlier.task_runqueue_seconds_total
        ),
        cpu_usage_seconds_total=_less(
            later.cpu_usage_seconds_total, earlier.cpu_usage_seconds_total
        ),
        cpu_periods_total=_less(later.cpu_periods_total, earlier.cpu_periods_total),
        cpu_throttled_periods_total=_less(
            later.cpu_throttled_periods_total, earlier.cpu_throttled_periods_total
        ),
        cpu_throttled_seconds_total=_less(
            later.cpu_throttled_seconds_total, earlier.cpu_throttled_seconds_total
        ),
    )


def _less(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else max(0.0, later - earlier)


def _less_histogram(
    later: HistogramSnapshot | None, earlier: HistogramSnapshot | None
) -> HistogramSnapshot | None:
    if later is None or earlier is None:
        return None
    counts = zip(later.cumulative_counts, earlier.cumulative_counts, strict=True)
    return HistogramSnapshot(
        later.upper_bounds_seconds,
        tuple(a - b for a, b in counts),
        max(0.0, later.sum_seconds - earlier.sum_seconds),
    )
