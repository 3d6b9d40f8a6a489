"""The last samples of each pod, in memory. Bounded in time and in number."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import Freshness
from slimscale.observe.scrape import SampleOutcome

__all__ = ["PodSamples", "SampleStore"]

MAX_SAMPLES_PER_POD = 240


@dataclass(frozen=True, slots=True)
class PodSamples:
    samples: tuple[ContractSample, ...] = ()
    freshness: Freshness = Freshness.MISSING
    problem: str = ""


@dataclass(slots=True)
class _Series:
    samples: deque[ContractSample] = field(
        default_factory=lambda: deque(maxlen=MAX_SAMPLES_PER_POD)
    )
    problem: str = ""
    invalid: bool = False


class SampleStore:
    """One for each SimWorkload. All times are wall-clock seconds."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def record(self, outcome: SampleOutcome, *, horizon_seconds: float) -> None:
        """Keep a sample, or why there is none. Of samples that lie too close the newest stays."""
        series = self._series.setdefault(outcome.pod_uid, _Series())
        series.problem, series.invalid = outcome.problem, outcome.invalid
        sample = outcome.sample
        if sample is None:
            return
        kept = series.samples
        if kept and sample.sampled_at_seconds <= kept[-1].sampled_at_seconds:
            return  # seen before, or the wall clock stepped back
        if kept and _stands_still(kept[-1], sample):
            series.problem = "the pod has work, but none of its counters moves"
            return  # not a new sample: the last one ages until it is stale
        gap_seconds = horizon_seconds / MAX_SAMPLES_PER_POD
        if (
            len(kept) >= 2
            and kept[-1].sampled_at_seconds - kept[-2].sampled_at_seconds < gap_seconds
        ):
            kept.pop()
        kept.append(sample)

    def retain(self, pod_uids: Iterable[str]) -> None:
        """Forget pods that are gone."""
        alive = set(pod_uids)
        self._series = {uid: series for uid, series in self._series.items() if uid in alive}

    def read(
        self,
        pod_uid: str,
        *,
        now_seconds: float,
        horizon_seconds: float,
        max_age_seconds: float,
    ) -> PodSamples:
        """Samples within the horizon, oldest first, and whether they may be acted on."""
        series = self._series.get(pod_uid)
        if series is None:
            return PodSamples(problem="not sampled yet")
        samples = tuple(
            sample
            for sample in series.samples
            if -max_age_seconds <= now_seconds - sample.sampled_at_seconds <= horizon_seconds
        )
        if series.invalid:
            return PodSamples(samples, Freshness.INVALID, series.problem)
        if not samples:
            return PodSamples((), Freshness.MISSING, series.problem or "no sample yet")
        age_seconds = now_seconds - samples[-1].sampled_at_seconds
        if age_seconds > max_age_seconds:
            problem = series.problem or f"the last sample is {age_seconds:.0f} s old"
            return PodSamples(samples, Freshness.STALE, problem)
        return PodSamples(samples, Freshness.FRESH, series.problem)


def _stands_still(earlier: ContractSample, later: ContractSample) -> bool:
    """A page that is served again and again: with work waiting, some counter would have moved.

    Taken for a sample, it would look like a fall in throughput. An idle pod's page may stand still.
    """
    same = replace(later, sampled_at_seconds=earlier.sampled_at_seconds) == earlier
    return same and bool(later.tasks_outstanding)
