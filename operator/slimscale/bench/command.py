"""What `slimscale bench threads` does, once its options are read."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.registry import POLICIES
from slimscale.bench.scenarios import Suite, quick_suite, suite
from slimscale.bench.suite import Plan, run_plan
from slimscale.bench.tables import print_summary
from slimscale.exceptions import SlimError

__all__ = ["Request", "bench_threads"]

QUICK_TRAINING_LOADS = 60
PLAIN_WIDTH = 120
"""Columns of a pipe or a log file, which have no width of their own."""
ALWAYS = ("best-per-phase",)
"""What regret is measured from."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command line."""

    quick: bool
    seeds: int
    out: Path | None
    policies: tuple[str, ...]
    scenario: str
    suite_seed: int
    processes: int
    work: Path
    only_list: bool = False


def bench_threads(request: Request) -> None:
    """Run and print; with `out`, write tables and plots. Raises SlimError for unknown names."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    if request.only_list:
        console.print("\n".join(POLICIES), highlight=False)
        return
    drawn = quick_suite(request.suite_seed) if request.quick else suite(request.suite_seed)
    plan = Plan(
        scenarios=_chosen(drawn, request.scenario).scenarios,
        policies=_policies(request),
        seeds=tuple(range(1, request.seeds + 1)),
        suite_seed=request.suite_seed,
        folder=request.work,
        processes=request.processes,
        **({"training_loads": QUICK_TRAINING_LOADS} if request.quick else {}),
    )
    with TerminalProgress(console) as progress:
        results = run_plan(plan, progress)
    print_summary(results, console)


def _policies(request: Request) -> tuple[str, ...]:
    unknown = [name for name in request.policies if name not in POLICIES]
    if unknown:
        raise SlimError(f"no policy {unknown[0]!r}; `slimscale bench threads --list` names them")
    wanted = request.policies or tuple(POLICIES)
    return (*wanted, *(name for name in ALWAYS if name not in wanted))


def _chosen(drawn: Suite, part: str) -> Suite:
    kept = tuple(s for s in drawn.scenarios if part in s.name)
    if not kept:
        names = ", ".join(s.name for s in drawn.scenarios[:3])
        raise SlimError(f"no scenario has {part!r} in its name; they are named like {names}")
    return Suite(drawn.name, drawn.suite_seed, kept)
