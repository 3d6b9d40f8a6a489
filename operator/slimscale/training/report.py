"""The comparison as JSON, as a page of tables, and as a plot."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slimscale.training.dataset import LABELS
from slimscale.training.evaluate import LABEL_COUNTS, Judged
from slimscale.training.raw import GRID
from slimscale.training.workloads import HELD_OUT_FAMILIES, Split

__all__ = ["write_report"]

METHODS_BY_LABELS = ("operator network", "XGBoost k*", "XGBoost curve")
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
        "Throughput given up by one choice, 1 - T(k_hat)/max T, on simulated workloads. k_hat is"
        f" the fewest threads within {facts['tolerance']:.0%} of the predicted curve's maximum, as"
        " `threads/objective.choose` takes it with that tolerance. T is measured by simulation at"
        f" {len(GRID)} thread counts from 1 to {GRID[-1]}, smoothed to rise and then fall. The row *the"
        " best choice itself* is what the noise of that measurement, and the tolerance, cost where"
        " the truth is known.",
        "",
        "The operator looked at the load with one thread count, log-uniform in 1 to 64: *first"
        " look*. In half of the cases it had looked at another count before: *second look*."
        f" Held-out families ({', '.join(HELD_OUT_FAMILIES)}) are in no training case.",
        "",
    ]
    lines += _against_the_goals(compared, by_labels)
    for split in (Split.HELD_OUT, Split.SEEN):
        lines += _table(f"{split.value.capitalize()} families, one choice", compared, split)
    lines += [
        "Next: each look is at the count that was chosen after the one before, and the operator"
        " remembers what it saw. It keeps the best in the end, as what costs throughput is taken"
        " back (`threads/verify.py`), which this comparison leaves out.",
        "",
    ]
    for split in (Split.HELD_OUT, Split.SEEN):
        lines += _table(f"{split.value.capitalize()} families, look after look", looks, split)
    if by_labels:
        lines += _label_table(by_labels)
    lines += ["## What ran", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in facts.items()]
    return "\n".join(lines) + "\n"


def _against_the_goals(compared: Sequence[Judged], by_labels: Sequence[Judged]) -> list[str]:
    """The network's held-out figures beside what was asked of it; computed, whatever they say."""
    own = [j.spreads["all"] for j in compared if _is(j, "operator network")]
    if not own:
        return []
    network = own[0]
    lines = ["## Against the goals (held-out families, one choice)", ""]
    lines += ["| goal | measured | reached |", "|---|---:|---|"]
    for name, share, most in (("median", network.median, 0.01), ("p95", network.p95, 0.05)):
        words = "yes" if share < most else "no"
        lines.append(f"| {name} under {most:.0%} | {100 * share:.2f} % | {words} |")
    others = [("the analytic model", [j for j in compared if _is(j, "analytic")])]
    for method in METHODS_BY_LABELS[1:]:
        same = [j for j in by_labels if _is(j, method) and j.labels == FEW_LABELS]
        others.append((f"{method} at {FEW_LABELS} labels", same))
    for name, judged in others:
        for figure in ("median", "mean", "p95"):
            known = [getattr(j.spreads["all"], figure) for j in judged]
            if known:
                ratio = getattr(network, figure) / float(np.mean(known))
                words = "yes" if ratio <= 0.5 else "no"
                lines.append(
                    f"| {figure} at most half of that of {name} | {ratio:.2f} of it | {words} |"
                )
    return [*lines, ""]


def _is(judged: Judged, method: str) -> bool:
    return judged.method == method and judged.split == Split.HELD_OUT.value


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
        "| method | labels | mean | p95 |",
        "|---|---:|---:|---:|",
    ]
    for method in METHODS_BY_LABELS:
        for count in LABEL_COUNTS:
            means, tails = _over_seeds(by_labels, method, count)
            if means:
                lines.append(f"| {method} | {count} | {_range(means)} | {_range(tails)} |")
    return [*lines, ""]


def _over_seeds(
    by_labels: Sequence[Judged], method: str, count: int
) -> tuple[list[float], list[float]]:
    spreads = [
        judged.spreads["all"]
        for judged in by_labels
        if judged.method == method
        and judged.labels == count
        and judged.split == Split.HELD_OUT.value
    ]
    return [s.mean for s in spreads], [s.p95 for s in spreads]


def _range(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * float(np.mean(values)):.2f} % ({low:.2f} to {high:.2f})"


def _plot(path: Path, compared: Sequence[Judged], by_labels: Sequence[Judged]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=130)
    for method in METHODS_BY_LABELS:
        found = {count: _over_seeds(by_labels, method, count)[0] for count in LABEL_COUNTS}
        counts = [count for count, means in found.items() if means]
        middle = [100 * float(np.mean(found[count])) for count in counts]
        low = [100 * min(found[count]) for count in counts]
        high = [100 * max(found[count]) for count in counts]
        (line,) = axes.plot(counts, middle, marker="o", label=method)
        axes.fill_between(counts, low, high, alpha=0.15, color=line.get_color())
    for judged in compared:
        if judged.method == "analytic" and judged.split == Split.HELD_OUT.value:
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
