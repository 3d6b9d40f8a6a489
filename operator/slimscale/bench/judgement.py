"""What a benchmark says of a policy: the figures behind the tables, in one JSON document."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from slimscale.bench.dynamics import Recovery, changes_between, probing, recoveries, regret
from slimscale.bench.metrics import compare_all, set_speed_up, spread
from slimscale.bench.results import Results
from slimscale.bench.scenarios import SHAPES, shape_of

__all__ = ["BEST", "NAMED_STATICS", "STATIC_RULES", "judge", "judge_steady", "rank"]

BEST = "best-per-phase"
NAMED_STATICS = ("unset", "floor-of-quota", "fixed-8", "fixed-16", "fixed-32")
"""Counts that are set without looking at the work: the set of the headline speed-up."""
STATIC_RULES = (*NAMED_STATICS, "r", "1+r", "goetz", "best-static-trained", "best-static-hindsight")
TUNERS = (
    "analytic-once",
    "xgboost-once",
    "xgboost-every-window",
    "thread-reinforcer-once",
    "thread-reinforcer",
    "thread-reinforcer-best",
    "dotnet-hill-climbing",
    "openmp-dynamic",
    "sliding-window-ucb",
    "vpa-percentile",
)
PAPER_SETTING = "drift"
WINDOW_SECONDS = 15.0
"""The operator's window: probing may cost no longer than that."""
SETTLED_SECONDS = 600.0
"""Into a steady hour, after which nothing should change."""
MOST_STEPS = 5


def judge(results: Results, policy: str = "autothread") -> dict[str, Any]:
    """Everything that is claimed of `policy`, each figure with what it is compared with."""
    drifting = [name for name in results.scenarios if shape_of(name) == PAPER_SETTING]
    named = set_speed_up(results, policy, _present(results, NAMED_STATICS))
    return {
        "policy": policy,
        "named_statics": list(NAMED_STATICS),
        "set_speed_up": named.to_json() if named else None,
        "against_statics": _comparisons(results, policy, STATIC_RULES),
        "against_tuners": _comparisons(results, policy, TUNERS),
        "drifting": _comparisons(results, policy, (*TUNERS, *STATIC_RULES), scenarios=drifting),
        "ranking": rank(results),
        "recovery": {name: _recovery(results, name) for name in results.policies},
        "probing": {name: _probing(results, name) for name in results.policies},
        "cpu": _cpu(results),
        "scenarios": _scenarios(results, policy),
    }


def rank(results: Results) -> list[dict[str, Any]]:
    """Every policy's share of best-per-phase: overall, by shape, and its regret's spread."""
    rows = []
    for policy in results.policies:
        pairs = results.pairs(policy, BEST)
        if not pairs:
            continue
        lost = {name: float(np.mean(regret(both))) for name, both in pairs.items()}
        shares = {name: 1.0 - value for name, value in lost.items()}
        rows.append(
            {
                "policy": policy,
                "share": _geometric(shares.values()),
                "worst_scenario": min(shares, key=lambda name: shares[name]),
                "by_shape": {
                    shape: _geometric(v for name, v in shares.items() if shape_of(name) == shape)
                    for shape in SHAPES
                    if any(shape_of(name) == shape for name in shares)
                },
                "regret": spread(list(lost.values()), more_is_better=False).to_json(),
            }
        )
    return sorted(rows, key=lambda row: -float(row["share"]))


def judge_steady(results: Results) -> dict[str, Any]:
    """Changes of the thread count in the last 50 minutes of an hour of one noisy load, a run."""
    found: dict[str, Any] = {}
    for policy in results.policies:
        counts = {
            name: [
                changes_between(run, SETTLED_SECONDS, run.duration_seconds)
                for run in results.runs(name, policy).values()
            ]
            for name in results.scenarios
        }
        flat = [count for counts_here in counts.values() for count in counts_here]
        if not flat:
            continue
        found[policy] = {
            "runs": len(flat),
            "median": float(np.median(flat)),
            "worst": max(flat),
            "without_any": sum(count == 0 for count in flat),
            "by_scenario": {n: float(np.mean(values)) for n, values in counts.items() if values},
        }
    return found


def _present(results: Results, names: Sequence[str]) -> list[str]:
    return [name for name in names if name in results.policies]


def _comparisons(
    results: Results,
    policy: str,
    bases: Sequence[str],
    *,
    scenarios: Iterable[str] | None = None,
) -> list[dict[str, object]]:
    found = compare_all(results, policy, _present(results, bases), scenarios=scenarios)
    return [comparison.to_json(corrected) for comparison, corrected in found]


def _all_recoveries(results: Results, policy: str) -> list[Recovery]:
    return [
        recovery
        for run in results.of_policy(policy)
        for recovery in recoveries(run, results.curves[run.scenario])
    ]


def _recovery(results: Results, policy: str) -> dict[str, Any] | None:
    """Over the changes of load that had to be followed; a change not followed counts as such."""
    found = [r for r in _all_recoveries(results, policy) if not r.was_near]
    if not found:
        return None
    reached = [r for r in found if r.seconds is not None]
    in_time = sum(r.steps <= MOST_STEPS for r in reached)
    return {
        "changes": len(found),
        "reached": len(reached) / len(found),
        "within_five_steps": in_time / len(found),
        "steps": spread([r.steps for r in reached], more_is_better=False).to_json()
        if reached
        else None,
        "seconds": spread([r.seconds or 0.0 for r in reached], more_is_better=False).to_json()
        if reached
        else None,
        "kept_after": float(np.mean([r.kept for r in reached])) if reached else 0.0,
        "phase_loss": spread([r.loss for r in found], more_is_better=False).to_json(),
    }


def _probing(results: Results, policy: str) -> dict[str, Any]:
    found = [probing(run, results.curves[run.scenario]) for run in results.of_policy(policy)]
    return {
        "runs": len(found),
        "worst_share": min(p.worst_share for p in found),
        "longest_seconds": max(p.longest_seconds for p in found),
        "runs_longer_than_a_window": sum(p.longest_seconds > WINDOW_SECONDS for p in found),
    }


def _cpu(results: Results) -> dict[str, Any]:
    """CPU set aside and used, as a share of the host's quota or cores, and tasks for it."""
    found: dict[str, Any] = {}
    for policy in results.policies:
        base = results.pairs(policy, "unset")
        saved, work = [], []
        for both in base.values():
            for ours, theirs in both:
                saved.append(1.0 - ours.cpu_core_seconds / theirs.cpu_core_seconds)
                work.append(max(ours.total_tasks, 1) / max(theirs.total_tasks, 1))
        if saved and max(saved) > 0:
            found[policy] = {
                "saved": spread(saved).to_json(),
                "tasks_over_unset": _geometric(work),
            }
    return found


def _scenarios(results: Results, policy: str) -> list[dict[str, Any]]:
    """One row a scenario: the share of the best of `policy` and of what it is measured by."""
    rows = []
    shown = _present(
        results,
        (policy, "floor-of-quota", "best-static-hindsight", "sliding-window-ucb", "xgboost-once"),
    )
    for name in results.scenarios:
        shares = {
            other: float(np.mean([1.0 - r for r in regret(both[name])]))
            for other in shown
            if name in (both := results.pairs(other, BEST, scenarios=[name]))
        }
        against = compare_all(
            results, policy, _present(results, ["floor-of-quota"]), scenarios=[name]
        )
        rows.append(
            {
                "scenario": name,
                "shares": shares,
                "over_floor": against[0][0].speed_up.to_json() if against else None,
            }
        )
    return rows


def _geometric(values: Iterable[float]) -> float:
    logs = [np.log(max(value, 1e-9)) for value in values]
    return float(np.exp(np.mean(logs)))
