"""What `slimscale bench bounds` does, once its options are read."""

import dataclasses
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slimscale.bench.bounds import figures
from slimscale.bench.bounds.dispatching import shop_rows
from slimscale.bench.bounds.plane import REGIME_NAMES, holding_rows, plane_rows, policies
from slimscale.bench.bounds.report import write_report
from slimscale.bench.progress import TerminalProgress
from slimscale.bench.suite import code_digest
from slimscale.exceptions import SlimError
from slimscale.simulate.bounds.batching_limits import BASE_SHARES, LOADS, solve_table

__all__ = ["BoundsRequest", "bench_bounds"]

SOURCES = ("bench/bounds", "simulate/bounds", "simulate/related", "simulate/routing", "routing")
BANDWIDTHS = (1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 1e9)
SEED = 2026


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """The options of the command line."""

    quick: bool
    out: Path | None
    seeds: int
    seconds: float
    regimes: tuple[str, ...] = ()
    table: Path | None = None
    """Solve the batching table anew, write it there and do nothing else."""


def bench_bounds(request: BoundsRequest) -> None:
    """Compute and print; with `out`, write tables and a plot. Raises SlimError for an unknown regime."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    if request.table is not None:
        _solve_table(request.table, console)
        return
    regimes = request.regimes or (("base",) if request.quick else REGIME_NAMES)
    for name in regimes:
        if name not in REGIME_NAMES:
            raise SlimError(f"--regimes {name}: give some of {', '.join(REGIME_NAMES)}")
    began = time.monotonic()
    document = _compute(request, regimes, console)
    document["ran"]["minutes"] = (time.monotonic() - began) / 60.0
    _print(document, console)
    if request.out is not None:
        for path in write_report(document, request.out):
            console.print(f"wrote {path}", highlight=False)


def _compute(request: BoundsRequest, regimes: tuple[str, ...], console: Console) -> dict[str, Any]:
    quick = request.quick
    planning = (0.3, 0.7) if quick else figures.LOADS
    batching, weights = (
        ((0.3, 0.7), (0.0, 0.05, 0.2)) if quick else ((0.1, 0.3, 0.5, 0.7), (0.0, 0.05, 0.2, 0.5))
    )
    routing = (0.3, 0.6) if quick else (0.2, 0.3, 0.5, 0.7, 0.85)
    plane = (0.3,) if quick else (0.3, 0.5, 0.7, 0.85)
    queue_cap = 10 if quick else 30
    seeds = list(range(1, request.seeds + 1))
    with TerminalProgress(console) as progress:
        progress.begin("planning bound: loads", len(planning))
        document: dict[str, Any] = {"planning": figures.planning_rows(planning, progress.step)}
        progress.begin("batching optimum: loads and weights", len(batching) * len(weights))
        document["batching"] = figures.batching_rows(batching, weights, progress.step)
        progress.begin("routing optimum: loads", len(routing))
        document["routing"] = figures.routing_rows(routing, queue_cap, progress.step)
        document["placement"] = figures.placement_rows(SEED, 50 if quick else 400)
        document["timers"] = figures.timer_rows(SEED, 400)
        document["cuts"] = figures.cut_rows(BANDWIDTHS)
        steps = 4 if quick else 40
        progress.begin("graph encoder: training steps", steps)
        document["shop"] = shop_rows(
            seeds=range(1, 4 if quick else 11),
            jobs=100 if quick else 400,
            steps=steps,
            advance=progress.step,
        )
        progress.begin(
            "data plane: regime, load, policy", len(regimes) * len(plane) * len(policies())
        )
        document["plane"] = plane_rows(
            regimes, plane, seeds=seeds, seconds=request.seconds, advance=progress.step
        )
        times = (1.0, 5.0) if quick else (1.0, 5.0, 20.0)
        progress.begin("holding: loads and weights", len(plane) * len(times))
        document["holding"] = holding_rows(
            plane, times, seeds=seeds, seconds=request.seconds, advance=progress.step
        )
    document["ran"] = {
        "command": _command(request),
        "machine": f"{platform.machine()} {platform.system()}, {os.cpu_count()} CPUs",
        "code": code_digest(SOURCES),
        "seeds": seeds,
        "seconds": request.seconds,
        "queue_cap": queue_cap,
        "regimes": list(regimes),
    }
    return document


def _solve_table(path: Path, console: Console) -> None:
    with TerminalProgress(console) as progress:
        progress.begin("batching limits: base share, load", len(BASE_SHARES) * len(LOADS))
        table = solve_table(advance=progress.step)
    text = json.dumps(dataclasses.asdict(table), separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    console.print(f"wrote {path}", highlight=False)


def _print(document: dict[str, Any], console: Console) -> None:
    table = Table(title="J a request on the simulated data plane, means over the seeds")
    for heading in ("regime", "load", "policy", "J", "bound", "mJ", "latency, ms"):
        table.add_column(heading, justify="left" if heading in {"regime", "policy"} else "right")
    for row in document["plane"]:
        table.add_row(
            row["regime"], f"{row['load']:g}", row["policy"], f"{row['objective']:.3f}",
            f"{row['bound']:.3f}", f"{1000 * row['joules']:.0f}",
            f"{1000 * row['latency_seconds']:.1f}",
        )  # fmt: skip
    console.print(table)


def _command(request: BoundsRequest) -> str:
    words = ["slimscale bench bounds", f"--seeds {request.seeds}", f"--seconds {request.seconds:g}"]
    words += ["--quick"] if request.quick else []
    words += [f"--regimes {','.join(request.regimes)}"] if request.regimes else []
    words += [f"--out {request.out}"] if request.out is not None else []
    return " ".join(words)
