"""CPU by percentile as VerticalPodAutoscaler recommends it, threads by floor(quota).

A histogram of CPU use with buckets that grow by 5 % from 0.01 cores; a sample's weight doubles
every 24 h, so old ones fade; the recommendation is the 90th percentile and 15 % on top, at least
25m. The limit, where there is one, moves with it, and the program follows the recommendation:
max(1, floor(cores)).
"""

import math
from dataclasses import dataclass, field

from slimscale.bench.policy import Choice, PolicyView, cores_in_reach, within
from slimscale.simulate.workload import Host
from slimscale.threads.predictor import floor_of_quota

__all__ = ["CpuPercentile", "DecayingHistogram"]

FIRST_BUCKET_CORES, GROWTH = 0.01, 1.05
HALF_LIFE_SECONDS = 86_400.0
PERCENTILE, MARGIN = 0.90, 1.15
LEAST_CORES = 0.025
LEAST_WEIGHT = 0.1


@dataclass(slots=True)
class DecayingHistogram:
    """Weights of exponentially growing buckets; the newest sample weighs most."""

    weights: dict[int, float] = field(default_factory=dict)

    def add(self, cores: float, *, weight: float, at_seconds: float) -> None:
        inner = max(cores, 0.0) * (GROWTH - 1.0) / FIRST_BUCKET_CORES + 1.0
        bucket = math.floor(math.log(inner) / math.log(GROWTH) + 1e-9)
        grown = weight * 2.0 ** (at_seconds / HALF_LIFE_SECONDS)
        self.weights[bucket] = self.weights.get(bucket, 0.0) + grown

    def percentile_cores(self, share: float) -> float:
        """The upper end of the bucket in which `share` of the weight is reached; 0 when empty."""
        wanted, seen = share * sum(self.weights.values()), 0.0
        for bucket in sorted(self.weights):
            seen += self.weights[bucket]
            if seen >= wanted:
                return FIRST_BUCKET_CORES * (GROWTH ** (bucket + 1) - 1.0) / (GROWTH - 1.0)
        return 0.0


@dataclass(slots=True)
class CpuPercentile:
    """Never more CPU than the pod came with: the comparison is about the same machine."""

    name: str = "vpa-percentile"
    step_seconds: float = 60.0
    """The recommender's own interval."""
    apply_delay_seconds: float = 1.0
    histogram: DecayingHistogram = field(default_factory=DecayingHistogram)
    _most_cores: float = field(default=1.0, repr=False)
    _limited: bool = field(default=False, repr=False)

    def start(self, host: Host) -> int:
        self._limited = host.quota_cores is not None
        self._most_cores = cores_in_reach(host.cores, host.quota_cores)
        return within(floor_of_quota(self._most_cores))

    def choose(self, view: PolicyView) -> Choice:
        weight = max(view.cores_in_reach, LEAST_WEIGHT)
        self.histogram.add(view.cpu_used_cores, weight=weight, at_seconds=view.now_seconds)
        wanted = MARGIN * self.histogram.percentile_cores(PERCENTILE)
        cores = min(max(wanted, LEAST_CORES), self._most_cores)
        threads = within(floor_of_quota(cores))
        return Choice(threads, quota_cores=cores if self._limited else None)
