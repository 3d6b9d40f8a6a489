"""Runs: a stage, a player, a trace. What is done is on disk at once, for the code that did it."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.bench.routing.figures import Figures, figures_of
from slimscale.bench.routing.rules import Player
from slimscale.bench.routing.stage import Stage
from slimscale.bench.suite import code_digest
from slimscale.simulate.routing.state import FloatArray

__all__ = ["TEST_SEED", "VALIDATION_SEED", "Results", "Store", "Work", "recorded_gaps"]

TEST_SEED, VALIDATION_SEED = 9_000_001, 5_000_001
"""The first of each; traces of training are drawn from other seeds."""
SOURCES = (
    *(f"bench/routing/{name}.py" for name in ("figures", "runner", "stage")),
    *(
        f"simulate/routing/{name}.py"
        for name in (
            "build", "engine", "heuristics", "mixture", "randomness", "scene", "state", "telling",
            "traces", "view",
        )
    ),
    "simulate/bounds/planning.py", "simulate/bounds/fleet.py", "routing/learned/layout.py",
)  # fmt: skip
TRACE = "azure-llm-2023-code.csv"


@dataclass(frozen=True, slots=True)
class Work:
    """All traces of one player on one stage."""

    stage: Stage
    player: Player
    seeds: tuple[int, ...]
    seconds: float

    @property
    def key(self) -> str:
        stage, player = self.stage, self.player
        what = getattr(player, "weights", None)
        version = getattr(what, "version", "") if what is not None else repr(player)
        return (
            f"{stage.scene!r}|{stage.rate:.3f}|{player.name}|{version}|{self.seeds}|{self.seconds}"
        )


@dataclass(frozen=True, slots=True)
class Results:
    stage: Stage
    player: str
    family: str
    runs: tuple[Figures, ...]
    """One a trace, in the order of the seeds."""

    def values(self, name: str) -> FloatArray:
        return np.array([getattr(run, name) for run in self.runs])


@cache
def recorded_gaps(path: Path) -> FloatArray:
    """Seconds between the rows of a trace; ties of its clock are spread over a millisecond.

    Raises OSError where the file is missing.
    """
    with path.open(encoding="utf-8") as file:
        column = file.readline().strip().split(",").index("t_ms")
        millis = [float(line.split(",")[column]) for line in file if line.strip()]
    return np.array([max(after - before, 0.5) / 1000.0 for before, after in pairwise(millis)])


def _run(work: Work, traces: Path) -> list[Figures]:
    found = []
    gaps = recorded_gaps(traces / TRACE) if work.stage.scene.regime.trace else None
    for seed in work.seeds:
        plane = work.stage.plane(work.seconds, seed, gaps)
        work.player.play(plane, work.stage)
        found.append(figures_of(plane, work.stage))
    return found


class Store:
    """Results by what they are of, in a file of JSON lines."""

    def __init__(self, path: Path, traces: Path) -> None:
        self._path, self._traces = path, traces
        self._code = code_digest(SOURCES)
        self._done: dict[str, list[Figures]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self._done[entry["key"]] = [Figures(**run) for run in entry["runs"]]
                except (ValueError, KeyError, TypeError):
                    continue  # the line that an interruption cut off

    def run(
        self, works: Sequence[Work], *, processes: int, step: Callable[[], None]
    ) -> list[Results]:
        """In the order of `works`."""
        found: dict[int, list[Figures]] = {}
        missing: list[tuple[int, Work]] = []
        for index, work in enumerate(works):
            known = self._done.get(self._key(work))
            if known is None:
                missing.append((index, work))
            else:
                found[index] = known
                step()
        for (index, work), runs in zip(missing, self._each(missing, processes), strict=True):
            found[index] = runs
            self._keep(work, runs)
            step()
        return [
            Results(work.stage, work.player.name, work.player.family, tuple(found[index]))
            for index, work in enumerate(works)
        ]

    def _each(self, missing: list[tuple[int, Work]], processes: int) -> Iterator[list[Figures]]:
        if processes == 1 or len(missing) < 2:
            for _, work in missing:
                yield _run(work, self._traces)
            return
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield from pool.map(
                _run, [work for _, work in missing], [self._traces] * len(missing), chunksize=4
            )

    def _key(self, work: Work) -> str:
        return f"{self._code}|{work.key}"

    def _keep(self, work: Work, runs: list[Figures]) -> None:
        self._done[self._key(work)] = runs
        self._path.parent.mkdir(parents=True, exist_ok=True)
        entry: dict[str, Any] = {"key": self._key(work), "runs": [run.to_json() for run in runs]}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, allow_nan=False) + "\n")
