"""docs/results/autoscaling.*: the table, the verdict and the plot of one benchmark."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slimscale.bench.autoscaling.runner import KNATIVE_UTILISATION, Record, operator_period
from slimscale.bench.autoscaling.scenario import (
    DEADLINE_SECONDS,
    PERCENTILE,
    POOL,
    SLO_SECONDS,
    STARTS_WITHIN_SECONDS,
    TRACES,
    TUNED_UNTIL_SECONDS,
    WIDTHS,
    pod_rows,
)

__all__ = ["Report", "Summary", "summaries", "write_report"]

STEM = "autoscaling"
OURS, PEAK = "slimscale", "static-peak"
MOST_OF_PEAK = 0.8
SHOWN = ("slimscale", "hpa-cpu-50", "kpa-rps", "static-peak")


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over the seeds; attainment's least and most too."""

    scenario: str
    scaler: str
    seeds: int
    attainment: float
    least_attainment: float
    most_attainment: float
    pod_seconds: float
    of_peak: float
    changes: float
    turns: float
    most: float
    accuracy: float
    rejected: float
    late: float


@dataclass(frozen=True, slots=True)
class Report:
    records: tuple[Record, ...]
    enough: Mapping[str, Record]
    """By scenario: the fixed count that would just have been enough."""
    command: str
    wall_seconds: float


def summaries(records: Sequence[Record]) -> list[Summary]:
    """In the order of the records: scenarios, then autoscalers."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.scenario, record.scaler), []).append(record)
    peaks = {
        scenario: fmean(r.pod_seconds for r in found)
        for (scenario, scaler), found in groups.items()
        if scaler == PEAK
    }
    return [
        Summary(
            scenario=scenario,
            scaler=scaler,
            seeds=len(found),
            attainment=fmean(r.attainment for r in found),
            least_attainment=min(r.attainment for r in found),
            most_attainment=max(r.attainment for r in found),
            pod_seconds=fmean(r.pod_seconds for r in found),
            of_peak=fmean(r.pod_seconds for r in found) / peaks[scenario],
            changes=fmean(r.changes for r in found),
            turns=fmean(r.turns for r in found),
            most=fmean(r.most for r in found),
            accuracy=fmean(r.accuracy for r in found),
            rejected=fmean(r.rejected for r in found),
            late=fmean(r.late for r in found),
        )
        for (scenario, scaler), found in groups.items()
    ]


def verdicts(rows: Sequence[Summary]) -> list[dict[str, Any]]:
    """The goal, for each scenario and HPA: attainment at least its own, at 80 % of the peak's pods,
    and no more turns.
    """
    by_key = {(row.scenario, row.scaler): row for row in rows}
    found = []
    for row in rows:
        if not row.scaler.startswith("hpa"):
            continue
        ours = by_key[(row.scenario, OURS)]
        found.append(
            {
                "scenario": row.scenario,
                "against": row.scaler,
                "attainment": ours.attainment,
                "theirs": row.attainment,
                "of_peak": ours.of_peak,
                "turns": ours.turns,
                "their_turns": row.turns,
                "met": ours.attainment >= row.attainment
                and ours.of_peak <= MOST_OF_PEAK
                and ours.turns <= row.turns,
            }
        )
    return found


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write JSON, Markdown and the plot into `folder`; what was written, the Markdown first."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = summaries(report.records)
    page, data = folder / f"{STEM}.md", folder / f"{STEM}.json"
    image = folder / f"{STEM}.png"
    document = {
        "ran": {
            "command": report.command,
            "machine": f"{platform.machine()} {platform.system()} Python {platform.python_version()}",
            "wall_seconds": round(report.wall_seconds, 1),
        },
        "verdicts": verdicts(rows),
        "runs": [{**r.to_json(), "timeline": []} for r in report.records],
        "just_enough": {n: {**r.to_json(), "timeline": []} for n, r in report.enough.items()},
    }
    data.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    draw(report.records, image)
    page.write_text(_markdown(report, rows, image.name), encoding="utf-8")
    return [page, data, image]


def _markdown(report: Report, rows: Sequence[Summary], image: str) -> str:
    lines = [
        "# Autoscalers on recorded traffic",
        "",
        f"Written by `{report.command} --out docs/results`. Simulated time: the routing policy, the pods'"
        " queues and the scaling decisions are the code that runs in the cluster; arrivals are recorded,"
        " service times and starts of pods are simulated.",
        "",
        f"One pool; a batch of b rows takes {POOL.base_seconds * 1000:g} + {POOL.row_seconds * 1000:g} b ms"
        f" at the widest, with 10 % noise; a pod is ready {POOL.start_seconds:g} s after it was asked for."
        f" SLO {SLO_SECONDS * 1000:g} ms for {PERCENTILE:.0%} of the requests; what is not answered in"
        f" {DEADLINE_SECONDS:g} s is dropped, and counts as a miss like a refusal. A pod takes"
        f" {pod_rows():.1f} rows/s within the SLO (sizing, to which KPA's target is"
        f" {KNATIVE_UTILISATION:.0%}). Ours runs with the API's defaults and looks every"
        f" {operator_period():g} s as the operator does by default, and 5 s after a change or while a pod"
        " starts; slimscale-2s is the same looking every 2 s.",
        "",
        "Traces: " + "; ".join(f"**{t.name}** ({t.shape}), every arrival {t.copies} times within"
        " a second" for t in TRACES)
        + ". Source and licence: [data/traces](../../data/traces/README.md).",
        "",
        f"The defaults of scaling were chosen on the first {TUNED_UNTIL_SECONDS:g} seconds of both traces"
        " (with seeds of their own). **second half** is what comes after, which nothing was tuned on; the"
        " other rows are whole traces. Each seed begins its trace at another second of the first"
        f" {STARTS_WITHIN_SECONDS:g}, with one pod.",
        "",
        "| trace | autoscaler | within SLO (least to most of the seeds) | pod-seconds | of static peak | changes"
        " | turns | most pods | mean accuracy | late | refused |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [_row(row) for row in rows]
    lines += ["", f"![Pods over time]({image})", "", "## Goal", ""]
    lines.append(
        f"Attainment at least HPA's, at no more than {MOST_OF_PEAK:.0%} of static peak's pod-seconds,"
        " with no more turns than HPA's."
    )
    lines.append("")
    for verdict in verdicts(rows):
        word = "met" if verdict["met"] else "**not met**"
        lines.append(
            f"- {verdict['scenario']}, against {verdict['against']}: {word}"
            f" ({verdict['attainment']:.2%} against {verdict['theirs']:.2%},"
            f" {verdict['of_peak']:.0%} of the peak's pod-seconds,"
            f" {verdict['turns']:.1f} turns against {verdict['their_turns']:.1f})"
        )
    lines += ["", "## How to read it", "", *_reading(report, rows)]
    return "\n".join(lines) + "\n"


def _row(row: Summary) -> str:
    name = f"**{row.scaler}**" if row.scaler == OURS else row.scaler
    return (
        f"| {row.scenario} | {name} | {row.attainment:.1%}"
        f" ({row.least_attainment:.1%} to {row.most_attainment:.1%})"
        f" | {row.pod_seconds:,.0f} | {row.of_peak:.0%} | {row.changes:.1f} | {row.turns:.1f}"
        f" | {row.most:.1f} | {row.accuracy:.3f} | {row.late:,.0f} | {row.rejected:,.0f} |"
    )


def _reading(report: Report, rows: Sequence[Summary]) -> list[str]:
    seeds = max(row.seeds for row in rows)
    lines = [
        f"- Seeds: {seeds}. They move the beginning of the trace and spread the copies of each arrival,"
        " the noise of batches and of starts.",
        "- static-peak: as many pods as the busiest six seconds need, sized as ours, all the time.",
        "- HPA: kubernetes' algorithm on CPU utilisation with the defaults of the controller manager:"
        " 15 s sync, tolerance 0.1, unready and missing pods as in its replica calculator, 5 minutes"
        " of stabilisation downwards, 4 pods or 100 % in 15 s upwards; metrics-server reads every 15 s."
        " A pod's CPU cannot exceed its request, so its ratio is at most 1 over the target.",
        "- KPA: Knative's, on rows a second, stable window 60 s, panic window 6 s at 200 %; asked every"
        " 2 s.",
        "- Pods and attainment are bought with each other: where another autoscaler has fewer pod-seconds,"
        " look at what it missed, and the other way round.",
        "- A turn is a change of direction: up after down or down after up.",
        '- "all widths": the router may choose narrower widths, which bridge a burst until pods are'
        " there, at the accuracy that the table shows; without it every request gets the widest."
        " Accuracies and FLOPs of the widths are assumed, not measured: "
        + ", ".join(f"{w.accuracy:g} and {w.flops_ratio:g} at width {w.ratio:g}" for w in WIDTHS)
        + ".",
    ]
    for name, record in report.enough.items():
        ours = next((r for r in rows if r.scenario == name and r.scaler == OURS), None)
        if ours is None:
            continue
        lines.append(
            f"- In hindsight {record.most} pods all the time would have been just enough on {name}:"
            f" {record.attainment:.1%} within the SLO for {record.pod_seconds:,.0f} pod-seconds"
            f" (ours {ours.attainment:.1%} for {ours.pod_seconds:,.0f}). Nobody knows that count before."
        )
    return lines


def draw(records: Sequence[Record], path: Path) -> None:
    """Pods asked for over time, a panel a scenario, first seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    every = list(dict.fromkeys(record.scenario for record in records))
    names = [name for name in every if "second half" not in name] or every
    figure, grid = pyplot.subplots(
        len(names), 1, figsize=(9, 2.6 * len(names)), layout="constrained", squeeze=False
    )
    seed = min(record.seed for record in records)
    for axes, name in zip(grid[:, 0], names, strict=True):
        for record in records:
            if record.scenario != name or record.seed != seed or record.scaler not in SHOWN:
                continue
            at = [point[0] / 60 for point in record.timeline]
            label = f"{record.scaler}: {record.attainment:.1%} within the SLO"
            width = 2.0 if record.scaler == OURS else 1.0
            axes.step(
                at, [point[1] for point in record.timeline], where="post", lw=width, label=label
            )
        axes.set(title=name, ylabel="pods asked for")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7, loc="upper right")
    grid[-1, 0].set_xlabel("minutes")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
