"""Which samples of which pods may be compared: one process, one thread count, one quota.

Idle is not missing, a reset is not negative work, and a dead pod's figures are nobody's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import Freshness, Observation, PodObservation
from slimscale.threads.histogram import HistogramDelta, subtract

__all__ = [
    "PodData",
    "SamplePair",
    "consecutive_pairs",
    "difference",
    "eligible_pods",
    "judge_pod",
    "spaced",
    "steady_samples",
]

CLOCK_SLACK_SECONDS = 10.0
SHORTEST_SPAN_SECONDS = 0.5
NEARLY = 0.9
"""Of an interval: a scrape is never quite on time."""


class PodData(StrEnum):
    """What a pod's samples are good for."""

    USABLE = "usable"
    MISSING = "missing"
    STALE = "stale"
    INVALID = "invalid"
    NO_CONTRACT = "no contract"


@dataclass(frozen=True, slots=True)
class SamplePair:
    """The work between two samples of one process. Seconds are sums over the tasks finished."""

    pod_uid: str
    started_at_seconds: float
    ended_at_seconds: float
    threads: int
    tasks: float
    task: HistogramDelta
    dispatch: HistogramDelta | None
    task_cpu_seconds: float | None
    task_runqueue_seconds: float | None
    outstanding_at_start: float | None
    outstanding_at_end: float | None
    cpu_quota_cores: float | None
    cpu_usage_seconds: float | None
    throttled_ratio: float | None
    throttled_seconds: float | None

    @property
    def span_seconds(self) -> float:
        return self.ended_at_seconds - self.started_at_seconds

    @property
    def saturated(self) -> bool:
        """Work waited at both ends: what was done is what the pod can do."""
        if self.outstanding_at_start is None or self.outstanding_at_end is None:
            return False
        return min(self.outstanding_at_start, self.outstanding_at_end) >= self.threads


def eligible_pods(observation: Observation) -> tuple[PodObservation, ...]:
    """Starting, stopping and crashing pods say nothing about the load."""
    return tuple(p for p in observation.running_pods if p.ready and not p.crash_looping)


def judge_pod(pod: PodObservation, *, now_seconds: float, max_age_seconds: float) -> PodData:
    latest = pod.latest
    if pod.freshness is Freshness.INVALID:
        return PodData.INVALID
    if latest is None or pod.freshness is Freshness.MISSING:
        return PodData.MISSING
    age = now_seconds - latest.sampled_at_seconds
    if not math.isfinite(age) or age < -CLOCK_SLACK_SECONDS:
        return PodData.INVALID
    if pod.freshness is Freshness.STALE or age > max_age_seconds:
        return PodData.STALE
    if latest.tasks_total is None or latest.task is None or latest.threads_applied is None:
        return PodData.NO_CONTRACT
    return PodData.USABLE if _finite(latest) else PodData.INVALID


def _finite(sample: ContractSample) -> bool:
    numbers = (
        sample.tasks_total,
        sample.tasks_outstanding,
        sample.threads_applied,
        sample.task_cpu_seconds_total,
        sample.task_runqueue_seconds_total,
        sample.cpu_quota_cores,
        sample.cpu_usage_seconds_total,
        sample.task.sum_seconds if sample.task else None,
        sample.dispatch.sum_seconds if sample.dispatch else None,
    )
    return all(n is None or (math.isfinite(n) and n >= 0) for n in numbers) and (
        sample.threads_applied is None or sample.threads_applied >= 1
    )


def steady_samples(pod: PodObservation, *, not_before_seconds: float) -> tuple[ContractSample, ...]:
    """The newest samples, oldest first, that one process gave under one thread count and quota."""
    kept: list[ContractSample] = []
    for sample in reversed(pod.samples):
        if sample.pod_uid != pod.uid or not _finite(sample):
            break
        if sample.sampled_at_seconds < not_before_seconds:
            break
        if kept and not _follows(kept[-1], sample):
            break
        kept.append(sample)
    return tuple(reversed(kept))


def _follows(later: ContractSample, earlier: ContractSample) -> bool:
    return (
        later.same_process_as(earlier)
        and later.sampled_at_seconds > earlier.sampled_at_seconds
        and later.threads_applied == earlier.threads_applied
        and later.cpu_quota_cores == earlier.cpu_quota_cores
    )


def difference(later: ContractSample, earlier: ContractSample) -> SamplePair | None:
    """None when anything about the two forbids a subtraction: a reset, a clock step, no number."""
    if not (_finite(later) and _finite(earlier) and _follows(later, earlier)):
        return None
    if later.threads_applied is None:
        return None
    span = later.sampled_at_seconds - earlier.sampled_at_seconds
    if span < SHORTEST_SPAN_SECONDS or later.task is None or earlier.task is None:
        return None
    task = subtract(later.task, earlier.task)
    tasks = _delta(later.tasks_total, earlier.tasks_total)
    if task is None or tasks is None:
        return None
    dispatch = (
        subtract(later.dispatch, earlier.dispatch) if later.dispatch and earlier.dispatch else None
    )
    periods = _delta(later.cpu_periods_total, earlier.cpu_periods_total)
    throttled = _delta(later.cpu_throttled_periods_total, earlier.cpu_throttled_periods_total)
    return SamplePair(
        pod_uid=later.pod_uid,
        started_at_seconds=earlier.sampled_at_seconds,
        ended_at_seconds=later.sampled_at_seconds,
        threads=later.threads_applied,
        tasks=tasks,
        task=task,
        dispatch=dispatch,
        task_cpu_seconds=_delta(later.task_cpu_seconds_total, earlier.task_cpu_seconds_total),
        task_runqueue_seconds=_delta(
            later.task_runqueue_seconds_total, earlier.task_runqueue_seconds_total
        ),
        outstanding_at_start=earlier.tasks_outstanding,
        outstanding_at_end=later.tasks_outstanding,
        cpu_quota_cores=later.cpu_quota_cores or None,
        cpu_usage_seconds=_delta(later.cpu_usage_seconds_total, earlier.cpu_usage_seconds_total),
        throttled_ratio=min(1.0, throttled / periods)
        if periods and throttled is not None
        else (None if periods is None else 0.0),
        throttled_seconds=_delta(
            later.cpu_throttled_seconds_total, earlier.cpu_throttled_seconds_total
        ),
    )


def _delta(later: float | None, earlier: float | None) -> float | None:
    """A counter's growth; None when it is not served, ran backwards or is not a number."""
    if later is None or earlier is None:
        return None
    growth = later - earlier
    return growth if math.isfinite(growth) and growth >= 0 else None


def spaced(samples: tuple[ContractSample, ...], seconds: float) -> tuple[ContractSample, ...]:
    """The newest sample and before it those that lie about that far apart or farther."""
    kept: list[ContractSample] = []
    for sample in reversed(samples):
        apart = kept[-1].sampled_at_seconds - sample.sampled_at_seconds if kept else seconds
        if apart >= NEARLY * seconds:
            kept.append(sample)
    return tuple(reversed(kept))


def consecutive_pairs(samples: tuple[ContractSample, ...]) -> Iterator[SamplePair]:
    """For change detection: the work between each sample and the next."""
    for earlier, later in pairwise(samples):
        pair = difference(later, earlier)
        if pair is not None:
            yield pair
