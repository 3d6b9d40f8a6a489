"""What two snapshots of a cumulative histogram say about the time between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slimscale.domain.contract import HistogramSnapshot

__all__ = ["HistogramDelta", "merge", "subtract"]

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class HistogramDelta:
    """Counts per bucket, not cumulative. Bounds in seconds; the last one is +inf."""

    upper_bounds_seconds: tuple[float, ...]
    counts: tuple[float, ...]
    sum_seconds: float

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean_seconds(self) -> float | None:
        return self.sum_seconds / self.count if self.count > 0 else None

    def quantile_seconds(self, probability: float) -> float | None:
        """Linear inside a bucket, as PromQL's histogram_quantile; the open bucket gives its foot."""
        if self.count <= 0:
            return None
        wanted, seen, foot = probability * self.count, 0.0, 0.0
        for bound, count in zip(self.upper_bounds_seconds, self.counts, strict=True):
            if count > 0 and seen + count >= wanted:
                if math.isinf(bound):
                    return foot
                return foot + (bound - foot) * (wanted - seen) / count
            seen += count
            if math.isfinite(bound):
                foot = bound
        return foot

    def quantiles_seconds(self, probabilities: Sequence[float]) -> tuple[float, ...]:
        """`quantile_seconds` of each of `probabilities` (ascending) in one pass; empty without data."""
        total = self.count
        if total <= 0:
            return ()
        found: list[float] = []
        wanted = iter(probabilities)
        probability = next(wanted, None)
        seen, foot = 0.0, 0.0
        for bound, count in zip(self.upper_bounds_seconds, self.counts, strict=True):
            width = 0.0 if math.isinf(bound) else bound - foot
            while probability is not None and count > 0 and seen + count >= probability * total:
                found.append(foot + width * max(0.0, probability * total - seen) / count)
                probability = next(wanted, None)
            seen += count
            if math.isfinite(bound):
                foot = bound
        while probability is not None:  # rounding may leave the last one just above the sum
            found.append(foot)
            probability = next(wanted, None)
        return tuple(found)

    def squared_variation(self) -> float | None:
        """CV², from the buckets' middles: as coarse as the buckets are. None without data."""
        mean = self.mean_seconds
        if mean is None or mean <= 0:
            return None
        second, foot = 0.0, 0.0
        for bound, count in zip(self.upper_bounds_seconds, self.counts, strict=True):
            middle = foot * 1.5 if math.isinf(bound) else (foot + bound) / 2
            second += count * middle * middle
            foot = bound
        return max(0.0, second / self.count / (mean * mean) - 1.0)


def subtract(later: HistogramSnapshot, earlier: HistogramSnapshot) -> HistogramDelta | None:
    """None when the two do not belong together: other buckets, a reset, or no finite numbers."""
    if later.upper_bounds_seconds != earlier.upper_bounds_seconds or not later.cumulative_counts:
        return None
    if len(later.cumulative_counts) != len(earlier.cumulative_counts) or len(
        later.cumulative_counts
    ) != len(later.upper_bounds_seconds):
        return None
    cumulative = [
        a - b for a, b in zip(later.cumulative_counts, earlier.cumulative_counts, strict=True)
    ]
    total = later.sum_seconds - earlier.sum_seconds
    if not all(map(math.isfinite, (*cumulative, total))) or total < 0:
        return None
    counts = [b - a for a, b in zip([0.0, *cumulative], cumulative, strict=False)]
    # Counters that went through a recording rule are sums of floats: their last digits are noise.
    if min(counts) < -ROUNDING * max(1.0, later.count):
        return None
    return HistogramDelta(
        later.upper_bounds_seconds, tuple(max(0.0, count) for count in counts), total
    )


def merge(parts: list[HistogramDelta]) -> HistogramDelta | None:
    """Sum of the parts that share the first one's buckets; None without any."""
    if not parts:
        return None
    same = [p for p in parts if p.upper_bounds_seconds == parts[0].upper_bounds_seconds]
    return HistogramDelta(
        parts[0].upper_bounds_seconds,
        tuple(sum(column) for column in zip(*(p.counts for p in same), strict=True)),
        sum(p.sum_seconds for p in same),
    )
