"""The comparison as JSON, as a page of tables, and as a plot."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from slimscale.training.dataset import LABELS
from slimscale.training.evaluate import (
    ANALYTIC,
    AT_MOST,
    KEPT,
    KNOWABLE,
    LABEL_COUNTS,
    NETWORK,
    PROBING,
    TOLERANT,
    Judged,
)
from slimscale.training.judge import Spread
from slimscale.training.raw import GRID
from slimscale.training.workloads import HELD_OUT_FAMILIES, Split

__all__ = ["write_report"]

METHODS_BY_LABELS = (NETWORK, "XGBoost k*", "XGBoost curve")
FEW_LABELS = 300


def write_report(
    folder: Path,
    *,
    compared: Sequence[Judged],
    looks: Sequence[Judged],
    by_labels: Sequence[Judged],
    facts: dict[str, object],
) -> None:
    """threads-network.{json,md,png} in `folder`. `facts`: seeds, cases, tolerance, seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "facts": facts,
        "compared": [judged.as_json() for judged in compared],
        "looks": [judged.as_json() for judged in looks],
        "label_efficiency": [judged.as_json() for judged in by_labels],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / "threads-network.json").write_text(text + "\n", encoding="utf-8")
    page = _page(compared, looks, by_labels, facts)
    (folder / "threads-network.md").write_text(page, encoding="utf-8")
    if by_labels:
        _plot(folder / "threads-network.png", compared, by_labels)


def _page(
    compared: Sequence[Judged],
    looks: Sequence[Judged],
    by_labels: Sequence[Judged],
    facts: dict[str, object],
) -> str:
    lines = [
        "# The operator network beside the analytic model and XGBoost",
        "",
        "Throughput given up by one choice, 1 - T(k_hat)/T(k*), on simulated workloads. k_hat is"
        " where the predicted curve has its maximum or, where a row says so, the fewest threads"
        f" within {facts['tolerance']:.0%} of it, as `threads/objective.choose` takes it with that"
        f" tolerance. T is measured by simulation at {len(GRID)} thread counts from 1 to {GRID[-1]},"
        " smoothed to rise and then fall, twice with other random numbers. k* comes from one"
        " measurement and T from the other, both ways round, so that noise is in no mean; single"
        " losses may be below 0. The rows *against the same measurement* compare with the greatest"
        " rate of both measurements together, which is too high by their noise: the true loss lies"
        " between the two.",
        "",
        "The operator looked at the load with one thread count, log-uniform in 1 to 64: *first"
        " look*. In half of the cases it had looked at another count before: *second look*."
        f" Held-out families ({', '.join(HELD_OUT_FAMILIES)}) are in no training case.",
        "",
        f"*{KNOWABLE.capitalize()}* is a bound for one look, not a method: a chooser that knows all"
        " means exactly, and how often each contention occurs, in the queueing model's own world"
        " (`training/knowable.py`). Contention shows only with a crowd at the dispatcher; where the"
        " look had none, the count that is best cannot be known from it.",
        "",
    ]
    lines += _against_the_goals(compared, looks, by_labels)
    for split in (Split.HELD_OUT, Split.SEEN):
        lines += _table(f"{split.value.capitalize()} families, one choice", compared, split)
    lines += [
        "Next: each look is at the count that was chosen after the one before, and the operator"
        " remembers what it saw; what was measured overrules what is predicted, as in"
        " `threads/recommend.py`. *With probes* a count that stays is doubted by the steps of"
        " `threads/probe.py`; the last row is the count that is kept after all looks: the best tried"
        " one, unless an untried one promises more than the hysteresis (5 %) above it.",
        "",
    ]
    for split in (Split.HELD_OUT, Split.SEEN):
        lines += _table(f"{split.value.capitalize()} families, look after look", looks, split)
    if by_labels:
        lines += _label_table(by_labels)
    lines += ["## What ran", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in facts.items()]
    return "\n".join(lines) + "\n"


def _against_the_goals(
    compared: Sequence[Judged], looks: Sequence[Judged], by_labels: Sequence[Judged]
) -> list[str]:
    """The network's held-out figures beside what was asked of it; computed, whatever they say."""
    own = [j.spreads for j in compared if _is(j, NETWORK)]
    after = [
        (f"{KEPT}{words}", j.spreads[KEPT])
        for words in ("", PROBING)
        for j in looks
        if _is(j, f"{NETWORK}{words}")
    ]
    bound = [j.spreads["first look"] for j in compared if _is(j, KNOWABLE)]
    if not own:
        return []
    network = own[0]["all"]
    lines = ["## Against the goals (held-out families)", ""]
    lines += ["| goal | measured | reached |", "|---|---:|---|"]
    for name, most in (("median", 0.01), ("p95", 0.05)):
        rows = [("one choice", network), ("against the same measurement", own[0][AT_MOST])]
        rows += after
        for words, spread in rows:
            share = getattr(spread, name)
            verdict = "yes" if share < most else "no"
            lines.append(f"| {name} under {most:.0%}, {words} | {100 * share:.2f} % | {verdict} |")
        for spread in bound:
            share = 100 * getattr(spread, name)
            lines.append(f"| {name}, {KNOWABLE} (bound for a first look) | {share:.2f} % | |")
    analytic = [j for j in compared if j.method.startswith(ANALYTIC) and _held_out(j)]
    others: list[tuple[str, list[Judged], Callable[[Sequence[float]], float]]]
    others = [("the analytic model", analytic, min)]
    for method in METHODS_BY_LABELS[1:]:
        same = [j for j in by_labels if _is(j, method) and j.labels == FEW_LABELS]
        others.append((f"{method} at {FEW_LABELS} labels", same, _mean))
    for name, judged, together in others:
        for figure in ("median", "mean", "p95"):
            known = [getattr(j.spreads["all"], figure) for j in judged]
            if known:
                ratio = getattr(network, figure) / together(known)
                words = "yes" if ratio <= 0.5 else "no"
                lines.append(
                    f"| {figure} at most half of that of {name} | {ratio:.2f} of it | {words} |"
                )
    return [
        *lines,
        "",
        "Of the analytic model with and without tolerance the better figure counts.",
        "",
    ]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _held_out(judged: Judged) -> bool:
    return judged.split == Split.HELD_OUT.value


def _is(judged: Judged, method: str) -> bool:
    return judged.method == method and _held_out(judged)


def _table(title: str, compared: Sequence[Judged], split: Split) -> list[str]:
    lines = [f"## {title}", ""]
    lines.append("| method | labels | looks | rows | median | mean | p90 | p95 | worst |")
    lines.append("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for judged in (j for j in compared if j.split == split.value):
        for group, spread in judged.spreads.items():
            shares = (spread.median, spread.mean, spread.p90, spread.p95, spread.worst)
            figures = " | ".join(f"{100 * share:.2f} %" for share in shares)
            lines.append(
                f"| {judged.method} | {judged.labels or ''} | {group} | {spread.rows} | {figures} |"
            )
    return [*lines, ""]


def _label_table(by_labels: Sequence[Judged]) -> list[str]:
    lines = [
        "## By the number of labels",
        "",
        "Held-out families. A label is a workload with its curve measured at"
        f" {LABELS[Split.TRAIN].counts} thread counts;"
        " all methods get the same ones and the same features. Mean over seeds, with the range.",
        "",
        "| method | labels | median | mean | p95 |",
        "|---|---:|---:|---:|---:|",
    ]
    for method in METHODS_BY_LABELS:
        for count in LABEL_COUNTS:
            found = _over_seeds(by_labels, method, count)
            if found:
                figures = " | ".join(
                    _range([getattr(spread, name) for spread in found])
                    for name in ("median", "mean", "p95")
                )
                lines.append(f"| {method} | {count} | {figures} |")
    return [*lines, ""]


def _over_seeds(by_labels: Sequence[Judged], method: str, count: int) -> list[Spread]:
    return [j.spreads["all"] for j in by_labels if _is(j, method) and j.labels == count]


def _range(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * float(np.mean(values)):.2f} % ({low:.2f} to {high:.2f})"


def _plot(path: Path, compared: Sequence[Judged], by_labels: Sequence[Judged]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=130)
    for method in METHODS_BY_LABELS:
        found = {
            count: [spread.mean for spread in _over_seeds(by_labels, method, count)]
            for count in LABEL_COUNTS
        }
        counts = [count for count, means in found.items() if means]
        middle = [100 * float(np.mean(found[count])) for count in counts]
        low = [100 * min(found[count]) for count in counts]
        high = [100 * max(found[count]) for count in counts]
        (line,) = axes.plot(counts, middle, marker="o", label=method)
        axes.fill_between(counts, low, high, alpha=0.15, color=line.get_color())
    for judged in compared:
        if judged.method == f"{ANALYTIC}{TOLERANT}" and judged.split == Split.HELD_OUT.value:
            level = 100 * judged.spreads["all"].mean
            axes.axhline(level, color="0.4", linestyle="--", label="analytic model (no labels)")
    axes.set_xscale("log")
    axes.set_xticks(LABEL_COUNTS, [str(count) for count in LABEL_COUNTS])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workloads with measured curves")
    axes.set_ylabel("throughput given up, mean (%)")
    axes.set_title("Choice of threads on held-out families")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
