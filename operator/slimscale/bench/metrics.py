"""Throughput with all tuning included, compared pair by pair (science.md 5, honest definitions)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from slimscale.bench.results import Results
from slimscale.bench.runner import RunRecord
from slimscale.bench.statistics import Interval, holm, ratio_interval, sign_flip_p_value

__all__ = [
    "Comparison",
    "Spread",
    "compare",
    "compare_all",
    "set_speed_up",
    "spread",
    "time_cut",
]

BOOTSTRAP_SEED = 20_26


@dataclass(frozen=True, slots=True)
class Spread:
    """Best, median, and the band that holds the middle 80 % of the values."""

    best: float
    worst: float
    mean: float
    median: float
    low: float
    """10th percentile."""
    high: float
    """90th percentile."""

    def to_json(self) -> dict[str, float]:
        return {
            "best": self.best,
            "worst": self.worst,
            "mean": self.mean,
            "median": self.median,
            "p10": self.low,
            "p90": self.high,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """One policy against one base over all scenarios and seeds that both ran."""

    policy: str
    base: str
    speed_up: Interval
    """Geometric mean of the ratios of throughput; every scenario counts once."""
    average_of_ratios: float
    ratio_of_averages: float
    time_cut: Spread
    """1 - time/base's time for the base's work; below 0 where the policy is slower."""
    wins: int
    losses: int
    """Scenarios in which the interval of the ratio lies above, or below, 1."""
    scenarios: int
    p_value: float
    """Paired sign-flip test over seeds, not corrected."""

    def to_json(self, corrected: float) -> dict[str, object]:
        return {
            "policy": self.policy,
            "base": self.base,
            "speed_up": self.speed_up.to_json(),
            "average_of_ratios": self.average_of_ratios,
            "ratio_of_averages": self.ratio_of_averages,
            "time_cut": self.time_cut.to_json(),
            "wins": self.wins,
            "losses": self.losses,
            "scenarios": self.scenarios,
            "p_value": self.p_value,
            "p_value_holm": corrected,
        }


def spread(values: Sequence[float], *, more_is_better: bool = True) -> Spread:
    """Raises ValueError for an empty sequence."""
    if not len(values):
        raise ValueError("no values; give at least one")
    data = np.asarray(values, dtype=np.float64)
    low, median, high = (float(q) for q in np.quantile(data, (0.1, 0.5, 0.9)))
    top, bottom = float(data.max()), float(data.min())
    best, worst = (top, bottom) if more_is_better else (bottom, top)
    return Spread(best, worst, float(data.mean()), median, low, high)


def time_cut(ours: RunRecord, theirs: RunRecord) -> float:
    """Share of the time saved for the same number of tasks, the smaller of the two totals.

    The work is what the slower of the two finished in the whole scenario; the load changes with
    the clock, not with the work done, so this is a race on the same road.
    """
    work = float(min(ours.total_tasks, theirs.total_tasks))
    return 1.0 - _time_for(ours, work) / _time_for(theirs, work)


def _time_for(run: RunRecord, work: float) -> float:
    """Seconds until `work` tasks were finished, evenly inside a tick."""
    done = 0.0
    for index, tasks in enumerate(run.tasks):
        if tasks > 0 and done + tasks >= work:
            return run.tick_seconds * (index + (work - done) / tasks)
        done += tasks
    return run.duration_seconds


def compare(
    results: Results, policy: str, base: str, *, scenarios: Iterable[str] | None = None
) -> Comparison | None:
    """None where the two share no run."""
    pairs = results.pairs(policy, base, scenarios=scenarios)
    if not pairs:
        return None
    ratios = {name: [_ratio(a, b) for a, b in both] for name, both in pairs.items()}
    flat = [pair for both in pairs.values() for pair in both]
    intervals = [ratio_interval({name: r}, seed=BOOTSTRAP_SEED) for name, r in ratios.items()]
    return Comparison(
        policy=policy,
        base=base,
        speed_up=ratio_interval(ratios, seed=BOOTSTRAP_SEED),
        average_of_ratios=float(np.mean([_ratio(a, b) for a, b in flat])),
        ratio_of_averages=sum(a.tasks_per_second for a, _ in flat)
        / max(sum(b.tasks_per_second for _, b in flat), 1e-12),
        time_cut=spread([time_cut(a, b) for a, b in flat]),
        wins=sum(interval.low > 1.0 for interval in intervals),
        losses=sum(interval.high < 1.0 for interval in intervals),
        scenarios=len(pairs),
        p_value=sign_flip_p_value(_by_seed(pairs), seed=BOOTSTRAP_SEED),
    )


def compare_all(
    results: Results,
    policy: str,
    bases: Sequence[str],
    *,
    scenarios: Iterable[str] | None = None,
) -> list[tuple[Comparison, float]]:
    """Each comparison with its p value corrected for all of them (Holm)."""
    chosen = list(scenarios) if scenarios is not None else None
    found = [c for base in bases if (c := compare(results, policy, base, scenarios=chosen))]
    corrected = holm({c.base: c.p_value for c in found})
    return [(c, corrected[c.base]) for c in found]


def set_speed_up(
    results: Results, policy: str, bases: Sequence[str], *, scenarios: Iterable[str] | None = None
) -> Interval | None:
    """Geometric mean over all bases and scenarios; the interval keeps a scenario's bases together."""
    chosen = list(scenarios) if scenarios is not None else None
    groups: dict[str, list[float]] = {}
    for base in bases:
        for name, both in results.pairs(policy, base, scenarios=chosen).items():
            groups.setdefault(name, []).extend(_ratio(a, b) for a, b in both)
    return ratio_interval(groups, seed=BOOTSTRAP_SEED) if groups else None


def _ratio(ours: RunRecord, theirs: RunRecord) -> float:
    # A policy that finished nothing at all counts as one task: a ratio must stay finite.
    return max(ours.total_tasks, 1) / max(theirs.total_tasks, 1)


def _by_seed(pairs: dict[str, list[tuple[RunRecord, RunRecord]]]) -> list[float]:
    """Mean log ratio of each seed over the scenarios: what the paired test looks at."""
    logs: dict[int, list[float]] = {}
    for both in pairs.values():
        for ours, theirs in both:
            logs.setdefault(ours.seed, []).append(math.log(_ratio(ours, theirs)))
    return [sum(values) / len(values) for values in logs.values()]
