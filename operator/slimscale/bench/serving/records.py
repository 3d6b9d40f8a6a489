"""What was measured: one line of JSON a cell, kept in the work folder as it comes."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from slimscale.bench.serving.loadgen.job import Answered
from slimscale.bench.serving.neutral import Verdict
from slimscale.bench.serving.overload import Overload

__all__ = ["Cell", "Journal", "quantiles_of"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One system under one load in one repetition. Latencies in milliseconds, CPU in microseconds a request."""

    system: str
    load: str
    repetition: int
    offered_per_second: float
    """0 for a closed loop."""
    per_second: float
    """Right answers a second within the window; open loops: those that came within a second."""
    p50: float | None
    p99: float | None
    p999: float | None
    timed: int
    right: int
    wrong: int
    refused: int
    failed: int
    lost: int
    unanswered: int
    first_wrong: str
    cpu_micros: dict[str, float]
    """By role: server, sidecar, router, model."""
    client_cpu_micros: float
    late_start_p99: float
    """How late the generator itself was (open loop), in milliseconds."""
    others_cores: float
    """CPU that neither the system nor the generator used, in cores: what disturbed the cell."""
    steal_cores: float
    load_average: float
    at: str

    @property
    def total_cpu_micros(self) -> float:
        return sum(self.cpu_micros.values())


def quantiles_of(answered: Answered) -> tuple[float | None, float | None, float | None]:
    """p50, p99, p99.9 in milliseconds; None without any latency. Unanswered ones count at what they waited."""
    if not answered.latencies_micros:
        return None, None, None
    values = np.quantile(np.asarray(answered.latencies_micros) / 1000.0, (0.5, 0.99, 0.999))
    p50, p99, p999 = (round(float(value), 3) for value in values)
    return p50, p99, p999


@dataclass
class Journal:
    """Lines on disk: cells, the capacity that a block's open loops were set from, missing systems.

    A system counts as missing until a later turn of it succeeds.
    """

    path: Path
    cells: list[Cell] = field(default_factory=list)
    capacities: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    overloads: dict[str, Overload] = field(default_factory=dict)
    """By system: the last one counts."""
    done: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, path: Path) -> Self:
        """What is there; a line cut off by a crash is left out."""
        journal = cls(path)
        for text in path.read_text().splitlines() if path.exists() else ():
            try:
                journal._take(json.loads(text))
            except ValueError:
                continue
        return journal

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"cells": cells, "turn": turn}:
                found = [Cell(**cell) for cell in cells]
                self.cells += found
                self.done.add(turn)
                for cell in found:
                    self.missing.pop(cell.system, None)
            case {"capacity": value, "block": block}:
                self.capacities[block] = value
            case {"verdicts": verdicts, "turn": turn}:
                self.verdicts += [Verdict(**verdict) for verdict in verdicts]
                self.done.add(turn)
            case {"overload": found}:
                self.overloads[found["system"]] = Overload(**found)
            case {"missing": why, "system": system}:
                self.missing[system] = why
            case _:
                pass

    def _write(self, line: dict[str, Any]) -> None:
        self._take(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def keep_turn(self, turn: str, cells: Sequence[Cell]) -> None:
        self._write({"turn": turn, "cells": [asdict(cell) for cell in cells]})

    def keep_verdicts(self, turn: str, verdicts: Sequence[Verdict]) -> None:
        self._write({"turn": turn, "verdicts": [verdict.to_json() for verdict in verdicts]})

    def keep_capacity(self, block: str, per_second: float) -> None:
        self._write({"block": block, "capacity": per_second})

    def keep_missing(self, system: str, why: str) -> None:
        self._write({"system": system, "missing": why})

    def keep_overload(self, found: Overload) -> None:
        self._write({"overload": found.to_json()})
