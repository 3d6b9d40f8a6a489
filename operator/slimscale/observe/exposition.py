"""From a page of metrics to a `ContractSample`. Pure; a page that breaks the format is an error."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from slimscale.domain.contract import ContractSample, HistogramSnapshot, MetricName

__all__ = ["InvalidSamples", "NoContract", "Series", "read_page", "sample_from_series"]

Series = tuple[str, Mapping[str, str], float]
"""Name without the prefix, labels, value."""

_SUMMED = frozenset(
    {
        MetricName.TASKS_TOTAL,
        MetricName.TASKS_OUTSTANDING,
        MetricName.THREADS_APPLIED,
        MetricName.TASK_CPU_SECONDS_TOTAL,
        MetricName.TASK_RUNQUEUE_SECONDS_TOTAL,
    }
)
"""Several processes of a pod on one page, told apart by a label, add up."""
_OF_THE_POD = frozenset(
    {
        MetricName.CPU_QUOTA_CORES,
        MetricName.CPU_USAGE_SECONDS_TOTAL,
        MetricName.CPU_PERIODS_TOTAL,
        MetricName.CPU_THROTTLED_PERIODS_TOTAL,
        MetricName.CPU_THROTTLED_SECONDS_TOTAL,
        MetricName.PROCESS_START_TIME_SECONDS,
    }
)
"""Each process reports the same cgroup; of start times the last one counts."""
_HISTOGRAMS = (MetricName.TASK_SECONDS, MetricName.DISPATCH_SECONDS)
_MAX_BUCKETS = 200
_MAX_THREADS = 65536
_MAX_LINE = 8192
"""Characters. The parser's time grows with the square of a line's labels: a megabyte takes seconds."""


class NoContract(ValueError):
    """The page has none of the contract's series."""


class InvalidSamples(ValueError):
    """A series of the contract is broken: not finite, negative, buckets that fall."""


def read_page(text: str, *, prefix: str, pod_uid: str, now_seconds: float) -> ContractSample:
    """Parse what a pod serves.

    Raises:
        NoContract: nothing on the page begins with the prefix.
        InvalidSamples: it does, but cannot be used. The message quotes no value of the page.
    """
    start = f"{prefix}_"
    # Other series on the page, and faults in them, are not ours.
    lines = [line for line in text.splitlines() if line.startswith(start)]
    if not lines:
        raise NoContract(f"the page serves no series {start}*")
    if any(len(line) > _MAX_LINE for line in lines):
        raise InvalidSamples(f"a line {start}* is longer than {_MAX_LINE} characters")
    try:
        series = [
            (sample.name.removeprefix(start), sample.labels, float(sample.value))
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
        ]
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise InvalidSamples(f"a line {start}* is not in the Prometheus text format") from error
    return sample_from_series(series, pod_uid=pod_uid, sampled_at_seconds=now_seconds)


def sample_from_series(
    series: Iterable[Series], *, pod_uid: str, sampled_at_seconds: float
) -> ContractSample:
    """Build a sample from series of one pod at one instant.

    Raises:
        NoContract: none of the series is the contract's.
        InvalidSamples: as in `read_page`.
    """
    scalars: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {name: {} for name in _HISTOGRAMS}
    sums: dict[str, float] = {}
    for name, labels, value in series:
        histogram, _, part = name.rpartition("_")
        if name in _SUMMED:
            scalars[name] = scalars.get(name, 0.0) + _checked(name, value)
        elif name in _OF_THE_POD:
            scalars[name] = max(scalars.get(name, 0.0), _checked(name, value))
        elif histogram in buckets and part == "bucket":
            bound = _bound(histogram, labels.get("le", ""))
            counts = buckets[histogram]
            counts[bound] = counts.get(bound, 0.0) + _checked(name, value)
        elif histogram in buckets and part == "sum":
            sums[histogram] = sums.get(histogram, 0.0) + _checked(name, value)
    if not scalars and not any(buckets.values()):
        raise NoContract("none of the contract's series is there")
    threads = scalars.get(MetricName.THREADS_APPLIED)
    if threads is not None and not 0 <= threads <= _MAX_THREADS:
        raise InvalidSamples(f"{MetricName.THREADS_APPLIED} is out of range")
    return ContractSample(
        pod_uid=pod_uid,
        sampled_at_seconds=sampled_at_seconds,
        process_start_seconds=scalars.get(MetricName.PROCESS_START_TIME_SECONDS, 0.0),
        threads_applied=int(threads) if threads else None,
        tasks_total=scalars.get(MetricName.TASKS_TOTAL),
        tasks_outstanding=scalars.get(MetricName.TASKS_OUTSTANDING),
        task=_histogram(MetricName.TASK_SECONDS, buckets, sums),
        dispatch=_histogram(MetricName.DISPATCH_SECONDS, buckets, sums),
        task_cpu_seconds_total=scalars.get(MetricName.TASK_CPU_SECONDS_TOTAL),
        task_runqueue_seconds_total=scalars.get(MetricName.TASK_RUNQUEUE_SECONDS_TOTAL),
        cpu_quota_cores=scalars.get(MetricName.CPU_QUOTA_CORES),
        cpu_usage_seconds_total=scalars.get(MetricName.CPU_USAGE_SECONDS_TOTAL),
        cpu_periods_total=scalars.get(MetricName.CPU_PERIODS_TOTAL),
        cpu_throttled_periods_total=scalars.get(MetricName.CPU_THROTTLED_PERIODS_TOTAL),
        cpu_throttled_seconds_total=scalars.get(MetricName.CPU_THROTTLED_SECONDS_TOTAL),
    )


def _checked(name: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise InvalidSamples(f"{name} is not a finite number of at least 0")
    return value


def _bound(histogram: str, text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if math.isnan(bound) or bound < 0:  # durations have none below 0
        raise InvalidSamples(f"{histogram} has a bucket without a bound of at least 0")
    return bound


def _histogram(
    name: str, buckets: Mapping[str, Mapping[float, float]], sums: Mapping[str, float]
) -> HistogramSnapshot | None:
    counts = buckets[name]
    if not counts:
        return None
    bounds = tuple(sorted(counts))
    cumulative = tuple(counts[bound] for bound in bounds)
    if len(bounds) > _MAX_BUCKETS:
        raise InvalidSamples(f"{name} has more than {_MAX_BUCKETS} buckets")
    if bounds[-1] != math.inf or name not in sums:
        raise InvalidSamples(f"{name} lacks its +Inf bucket or its sum")
    if any(later < earlier for earlier, later in pairwise(cumulative)):
        raise InvalidSamples(f"{name} has bucket counts that fall")
    return HistogramSnapshot(
        upper_bounds_seconds=bounds, cumulative_counts=cumulative, sum_seconds=sums[name]
    )
