"""Writes what a benchmark found: one JSON document, the Markdown made from it, the figures."""

import json
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from slimscale.bench.goals import goals_of
from slimscale.bench.judgement import judge, judge_steady
from slimscale.bench.markdown import report_markdown
from slimscale.bench.plots import draw_all
from slimscale.bench.results import Results

__all__ = ["STEM", "Ran", "document_of", "write_report"]

STEM = "threads-simulated"


@dataclass(frozen=True, slots=True)
class Ran:
    """How the runs came about: a table without it says nothing."""

    command: str
    code: str
    suite_seed: int
    processes: int
    wall_seconds: float | None
    """None where some of the runs were made earlier."""


def document_of(results: Results, steady: Results | None, ran: Ran) -> dict[str, Any]:
    """Everything that is published, with the totals of every run."""
    records = [run for policy in results.policies for run in results.of_policy(policy)]
    judged = judge(results)
    steady_judged = judge_steady(steady) if steady is not None else None
    return {
        "ran": {
            "command": ran.command,
            "code": ran.code,
            "machine": _machine(ran.processes),
            "suite_seed": ran.suite_seed,
            "scenarios": len(results.scenarios),
            "seeds": len(results.seeds),
            "runs": len(records),
            "minutes_each": max(run.duration_seconds for run in records) / 60.0,
            "wall_seconds": ran.wall_seconds,
        },
        "goals": [goal.to_json() for goal in goals_of(judged, steady_judged)],
        "judgement": judged,
        "steady": steady_judged,
        "curves": {name: results.curves[name].to_json() for name in results.scenarios},
        "totals": [
            [r.scenario, r.policy, r.seed, r.total_tasks, len(r.changes) - 1] for r in records
        ],
    }


def write_report(results: Results, steady: Results | None, ran: Ran, folder: Path) -> list[Path]:
    """Write JSON, Markdown and figures into `folder`; what was written, the Markdown first."""
    folder.mkdir(parents=True, exist_ok=True)
    document = document_of(results, steady, ran)
    images = draw_all(results, document["judgement"], folder, STEM)
    page, data = folder / f"{STEM}.md", folder / f"{STEM}.json"
    data.write_text(_compact(document), encoding="utf-8")
    page.write_text(report_markdown(document, images=images), encoding="utf-8")
    return [page, data, *(folder / name for name, _ in images)]


def _machine(processes: int) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "numba"))
    return (
        f"{platform.machine()} {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, {versions}, {processes} processes"
    )


def _compact(document: dict[str, Any]) -> str:
    """Readable at the top, one line for each list of figures at the bottom."""
    bulky = {key: document[key] for key in ("curves", "totals")}
    head = {key: value for key, value in document.items() if key not in bulky}
    text = json.dumps(head, indent=1, allow_nan=False)
    tail = ",\n".join(
        f' "{key}": {json.dumps(value, allow_nan=False, separators=(",", ":"))}'
        for key, value in bulky.items()
    )
    return f"{text[:-2]},\n{tail}\n}}\n"
