"""Who is best where, by how much, and whether what was promised holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from slimscale.bench.routing.runner import Results
from slimscale.simulate.routing.state import FloatArray

__all__ = [
    "TROUBLE",
    "Cell",
    "Difference",
    "best_of",
    "best_of_regime",
    "best_overall",
    "difference",
]
__all__ += ["cell_of", "hypervolume", "pareto"]

TROUBLE = ("fault", "burst", "cold", "stale", "real")
"""The regimes in which a gain is asked for."""
Cell = tuple[str, float]
"""A regime and a load."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of paired differences with its 95 % interval (Student's t)."""

    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"mean": self.mean, "low": self.low, "high": self.high}


def cell_of(result: Results) -> Cell:
    return result.stage.scene.regime.name, result.stage.load


def difference(ours: FloatArray, theirs: FloatArray) -> Difference:
    """Ours less theirs, trace by trace. One trace alone has no interval: it is its own."""
    gaps = ours - theirs
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return Difference(mean, mean, mean)
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return Difference(mean, mean - half, mean + half)


def _table(results: Sequence[Results]) -> dict[Cell, dict[str, float]]:
    found: dict[Cell, dict[str, float]] = {}
    for result in results:
        found.setdefault(cell_of(result), {})[result.player] = float(result.values("value").mean())
    return found


def best_of(results: Sequence[Results]) -> dict[Cell, str]:
    """By cell the player of most J."""
    return {cell: max(row, key=row.__getitem__) for cell, row in _table(results).items()}


def best_of_regime(results: Sequence[Results], *, up_to: float) -> dict[str, str]:
    """By regime the player of most J in the mean over its loads up to `up_to`."""
    found: dict[str, dict[str, list[float]]] = {}
    for (regime, load), row in _table(results).items():
        if load <= up_to + 1e-9:
            for player, value in row.items():
                found.setdefault(regime, {}).setdefault(player, []).append(value)
    return {
        regime: max(players, key=lambda name: float(np.mean(players[name])))
        for regime, players in found.items()
    }


def best_overall(results: Sequence[Results]) -> str:
    """The one player of most J in the mean over all cells."""
    means: dict[str, list[float]] = {}
    for row in _table(results).values():
        for player, value in row.items():
            means.setdefault(player, []).append(value)
    return max(means, key=lambda name: float(np.mean(means[name])))


def pareto(points: Mapping[str, tuple[float, ...]]) -> set[str]:
    """Names of the points that no other one is at least as good as in all (less is better)."""
    return {
        name
        for name, own in points.items()
        if not any(
            all(b <= a for a, b in zip(own, other, strict=True)) and other != own
            for other in points.values()
        )
    }


def hypervolume(
    points: Sequence[tuple[float, float, float]], worst: tuple[float, float, float]
) -> float:
    """Volume that three figures, less is better, dominate up to `worst`: slices along the third."""
    inside = sorted(
        (p for p in points if all(a < b for a, b in zip(p, worst, strict=True))),
        key=lambda p: p[2],
    )
    volume = 0.0
    for index, point in enumerate(inside):
        until = inside[index + 1][2] if index + 1 < len(inside) else worst[2]
        volume += _area([p[:2] for p in inside[: index + 1]], worst[:2]) * (until - point[2])
    return volume


def _area(points: Sequence[tuple[float, ...]], worst: tuple[float, ...]) -> float:
    area, height = 0.0, worst[1]
    for x, y in sorted((p[0], p[1]) for p in points):
        if y < height:
            area += (worst[0] - x) * (height - y)
            height = y
    return area
