"""The benchmark's figures: timelines, speed-ups, regret. matplotlib is imported with the first one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.dynamics import regret
from slimscale.bench.judgement import BEST
from slimscale.bench.results import Results
from slimscale.bench.runner import RunRecord
from slimscale.bench.scenarios import SHAPES, shape_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_all", "draw_regret", "draw_speed_ups", "draw_timelines"]

SHOWN = ("autothread", "floor-of-quota", "thread-reinforcer", "dotnet-hill-climbing")
REGRET_SHOWN = (
    "autothread",
    "best-static-hindsight",
    "sliding-window-ucb",
    "dotnet-hill-climbing",
    "analytic-once",
    "xgboost-once",
    "thread-reinforcer",
    "floor-of-quota",
    "unset",
)


def draw_all(
    results: Results, judged: dict[str, Any], folder: Path, stem: str
) -> list[tuple[str, str]]:
    """Write the figures; (file name, caption) of each."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [
        (draw_timelines, f"{stem}-timelines.png", "Threads and throughput, one scenario a shape of load; the dashed line is the best that each phase allows"),
        (draw_regret, f"{stem}-regret.png", "Scenarios by regret against the best per phase: further left is better"),
    ]  # fmt: skip
    written = []
    for draw, name, caption in figures:
        if draw(results, folder / name):
            written.append((name, caption))
    name = f"{stem}-speed-up.png"
    draw_speed_ups([*judged["against_statics"], *judged["against_tuners"]], folder / name)
    written.append((name, "Speed-up of AutoThread, geometric mean with its 95 % interval"))
    return written


def draw_timelines(results: Results, path: Path) -> bool:
    """Thread counts above, throughput below, for the first seed of one scenario of each shape."""
    chosen = [
        next(name for name in results.scenarios if shape_of(name) == shape)
        for shape in SHAPES
        if any(shape_of(name) == shape for name in results.scenarios)
    ]
    if not chosen:
        return False
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(
        2, len(chosen), figsize=(4.2 * len(chosen), 5.5), layout="constrained", squeeze=False
    )
    seed = results.seeds[0]
    for column, name in enumerate(chosen):
        curves = results.curves[name]
        _best(grid[0][column], grid[1][column], curves)
        for policy in SHOWN:
            run = results.runs(name, policy).get(seed)
            if run is not None:
                _timeline(grid[0][column], grid[1][column], run)
        grid[0][column].set(title=name, yscale="log")
        grid[1][column].set(xlabel="seconds")
        grid[1][column].set_ylim(bottom=0)
    grid[0][0].set_ylabel("threads")
    grid[1][0].set_ylabel("tasks a second")
    grid[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return True


def _best(upper: "Axes", lower: "Axes", curves: PhaseCurves) -> None:
    starts = [*curves.starts, curves.starts[-1] + curves.seconds[-1]]
    threads = [curves.best_threads(start) for start in curves.starts]
    rates = [curves.best_rate(phase) for phase in range(len(curves.starts))]
    upper.stairs(threads, starts, baseline=None, color="black", ls="--", label="best of the phase")
    lower.stairs(rates, starts, baseline=None, color="black", ls="--")


def _timeline(upper: "Axes", lower: "Axes", run: RunRecord) -> None:
    width = 2.0 if run.policy == "autothread" else 0.9
    at = [start for start, _ in run.changes] + [run.duration_seconds]
    (line,) = upper.step(
        at, [k for _, k in run.changes] + [run.changes[-1][1]], where="post", lw=width,
        label=run.policy,
    )  # fmt: skip
    times = run.tick_seconds * (np.arange(len(run.tasks)) + 0.5)
    rates = np.asarray(run.tasks) / run.tick_seconds
    lower.plot(times, rates, lw=width, color=line.get_color())


def draw_regret(results: Results, path: Path) -> bool:
    """Empirical distribution over scenarios of each policy's regret."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    drawn = False
    for policy in REGRET_SHOWN:
        pairs = results.pairs(policy, BEST)
        if not pairs:
            continue
        lost = np.sort([float(np.mean(regret(both))) for both in pairs.values()])
        share = (np.arange(len(lost)) + 1) / len(lost)
        axes.step(
            lost, share, where="post", lw=2.2 if policy == "autothread" else 1.0, label=policy
        )
        drawn = True
    axes.set(xlabel="regret against the best per phase", ylabel="share of scenarios")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    if drawn:
        figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return drawn


def draw_speed_ups(comparisons: Sequence[dict[str, Any]], path: Path) -> None:
    """One bar a base, in the order of the table; 1 is a tie."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 0.32 * len(comparisons) + 1.2), layout="constrained")
    names = [row["base"] for row in comparisons]
    values = np.asarray([row["speed_up"]["value"] for row in comparisons])
    low = values - [row["speed_up"]["low"] for row in comparisons]
    high = [row["speed_up"]["high"] for row in comparisons] - values
    colours = ["tab:green" if value >= 1 else "tab:red" for value in values]
    axes.barh(names, values - 1.0, left=1.0, xerr=np.vstack([low, high]), color=colours, alpha=0.8)
    axes.axvline(1.0, color="black", lw=0.8)
    axes.invert_yaxis()
    axes.set(xlabel="AutoThread's throughput over its own", xscale="log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if value in {0.5, 2, 3, 5} else "")
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot
