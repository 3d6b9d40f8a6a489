"""Figures of the routing benchmark. matplotlib is imported with the first one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slimscale.bench.routing.figures import mean_of
from slimscale.bench.routing.judge import cell_of
from slimscale.bench.routing.runner import Results
from slimscale.bench.routing.suite import Headline, Played

__all__ = ["draw_front", "draw_headline", "draw_values"]

SHOWN = (
    "random",
    "JSQ, slimmest",
    "cold-aware SED, widest within slack",
    "LPsupport-SED",
    "priced greedy",
)
LEAST_SHOWN = -1.0


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_values(played: Played, learned: Sequence[str], path: Path) -> None:
    """J by load, a panel a regime."""
    pyplot = _pyplot()
    regimes = list(dict.fromkeys(regime for regime, _ in played.best))
    columns = min(3, len(regimes))
    rows = -(-len(regimes) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.1 * rows), layout="constrained", squeeze=False
    )
    for axes, regime in zip(grid.ravel(), regimes, strict=False):
        loads = [load for name, load in played.best if name == regime]
        axes.plot(loads, [played.bound[regime, load] for load in loads], "k--", label="LP bound")
        for family in SHOWN:
            values = [
                float(
                    played.of((regime, load), played.of_family[regime, load][family])
                    .values("value").mean()
                )
                for load in loads
            ]  # fmt: skip
            axes.plot(loads, values, marker=".", lw=1.0, label=family)
        for one in learned:
            values = [
                float(played.of((regime, load), one).values("value").mean()) for load in loads
            ]
            axes.plot(loads, values, marker="o", lw=2.2, label=one)
        axes.set(title=regime, xlabel="load", ylabel="J")
        axes.set_ylim(bottom=max(LEAST_SHOWN, axes.get_ylim()[0]))
        axes.grid(visible=True, alpha=0.3)
    for axes in grid.ravel()[len(regimes) :]:
        axes.set_visible(False)
    grid[0, 0].legend(fontsize=7)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def draw_headline(headline: Headline, learned: Sequence[str], path: Path) -> None:
    """Mean latency and dynamic energy by load; where random stops being stable is marked."""
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    names = ["random", "random, slimmest", "SED, slimmest", *learned]
    by_player: dict[str, list[Results]] = {}
    for result in headline.results:
        by_player.setdefault(result.player, []).append(result)
    for axes, figure_name, bound, label in (
        (grid[0], "mean_seconds", headline.least_seconds, "mean latency, s"),
        (grid[1], "dynamic_joules", headline.least_joules, "dynamic energy, J a request"),
    ):
        for name in names:
            results = by_player.get(name, [])
            axes.plot(
                [result.stage.load for result in results],
                [float(result.values(figure_name).mean()) for result in results],
                marker=".", label=name,
            )  # fmt: skip
        axes.plot(list(bound), list(bound.values()), "k--", label="LP bound at the slimmest")
        axes.axvline(headline.random_stable_below, color="red", lw=0.8, ls=":")
        axes.set(xlabel="load", ylabel=label, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    grid[0].legend(fontsize=7)
    grid[0].text(
        headline.random_stable_below, grid[0].get_ylim()[0] * 1.2, " random unstable", color="red",
        fontsize=7,
    )  # fmt: skip
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def draw_front(played: Played, path: Path) -> None:
    """Energy against p95 at the middle load of the first regime; colour is accuracy."""
    pyplot = _pyplot()
    cells = list(played.best)
    cell = cells[len([c for c in cells if c[0] == cells[0][0]]) // 2]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    points = [
        (result.player, mean_of(list(result.runs)))
        for result in played.test
        if cell_of(result) == cell
    ]
    shown = axes.scatter(
        [run.p95_seconds for _, run in points],
        [run.dynamic_joules for _, run in points],
        c=[run.accuracy for _, run in points], cmap="viridis",
    )  # fmt: skip
    for name, run in points:
        axes.annotate(name, (run.p95_seconds, run.dynamic_joules), fontsize=6)
    axes.set(
        title=f"{cell[0]}, load {cell[1]:g}", xlabel="p95 latency, s", xscale="log",
        ylabel="dynamic energy, J a request",
    )  # fmt: skip
    figure.colorbar(shown, label="accuracy")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
