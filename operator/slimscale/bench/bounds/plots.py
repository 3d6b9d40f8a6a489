"""One picture: the bound over the load, batching, routing against the optimum, cuts over bandwidth."""

from pathlib import Path
from typing import Any

__all__ = ["draw"]


def draw(document: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    _planning(axes[0][0], document["planning"])
    _batching(axes[0][1], document["batching"])
    _routing(axes[1][0], document["routing"])
    _cuts(axes[1][1], document["cuts"])
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _planning(axes: Any, rows: list[dict[str, Any]]) -> None:
    loads = [row["load"] for row in rows]
    axes.plot(loads, [row["objective"] for row in rows], "o-", label="J")
    dear = [row["objective_energy_times_five"] for row in rows]
    axes.plot(loads, dear, "s-", label="J, energy weight x5")
    axes.set(xlabel="load, of capacity at 74.5 %", ylabel="J a request", title="Planning bound")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)


def _batching(axes: Any, rows: list[dict[str, Any]]) -> None:
    for load in sorted({row["load"] for row in rows}):
        own = [row for row in rows if row["load"] == load]
        weights = [row["energy_weight"] for row in own]
        for name, style in (("greedy", "o-"), ("static", "s--")):
            losses = [100 * (row[name] / row["optimum"] - 1) for row in own]
            axes.plot(weights, losses, style, label=f"{name}, load {load:g}")
    axes.set(
        xlabel="energy weight", ylabel="% above the optimum", title="Batching", yscale="symlog"
    )
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)


def _routing(axes: Any, rows: list[dict[str, Any]]) -> None:
    loads = [row["load"] for row in rows]
    for name in (name for name in rows[0] if name != "load"):
        bold = name in {"optimum", "planning bound"}
        values = [row[name] for row in rows]
        axes.plot(
            loads, values, "k-" if name == "optimum" else "o-" if not bold else "k--", label=name
        )
    axes.set(xlabel="load", ylabel="J a request", title="Two devices, exact", ylim=(-0.6, 0.6))
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)


def _cuts(axes: Any, rows: list[dict[str, Any]]) -> None:
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network]
        axes.step([row["bytes_per_second"] / 1e6 for row in own], [row["cut"] for row in own],
                  where="mid", marker="o", label=network)  # fmt: skip
    axes.set(
        xlabel="bandwidth, MB/s", ylabel="segments on the edge", title="Best cut", xscale="log"
    )
    axes.set_yticks([0, 1, 2, 3])
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)
