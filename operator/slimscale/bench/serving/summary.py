"""From cells to figures: medians and spread over repetitions, ratios within a repetition. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from slimscale.bench.serving.records import Cell

__all__ = ["Figure", "Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class Figure:
    """Median over repetitions, the least and the most."""

    value: float
    least: float
    most: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Figure | None":
        if not values:
            return None
        return Figure(median(values), min(values), max(values), len(values))

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "least": self.least, "most": self.most, "count": self.count}


@dataclass(frozen=True, slots=True)
class Summary:
    """Cells by (system, load). Loads and systems in the order in which they were given."""

    systems: tuple[str, ...]
    loads: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[Cell, ...]]

    def figure(self, system: str, load: str, measure: str) -> Figure | None:
        """`measure` is a numeric field of Cell or `total_cpu_micros`."""
        values = [getattr(cell, measure) for cell in self.cells.get((system, load), ())]
        return Figure.of([value for value in values if value is not None])

    def value(self, system: str, load: str, measure: str) -> float | None:
        figure = self.figure(system, load, measure)
        return None if figure is None else figure.value

    def ratio(self, system: str, base: str, load: str, measure: str) -> Figure | None:
        """Of the same repetition: noise that lasts longer than a block drops out."""
        bases = {cell.repetition: cell for cell in self.cells.get((base, load), ())}
        found = []
        for cell in self.cells.get((system, load), ()):
            other = bases.get(cell.repetition)
            if other is None:
                continue
            ours, theirs = getattr(cell, measure), getattr(other, measure)
            if ours is not None and theirs:
                found.append(ours / theirs)
        return Figure.of(found)

    def difference(self, system: str, base: str, load: str, measure: str) -> Figure | None:
        bases = {cell.repetition: cell for cell in self.cells.get((base, load), ())}
        found = []
        for cell in self.cells.get((system, load), ()):
            other = bases.get(cell.repetition)
            if other is not None:
                ours, theirs = getattr(cell, measure), getattr(other, measure)
                if ours is not None and theirs is not None:
                    found.append(ours - theirs)
        return Figure.of(found)

    def total(self, system: str, measure: str) -> int:
        return sum(
            getattr(cell, measure)
            for (name, _), cells in self.cells.items()
            if name == system
            for cell in cells
        )

    def cpu_of(self, system: str, load: str, roles: Iterable[str]) -> Figure | None:
        """Microseconds a request of some of the system's processes."""
        wanted = set(roles)
        return Figure.of(
            [
                sum(value for role, value in cell.cpu_micros.items() if role in wanted)
                for cell in self.cells.get((system, load), ())
            ]
        )

    def to_json(self) -> list[dict[str, Any]]:
        rows = []
        for system, load in self.cells:
            row: dict[str, Any] = {"system": system, "load": load}
            for measure in ("per_second", "p50", "p99", "p999", "total_cpu_micros"):
                figure = self.figure(system, load, measure)
                row[measure] = figure.to_json() if figure is not None else None
            rows.append(row)
        return rows


def summarise(cells: Iterable[Cell], *, systems: Sequence[str], loads: Sequence[str]) -> Summary:
    """Only systems and loads that are named; those without any cell are left out."""
    found: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.system in systems and cell.load in loads:
            found[cell.system, cell.load].append(cell)
    return Summary(
        systems=tuple(name for name in systems if any(key[0] == name for key in found)),
        loads=tuple(name for name in loads if any(key[1] == name for key in found)),
        cells={key: tuple(group) for key, group in found.items()},
    )
