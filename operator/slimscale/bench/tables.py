"""The tables of a benchmark: on the terminal and, with the same figures, in Markdown."""

import numpy as np
from rich.console import Console
from rich.table import Table

from slimscale.bench.dynamics import recoveries, regret
from slimscale.bench.results import Results
from slimscale.bench.scenarios import SHAPES, shape_of

__all__ = ["print_summary", "print_worst", "shares_of_best"]

BEST = "best-per-phase"


def shares_of_best(results: Results, policy: str) -> dict[str, float]:
    """For each scenario, mean over seeds of throughput over best-per-phase's."""
    return {
        name: float(np.mean([1.0 - r for r in regret(both)]))
        for name, both in results.pairs(policy, BEST).items()
    }


def print_summary(results: Results, console: Console) -> None:
    """Every policy's share of the best per phase, by shape of load and overall, best first."""
    table = Table(title="throughput, tuning included, as a share of best-per-phase")
    table.add_column("policy", no_wrap=True)
    shapes = [s for s in SHAPES if any(shape_of(name) == s for name in results.scenarios)]
    for column in ("all", "worst", *shapes, "steps*", "seconds*"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = []
    for policy in results.policies:
        shares = shares_of_best(results, policy)
        if not shares:
            continue
        overall = float(np.exp(np.mean(np.log(list(shares.values())))))
        by_shape = [
            np.mean([v for name, v in shares.items() if shape_of(name) == s]) for s in shapes
        ]
        rows.append((overall, policy, min(shares.values()), by_shape, _recovery(results, policy)))
    for overall, policy, worst, by_shape, (steps, seconds) in sorted(rows, reverse=True):
        table.add_row(
            policy,
            f"{overall:.3f}",
            f"{worst:.2f}",
            *(f"{value:.2f}" for value in by_shape),
            steps,
            seconds,
            style="bold" if policy.startswith("autothread") else "",
        )
    console.print(table)
    console.print(
        "all: geometric mean over scenarios. * median and 90th percentile after a change of load"
        " that had to be followed, until within 5 % of the phase's best (inf: not reached).",
        style="dim",
    )


def print_worst(results: Results, policy: str, console: Console, *, count: int = 10) -> None:
    """The scenarios in which `policy` lies furthest below the best, beside what did better."""
    mine = shares_of_best(results, policy)
    if not mine:
        return
    others = {p: shares_of_best(results, p) for p in results.policies if p not in (policy, BEST)}
    table = Table(title=f"where {policy} loses most")
    table.add_column("scenario", no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("better there", no_wrap=True)
    for name, share in sorted(mine.items(), key=lambda item: item[1])[:count]:
        ahead = sorted(
            ((o[name], p) for p, o in others.items() if o.get(name, 0.0) > share), reverse=True
        )
        shown = ", ".join(f"{p} {value:.2f}" for value, p in ahead[:3])
        table.add_row(name, f"{share:.3f}", shown or "-")
    console.print(table)


def _recovery(results: Results, policy: str) -> tuple[str, str]:
    found = [
        recovery
        for run in results.of_policy(policy)
        for recovery in recoveries(run, results.curves[run.scenario])
        if not recovery.was_near
    ]
    if not found:
        return "-", "-"
    steps = [r.steps if r.seconds is not None else np.inf for r in found]
    seconds = [r.seconds if r.seconds is not None else np.inf for r in found]
    return _median_and_high(steps), _median_and_high(seconds)


def _median_and_high(values: list[float]) -> str:
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    high = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{ordered[len(ordered) // 2]:.0f} / {high:.0f}"
