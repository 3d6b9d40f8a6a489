"""The project's first experiment with routing rules, beside what comes out now.

It was simulated before any of this code existed, with its own simulator; its figures are a map of where
gains are, not results (1 to 3 seeds, 4 traces a cell).
"""

from collections.abc import Iterator

from slimscale.bench.markdown import table
from slimscale.bench.routing.suite import Played

__all__ = ["beside_first_experiment"]

LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
BOUND = {
    "base": (0.43, 0.40, 0.34, 0.29, 0.26),
    "energy": (0.06, 0.05, 0.03, 0.01, 0.00),
}
BEST = {
    "base": (0.350, 0.324, 0.222, 0.190, 0.173),
    "energy": (-0.145, -0.015, -0.061, -0.080, -0.085),
    "stale": (0.348, 0.295, 0.178, 0.155, 0.132),
    "burst": (0.223, 0.124, 0.024, -0.017, -0.055),
    "fault": (0.226, 0.173, 0.087, 0.061, 0.060),
    "cold": (0.342, 0.281, 0.190, 0.088, 0.068),
    "real": (0.060, -0.176, -0.225, -0.174, -0.193),
}
"""J of the best rule it had, by regime and load."""

_WHY = (
    "Widths, devices, objective and loads are the same, and so are capacity and bounds. What differs: a"
    " slow-down is learned here from measured batches alone, as the sidecar's estimate learns (that"
    " experiment's rules knew the true state), so faults cost more; telemetry rides on answers and what was"
    " sent since is counted on top, so staleness costs less; and memory, load times and what a dropped"
    " request counts were not written down there: 1.3 of the widest width a device, half of the load time"
    " whatever the width, and -3. Rules that hold for batches are new."
)


def beside_first_experiment(played: Played) -> Iterator[str]:
    """Table and text; nothing where no cell is common to both."""
    rows = []
    for regime, values in BEST.items():
        for load, then in zip(LOADS, values, strict=True):
            cell = (regime, load)
            if cell not in played.best:
                continue
            name = played.best[cell]
            now = float(played.of(cell, name).values("value").mean())
            bound = BOUND.get(regime, BOUND["base"])[LOADS.index(load)]
            rows.append([
                regime, f"{load:g}", f"{bound:.2f}", f"{played.bound[cell]:.3f}", f"{then:.3f}",
                f"{now:.3f}", name,
            ])  # fmt: skip
    if rows:
        yield "## Beside the first experiment"
        yield _WHY
        yield table(
            ["regime", "load", "bound then", "now", "best rule then", "now", "which now"], rows
        )
