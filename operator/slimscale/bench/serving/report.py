"""Writes what the serving benchmark found: JSON, the Markdown made from it, the figures."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from slimscale.bench.native.machine import read_machine
from slimscale.bench.serving.judge import judge, judge_overload
from slimscale.bench.serving.plan import Plan
from slimscale.bench.serving.plots import draw_all
from slimscale.bench.serving.records import Journal
from slimscale.bench.serving.summary import summarise
from slimscale.bench.serving.systems import ROWS
from slimscale.bench.serving.tables import page
from slimscale.bench.suite import code_version

__all__ = ["write_report"]

STEM = "serving"


def write_report(
    journal: Journal,
    plan: Plan,
    folder: Path,
    *,
    command: str,
    bodies: str,
    model: str,
    target_milliseconds: float,
    stem: str = STEM,
) -> list[Path]:
    """What was written, the Markdown first. With no cell at all nothing is, and the list is empty."""
    loads = [load.label for group in plan.groups for load in group.loads]
    summary = summarise(journal.cells, systems=plan.systems, loads=loads)
    if not summary.cells:
        return []
    overloads = tuple(journal.overloads.values())
    claims = judge(summary, target_milliseconds=target_milliseconds)
    claims += [claim for found in overloads for claim in judge_overload(found)]
    ran = _ran(journal, plan, command=command, bodies=bodies, model=model)
    images = draw_all(summary, folder, stem)
    document: dict[str, Any] = {
        "ran": ran,
        "claims": [claim.to_json() for claim in claims],
        "missing": journal.missing,
        "verdicts": [verdict.to_json() for verdict in journal.verdicts],
        "overloads": [found.to_json() for found in overloads],
        "figures": summary.to_json(),
        "cells": [asdict(cell) for cell in journal.cells if cell.system in plan.systems],
    }
    data, text = folder / f"{stem}.json", folder / f"{stem}.md"
    data.write_text(_compact(document), encoding="utf-8")
    text.write_text(
        page(
            summary,
            claims,
            ran=ran,
            missing=journal.missing,
            images=images,
            verdicts=journal.verdicts,
            overloads=overloads,
            target_milliseconds=target_milliseconds,
        ),
        encoding="utf-8",
    )
    return [text, data, *(folder / name for name, _ in images)]


def _ran(journal: Journal, plan: Plan, *, command: str, bodies: str, model: str) -> dict[str, Any]:
    cells = journal.cells
    times = sorted(cell.at for cell in cells)
    return {
        "command": command,
        "code": code_version(),
        "machine": asdict(read_machine()),
        "versions": _versions(("onnxruntime", "uvloop", "httptools", "numpy")),
        "from": times[0],
        "to": times[-1],
        "model": model,
        "bodies": bodies,
        "rows": ROWS,
        "repetitions": len({cell.repetition for cell in cells}),
        "seconds": plan.seconds,
        "warm_seconds": plan.warm_seconds,
        "seed": plan.seed,
        "others_median": median(cell.others_cores for cell in cells),
        "others_most": max(cell.others_cores for cell in cells),
        "steal_median": median(cell.steal_cores for cell in cells),
        "load_least": min(cell.load_average for cell in cells),
        "load_most": max(cell.load_average for cell in cells),
        "capacities": ", ".join(f"{value:.0f}" for value in journal.capacities.values()) or "-",
    }


def _versions(names: Sequence[str]) -> str:
    return ", ".join(
        (f"Python {platform.python_version()}", *(f"{n} {metadata.version(n)}" for n in names))
    )


def _compact(document: dict[str, Any]) -> str:
    """Readable at the top, one line for each cell."""
    bulky = ("figures", "cells")
    head = {key: value for key, value in document.items() if key not in bulky}
    text = json.dumps(head, indent=1, allow_nan=False)[:-2]
    for key in bulky:
        lines = ",\n  ".join(
            json.dumps(line, allow_nan=False, separators=(",", ":")) for line in document[key]
        )
        text += f',\n "{key}": [\n  {lines}\n ]'
    return text + "\n}\n"
