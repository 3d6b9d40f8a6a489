"""What `slimscale bench autoscaling` does, once its options are read."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slimscale.bench.autoscaling.report import Report, summaries, write_report
from slimscale.bench.autoscaling.runner import SCALERS, Record, run_one
from slimscale.bench.autoscaling.scenario import PERCENTILE, TRACES, Scenario
from slimscale.bench.progress import TerminalProgress
from slimscale.bench.suite import code_digest
from slimscale.exceptions import SlimError

__all__ = ["AutoscalingRequest", "bench_autoscaling"]

PLAIN_WIDTH = 140
QUICK_SECONDS = 600.0
OURS = "slimscale"
SOURCES = ("bench/autoscaling", "simulate/serving", "scaling", "routing", "domain/scaling.py")
MOST_STATIC = 24


@dataclass(frozen=True, slots=True)
class AutoscalingRequest:
    """The options of the command line."""

    quick: bool
    seeds: int
    traces: Path
    out: Path | None
    work: Path
    only: str = ""
    hindsight: bool = False
    """Also search the fixed count that would just have been enough."""


def bench_autoscaling(request: AutoscalingRequest) -> None:
    """Run and print; with `out`, write tables and a plot. Raises SlimError for a missing trace."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    shortened = QUICK_SECONDS if request.quick else 0.0
    scenarios = [
        Scenario(trace, slimming, shortened, whole)
        for whole in ((True,) if request.quick else (False, True))
        for trace in TRACES
        for slimming in ((False,) if request.quick else (False, True))
        if request.only in trace.name
    ]
    if not scenarios:
        raise SlimError(f"no trace has {request.only!r} in its name; there are code and conv")
    store = _Store(request.work / "autoscaling.jsonl")
    began = time.monotonic()
    with TerminalProgress(console) as progress:
        progress.begin("runs: a trace, an autoscaler, a seed", _count(scenarios, request.seeds))
        records = []
        for record in _runs(scenarios, request, store):
            records.append(record)
            progress.step()
        enough = _enough(scenarios, request, store, progress) if request.hindsight else {}
    _print(records, console)
    if request.out is not None:
        report = Report(tuple(records), enough, _command(request), time.monotonic() - began)
        for path in write_report(report, request.out):
            console.print(f"wrote {path}", highlight=False)


def _count(scenarios: list[Scenario], seeds: int) -> int:
    return len(scenarios) * seeds * len(SCALERS)


def _runs(
    scenarios: list[Scenario], request: AutoscalingRequest, store: "_Store"
) -> Iterator[Record]:
    for seed in range(1, request.seeds + 1):
        for scenario in scenarios:
            for scaler in SCALERS:
                yield store.run(scenario, scaler, seed, request.traces)


def _enough(
    scenarios: list[Scenario],
    request: AutoscalingRequest,
    store: "_Store",
    progress: TerminalProgress,
) -> dict[str, Record]:
    """By scenario the smallest fixed count that reaches the percentile, known in hindsight alone."""
    found: dict[str, Record] = {}
    plain = [s for s in scenarios if s.whole and not s.slimming]
    progress.begin("fixed counts that are just enough", len(plain))
    for scenario in plain:
        low, high = 0, MOST_STATIC
        best: Record | None = None
        while high - low > 1:
            middle = (low + high) // 2
            record = store.run(scenario, "static-enough", 1, request.traces, static=middle)
            if record.attainment >= PERCENTILE:
                high, best = middle, record
            else:
                low = middle
        if best is not None:
            found[scenario.name] = best
        progress.step()
    return found


class _Store:
    """Runs that are done, one JSON line each; a line of other code counts for nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._code = code_digest(SOURCES)
        self._done: dict[str, Record] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self._done[entry["key"]] = Record.from_json(entry["record"])
                except (ValueError, KeyError, TypeError):
                    continue  # the line that an interruption cut off

    def run(
        self,
        scenario: Scenario,
        scaler: str,
        seed: int,
        traces: Path,
        *,
        static: int | None = None,
    ) -> Record:
        key = f"{self._code} {scenario!r} {scaler} {seed} {static}"
        if key not in self._done:
            record = run_one(scenario, scaler, seed, traces, static=static)
            self._done[key] = record
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                line = {"key": key, "record": record.to_json()}
                file.write(json.dumps(line, allow_nan=False) + "\n")
        return self._done[key]


def _print(records: list[Record], console: Console) -> None:
    table = Table(title="Autoscalers on recorded traffic, means over the seeds")
    for heading in (
        "trace",
        "autoscaler",
        "within SLO",
        "pod-seconds",
        "of peak",
        "changes",
        "turns",
    ):
        table.add_column(heading, justify="left" if heading in {"trace", "autoscaler"} else "right")
    for row in summaries(records):
        table.add_row(
            row.scenario,
            row.scaler,
            f"{row.attainment:.1%}",
            f"{row.pod_seconds:,.0f}",
            f"{row.of_peak:.0%}",
            f"{row.changes:.1f}",
            f"{row.turns:.1f}",
            style="bold" if row.scaler == OURS else "",
        )
    console.print(table)


def _command(request: AutoscalingRequest) -> str:
    words = ["slimscale bench autoscaling", f"--seeds {request.seeds}"]
    words += ["--quick"] if request.quick else []
    words += [f"--only {request.only}"] if request.only else []
    words += ["--hindsight"] if request.hindsight else []
    return " ".join(words)
