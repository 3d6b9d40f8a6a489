"""The benchmark's figures. matplotlib is imported with the first one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slimscale.bench.serving.judge import OURS
from slimscale.bench.serving.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_all"]


def draw_all(summary: Summary, folder: Path, stem: str) -> list[tuple[str, str]]:
    """Write the figures; (file name, caption) of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    closed = [load for load in summary.loads if load.startswith("closed")]
    poisson = [load for load in summary.loads if load.startswith("poisson")]
    if len(closed) > 1:
        clients = [float(load.split()[1]) for load in closed]
        name = f"{stem}-closed.png"
        _draw(
            summary, closed, clients, folder / name,
            axis="clients", panels=(("per_second", "requests a second"), ("p50", "p50, ms"), ("p99", "p99, ms")),
            doubling=True,
        )  # fmt: skip
        written.append((name, "Closed loops: medians, with the range over repetitions"))
    if len(poisson) > 1:
        shares = [float(load.split()[1].rstrip("%")) for load in poisson]
        name = f"{stem}-open.png"
        _draw(
            summary, poisson, shares, folder / name,
            axis="offered load, % of the unbatched capacity",
            panels=(("p50", "p50, ms"), ("p99", "p99, ms"), ("total_cpu_micros", "CPU a request, us")),
            doubling=False,
        )  # fmt: skip
        written.append(
            (name, "Open loops, Poisson: latency from the due time; CPU of all processes")
        )
    return written


def _draw(
    summary: Summary,
    loads: Sequence[str],
    at: Sequence[float],
    path: Path,
    *,
    axis: str,
    panels: Sequence[tuple[str, str]],
    doubling: bool,
) -> None:
    pyplot = _pyplot()
    figure, grid = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 4.2), layout="constrained", squeeze=False
    )
    for axes, (measure, label) in zip(grid[0], panels, strict=True):
        for number, system in enumerate(summary.systems):
            _line(axes, summary, system, loads=loads, at=at, measure=measure, colour=f"C{number}")
        axes.set(xlabel=axis, ylabel=label, yscale="log")
        if doubling:
            axes.set_xscale("log", base=2)
            axes.set_xticks(list(at), [f"{value:g}" for value in at])
        axes.grid(visible=True, alpha=0.3, which="both")
    grid[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _line(
    axes: "Axes", summary: Summary, system: str, *, loads: Sequence[str], at: Sequence[float],
    measure: str, colour: str,
) -> None:  # fmt: skip
    points = [
        (x, figure)
        for x, load in zip(at, loads, strict=True)
        if (figure := summary.figure(system, load, measure)) is not None
    ]
    if not points:
        return
    xs = [x for x, _ in points]
    ours = system.startswith(OURS)
    axes.plot(
        xs, [figure.value for _, figure in points], marker="o", ms=3, color=colour, label=system,
        lw=2.4 if ours else 1.1, ls="--" if system == "direct" else "-",
    )  # fmt: skip
    axes.fill_between(
        xs,
        [f.least for _, f in points],
        [f.most for _, f in points],
        color=colour,
        alpha=0.12,
        lw=0,
    )


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot
