"""`slimscale bench router`: what each policy costs the router, measured on this machine."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import Progress

from slimscale.bench.native.machine import alone, read_machine
from slimscale.bench.router.decisions import time_decisions
from slimscale.bench.router.measure import Cost, RouterBench, policy_weights
from slimscale.bench.router.report import document_of, page_of, write_report
from slimscale.bench.suite import code_digest

__all__ = ["RouterRequest", "bench_router"]

POLICIES: Sequence[tuple[str, str]] = (
    ("SED", "Active"), ("ColdAwareSED", "Active"), ("PPO", "Active"), ("PPO", "Shadow"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RouterRequest:
    pods: int
    clients: int
    seconds: float
    repetitions: int
    decisions: int
    seed: int
    out: Path | None
    work: Path
    lock: Path | None


def bench_router(request: RouterRequest) -> None:
    """Measure, print, and write the page where a folder is given."""
    console = Console()
    with alone(request.lock):
        load_before = os.getloadavg()[0]
        costs = _costs(request, console)
        decisions = [
            one for pods in (8, 32) for one in time_decisions(pods, decisions=request.decisions)
        ]
        load_after = os.getloadavg()[0]
    machine = read_machine()
    ran = {
        "command": f"slimscale bench router --repetitions {request.repetitions}"
        f" --seconds {request.seconds:g}",
        "code": code_digest(("serving", "routing", "bench/router")),
        "machine": f"{machine.cpu_model}, {machine.cores} cores, Python {platform.python_version()}",
        "policy": policy_weights().version,
        "pods": request.pods,
        "clients": request.clients,
        "seconds": request.seconds,
        "repetitions": request.repetitions,
        "load_average": f"{load_before:.1f} to {load_after:.1f}",
    }
    document = document_of(costs, decisions, ran, seed=request.seed)
    console.print(page_of(document), markup=False, highlight=False)
    if request.out is not None:
        for path in write_report(document, request.out):
            console.print(f"wrote {path}")


def _costs(request: RouterRequest, console: Console) -> list[Cost]:
    rng = Random(request.seed)  # noqa: S311 - an order alone
    bench = RouterBench(request.work, pods=request.pods)
    costs: list[Cost] = []
    bench.start()
    try:
        with Progress(console=console) as progress:
            task = progress.add_task("routers", total=request.repetitions * len(POLICIES))
            for _ in range(request.repetitions):
                for policy, mode in rng.sample(POLICIES, len(POLICIES)):
                    progress.update(task, description=f"{policy} {mode}")
                    costs.append(
                        bench.run(policy, mode, clients=request.clients, seconds=request.seconds)
                    )
                    progress.advance(task)
    finally:
        bench.stop()
    return costs
