"""The table and the picture that the demo ends with."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from e2e.demo.verdict import Arm, PhaseResult, TimelinePoint

__all__ = ["draw", "markdown", "results_table"]


def results_table(results: Sequence[PhaseResult], *, apply_to_acknowledged_seconds: float) -> Table:
    """One row a phase; medians over interleaved rounds."""
    table = Table(
        title="Steps per second, median of interleaved rounds", title_justify="left",
        box=SIMPLE_HEAD, padding=(0, 0, 0, 0), caption_justify="left",
    )  # fmt: skip
    for name in ("phase", "threads", "CPU", "guess", "floor", "operator", "x guess", "x floor"):
        table.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
    table.add_column("followed", justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.phase,
            f"{result.guessed.threads} -> {result.operator.threads}",
            f"{result.guessed.cpu_limit} -> {result.operator.cpu_limit}",
            _short_rate(result.guessed),
            _short_rate(result.floor),
            _short_rate(result.operator),
            f"{result.against_guessed:.2f}",
            f"{result.against_floor:.2f}",
            f"{result.seconds_to_follow:.0f} s",
        )
    table.caption = (
        f"guess: {results[0].guessed.threads} threads; floor: floor(quota), that is"
        f" {results[0].floor.threads}. Restarts of the operator's pod: {results[-1].restarts}. From `kubectl"
        f" apply` to acknowledged: {apply_to_acknowledged_seconds:.1f} s. Followed: until the throughput"
        " stayed within 20 % of where it settled. Spreads and the rest: demo.md beside the picture."
    )
    return table


def markdown(
    results: Sequence[PhaseResult], *, apply_to_acknowledged_seconds: float, where: str, how: str
) -> str:
    """The same table for docs/, with what ran and where."""
    rows = [
        "| phase | threads | CPU limit | guessed | floor(quota) | operator | x guessed | x floor(quota)"
        " | restarts | followed in |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r.phase} | {r.guessed.threads} -> {r.operator.threads}"
        f" | {r.guessed.cpu_limit} -> {r.operator.cpu_limit} | {_rate(r.guessed)}"
        f" | {_rate(r.floor)} | {_rate(r.operator)} | {r.against_guessed:.2f}"
        f" | {r.against_floor:.2f} | {r.restarts} | {r.seconds_to_follow:.0f} s |"
        for r in results
    ]
    table = "\n".join(rows)
    return f"""# The demo's last published run

Written by `python -m e2e.demo --out docs/results`; {how}. {where}

Steps a second: the median of the rounds and half of their range. The arms take turns, each alone on
the machine; ratios are medians over rounds. Guessed: {results[0].guessed.threads} threads; floor(quota):
{results[0].floor.threads} threads; both with a CPU limit of {results[0].guessed.cpu_limit}. From `kubectl apply` to acknowledged:
{apply_to_acknowledged_seconds:.1f} s. "Followed in": from the change of load until the throughput stayed
within 20 % of where it settled.

{table}

![Throughput, threads and CPU of the operator's pod over time](demo.png)
"""


def draw(
    path: Path, timeline: Sequence[TimelinePoint], results: Sequence[PhaseResult], *, applied: float
) -> None:
    """Throughput, threads and CPU over time on top; the interleaved comparison below."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(10, 12), layout="constrained")
    times = [point.seconds for point in timeline]
    series: tuple[tuple[str, list[float | None] | list[int | None], str], ...] = (
        ("steps a second", [point.steps_per_second for point in timeline], "tab:blue"),
        ("threads, acknowledged", [point.threads for point in timeline], "tab:green"),
        ("CPU limit, cores", [point.cpu_limit_cores for point in timeline], "tab:red"),
    )
    for axis, (label, values, color) in zip(axes[:3], series, strict=True):
        points = zip(times, values, strict=True)
        known = [(t, v) for t, v in points if v is not None]
        axis.step([t for t, _ in known], [v for _, v in known], where="post", color=color)
        axis.set_ylabel(label)
        axis.axvline(applied, color="black", ls=":", lw=1)
        axis.grid(visible=True, alpha=0.3)
        for start, phase in _starts(timeline):
            axis.axvline(start, color="grey", lw=0.7)
            axis.annotate(phase, (start, 1.0), xycoords=("data", "axes fraction"), va="top")
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[2].set_xlabel("seconds; dotted: the SimWorkload is applied")
    _bars(axes[3], results)
    figure.suptitle("One pod, never restarted: throughput, threads and CPU over time")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bars(axis: object, results: Sequence[PhaseResult]) -> None:
    """Rates relative to floor(quota): one group a phase, one bar an arm."""
    width = 0.27
    arms = (("guessed", "tab:gray"), ("floor", "tab:orange"), ("operator", "tab:blue"))
    for offset, (name, color) in enumerate(arms):
        heights = []
        for result in results:
            arm: Arm = getattr(result, name)
            heights.append(arm.median / result.floor.median if result.floor.median else 0.0)
        places = [index + (offset - 1) * width for index in range(len(results))]
        bars = axis.bar(places, heights, width, color=color, label=name)  # type: ignore[attr-defined]
        axis.bar_label(bars, fmt="%.2f", fontsize=8)  # type: ignore[attr-defined]
    axis.set_xticks(range(len(results)), [result.phase for result in results])  # type: ignore[attr-defined]
    axis.set_ylabel("steps a second, floor(quota) = 1")  # type: ignore[attr-defined]
    axis.set_yscale("log")  # type: ignore[attr-defined]
    axis.legend()  # type: ignore[attr-defined]


def _starts(timeline: Sequence[TimelinePoint]) -> list[tuple[float, str]]:
    starts: list[tuple[float, str]] = []
    for point in timeline:
        if not starts or starts[-1][1] != point.phase:
            starts.append((point.seconds, point.phase))
    return starts


def _short_rate(arm: Arm) -> str:
    """Three digits, for a terminal of 80 columns."""
    if not arm.rates:
        return "-"
    return f"{arm.median / 1e3:,.3g}k" if arm.median >= 1e3 else f"{arm.median:,.3g}"


def _rate(arm: Arm) -> str:
    if not arm.rates:
        return "-"
    spread = (max(arm.rates) - min(arm.rates)) / 2
    return f"{arm.median:,.0f} +-{spread:,.0f}"
