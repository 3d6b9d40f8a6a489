"""The benchmark's page as Markdown, from the same document that is written as JSON. Pure."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from slimscale.bench.markdown import table
from slimscale.bench.serving.judge import Claim
from slimscale.bench.serving.neutral import Verdict
from slimscale.bench.serving.overload import Overload
from slimscale.bench.serving.overload_table import OVERLOAD_WORDS, number, overload_table
from slimscale.bench.serving.records import Cell
from slimscale.bench.serving.summary import Figure, Summary

__all__ = ["page", "word_of"]


def page(
    summary: Summary,
    claims: Sequence[Claim],
    *,
    ran: dict[str, Any],
    missing: dict[str, str],
    images: Sequence[tuple[str, str]],
    verdicts: Sequence[Verdict] = (),
    overloads: Sequence[Overload] = (),
    target_milliseconds: float = 0.0,
) -> str:
    """`ran`: how the cells came about; `images`: (file name, caption)."""
    closed = [load for load in summary.loads if load.startswith("closed")]
    poisson = [load for load in summary.loads if load.startswith("poisson")]
    bursts = [load for load in summary.loads if load.startswith(("mmpp", "trace"))]
    parts = [
        "# Serving under load",
        f"Written by `{ran['command']}`; do not edit.",
        _what_ran(ran),
        "## What was promised",
        table(
            ("claim", "measured", "reached"),
            ((c.text, c.measured, word_of(c.reached)) for c in claims),
        ),
        *(f"![{caption}]({name})\n\n*{caption}*" for name, caption in images),
    ]
    for heading, loads, words in (
        ("Closed loops", closed, _CLOSED_WORDS),
        ("Open loops, Poisson arrivals", poisson, _OPEN_WORDS),
        ("Open loops, bursts", bursts, _BURST_WORDS),
    ):
        if loads:
            parts += [f"## {heading}", words, _latencies(summary, loads, missing)]
    if verdicts:
        parts += [
            "## MLPerf's load generator, Server scenario",
            f"`mlperf_loadgen` as it comes: p99 under {target_milliseconds:g} ms at the offered load,"
            " Poisson arrivals, over HTTP; our driver compares every answer. Repetitions passed;"
            " completed a second, p50/p99 in ms (medians).",
            _verdicts(verdicts),
        ]
    if overloads:
        parts += ["## Overload", OVERLOAD_WORDS, overload_table(overloads)]
    parts += [
        "## CPU a request",
        "Microseconds of CPU of all processes of a system, by process; medians. The load generator"
        " is not in it.",
        _cpu(summary, [*closed, *poisson]),
        "## Answers",
        "Over all loads and repetitions, warm-up included. *unanswered*: still waiting two seconds"
        " after the last request; its wait so far counts as its latency.",
        _answers(summary, missing),
        "## Spread over repetitions",
        "Least and most of the median's repetitions: requests a second, then p99 in ms.",
        _spread(summary),
        "## Against direct",
        "Throughput over that of `direct` in the same repetition: median (least to most).",
        _ratios(summary, closed),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_CLOSED_WORDS = (
    "Each client sends its next request when it has its answer. Requests a second; p50 / p99 in"
    " milliseconds; medians over repetitions."
)
_OPEN_WORDS = (
    "Offered load as a share of the unbatched capacity, which each block measures first. Latency"
    " counts from the time a request was due, whether or not a connection was free. Right answers a"
    " second that came within a second; p50 / p99 / p99.9 in milliseconds."
)
_BURST_WORDS = (
    "The same with bursts. mmpp: two states, four times the rate for a quarter of the time."
    " trace: a stretch of azure-llm-2023-code, its time scaled to the mean rate."
)


def word_of(reached: bool | None) -> str:
    return "not measured" if reached is None else "yes" if reached else "**no**"


def _what_ran(ran: dict[str, Any]) -> str:
    machine = ran["machine"]
    return "\n".join(
        (
            f"- {machine['cores']} CPUs ({machine['cpu_model']}), Linux {machine['kernel']};"
            f" code {ran['code']}; {ran['from']} to {ran['to']} (UTC)",
            f"- one ONNX model for all ({ran['model']}), one thread; bodies: {ran['bodies']}; batches of"
            f" at most {ran['rows']} rows; {ran['versions']}",
            f"- {ran['repetitions']} repetitions; in each, all systems take turns in random order, the"
            f" others paused meanwhile; {ran['seconds']:g} s a cell after {ran['warm_seconds']:g} s"
            " of warming up; servers and load generator share the CPUs",
            f"- not alone on the machine: in the median cell other work took {ran['others_median']:.2f}"
            f" cores (worst {ran['others_most']:.2f}), the hypervisor {ran['steal_median']:.2f};"
            f" load average {ran['load_least']:.1f} to {ran['load_most']:.1f}, what is measured included",
            f"- unbatched capacity by block: {ran['capacities']} requests a second",
        )
    )


def _latencies(summary: Summary, loads: Sequence[str], missing: dict[str, str]) -> str:
    opened = not loads[0].startswith("closed")
    rows: list[list[str]] = []
    for system in summary.systems:
        row = [system]
        for load in loads:
            if (system, load) not in summary.cells:
                row.append("-")
                continue
            measures = ("p50", "p99", "p999") if opened else ("p50", "p99")
            times = "/".join(number(summary.value(system, load, name)) for name in measures)
            row.append(f"{number(summary.value(system, load, 'per_second'))}; {times}")
        rows.append(row)
    for name, why in missing.items():
        if name not in summary.systems:
            rows.append([name, f"missing: {_line(why)}", *[""] * (len(loads) - 1)])
    heads = [load.removeprefix("closed ").removeprefix("poisson ") for load in loads]
    return table(("clients" if not opened else "load", *heads), rows)


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    shares = sorted({verdict.share for verdict in verdicts})
    rows = []
    for system in dict.fromkeys(verdict.system for verdict in verdicts):
        row = [system]
        for share in shares:
            found = [v for v in verdicts if (v.system, v.share) == (system, share)]
            if not found:
                row.append("-")
                continue
            rate, p50, p99 = (
                number(median(getattr(v, name) for v in found))
                for name in ("completed_per_second", "p50", "p99")
            )
            passed = sum(v.passed for v in found)
            row.append(f"{passed} of {len(found)}; {rate}; {p50}/{p99}")
        rows.append(row)
    return table(("load", *(f"{share:.0%}" for share in shares)), rows)


def _cpu(summary: Summary, loads: Sequence[str]) -> str:
    rows = []
    for system in summary.systems:
        row = [system]
        for load in loads:
            cells = summary.cells.get((system, load))
            row.append(_by_role(cells) if cells else "-")
        rows.append(row)
    return table(("system", *loads), rows)


def _by_role(cells: Sequence[Cell]) -> str:
    roles = tuple(cells[0].cpu_micros)
    figures = {role: Figure.of([c.cpu_micros.get(role, 0.0) for c in cells]) for role in roles}
    values = {role: figure.value for role, figure in figures.items() if figure is not None}
    if len(values) == 1:
        return f"{next(iter(values.values())):.0f}"
    parts = " + ".join(f"{role} {value:.0f}" for role, value in values.items())
    return f"{sum(values.values()):.0f} ({parts})"


def _answers(summary: Summary, missing: dict[str, str]) -> str:
    names = ("right", "wrong", "lost", "failed", "refused", "unanswered")
    rows = [
        [
            system,
            *(str(summary.total(system, name)) for name in names),
            _line(missing.get(system, "")) or _first_wrong(summary, system),
        ]
        for system in summary.systems
    ]
    rows += [
        [name, *["-"] * len(names), _line(why)]
        for name, why in missing.items()
        if name not in summary.systems
    ]
    return table(("system", *names, "note"), rows)


def _first_wrong(summary: Summary, system: str) -> str:
    for (name, _), cells in summary.cells.items():
        for cell in cells:
            if name == system and cell.first_wrong:
                return _line(cell.first_wrong)
    return ""


def _line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:120]


def _spread(summary: Summary) -> str:
    rows = []
    for system in summary.systems:
        row = [system]
        for load in summary.loads:
            rate = summary.figure(system, load, "per_second")
            late = summary.figure(system, load, "p99")
            row.append(f"{_range(rate)}; {_range(late)}")
        rows.append(row)
    return table(("system", *summary.loads), rows)


def _range(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    return f"{number(figure.least)} to {number(figure.most)}"


def _ratios(summary: Summary, loads: Sequence[str]) -> str:
    rows = []
    for system in summary.systems:
        row = [system]
        for load in loads:
            ratio = summary.ratio(system, "direct", load, "per_second")
            row.append(
                "-"
                if ratio is None
                else f"{ratio.value:.2f} ({ratio.least:.2f} to {ratio.most:.2f})"
            )
        rows.append(row)
    return table(("clients", *(load.removeprefix("closed ") for load in loads)), rows)
