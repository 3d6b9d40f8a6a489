"""What `slimscale bench threads` does, once its options are read."""

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.registry import ABLATIONS, POLICIES
from slimscale.bench.report import Ran, write_report
from slimscale.bench.results import Results
from slimscale.bench.scenarios import DRIFT_SPREAD, Suite, quick_suite, steady_hours, suite
from slimscale.bench.suite import Plan, Progress, code_version, run_plan
from slimscale.bench.tables import print_summary, print_worst
from slimscale.exceptions import SlimError

__all__ = ["Request", "bench_threads"]

QUICK_TRAINING_LOADS = 60
FULL_TRAINING_LOADS = 600
FEW_SEEDS = 3
"""Of ablations and of variants of AutoThread: they cost most and are compared with AutoThread."""
ALWAYS = ("best-per-phase",)
"""What regret is measured from."""
STEADY_POLICIES = (
    "autothread",
    "thread-reinforcer",
    "dotnet-hill-climbing",
    "sliding-window-ucb",
    "best-per-phase",
)
PLAIN_WIDTH = 140
"""Columns of a pipe or a log file, which have no width of their own."""


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
    drift_spread: float = DRIFT_SPREAD
    only_list: bool = False


def bench_threads(request: Request) -> None:
    """Run and print; with `out`, write tables and plots. Raises SlimError for unknown names."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    if request.only_list:
        console.print("\n".join(POLICIES), highlight=False)
        return
    if request.out is not None and request.policies:
        raise SlimError("a report shows all policies; leave out --policy or --out")
    plan = _plan(request)
    began = time.monotonic()
    with TerminalProgress(console) as progress:
        results = run_plan(plan, progress)
        steady = _steady(request, plan, progress) if request.out is not None else None
    print_summary(results, console)
    print_worst(results, plan.policies[0], console)
    if request.out is not None:
        ran = Ran(
            command=_command(request),
            code=code_version(),
            suite_seed=request.suite_seed,
            processes=request.processes,
            wall_seconds=round(time.monotonic() - began, 1),
        )
        for path in write_report(results, steady, ran, request.out):
            console.print(f"wrote {path}", highlight=False)


def _plan(request: Request) -> Plan:
    drawn = (
        quick_suite(request.suite_seed)
        if request.quick
        else suite(request.suite_seed, drift_spread=request.drift_spread)
    )
    fewer = {
        name: FEW_SEEDS
        for name in POLICIES
        if name in ABLATIONS or (name.startswith("autothread") and name != "autothread")
    }
    return Plan(
        scenarios=_chosen(drawn, request.scenario).scenarios,
        policies=_policies(request),
        seeds=tuple(range(1, request.seeds + 1)),
        suite_seed=request.suite_seed,
        folder=request.work,
        processes=request.processes,
        training_loads=QUICK_TRAINING_LOADS if request.quick else FULL_TRAINING_LOADS,
        most_seeds=fewer,
    )


def _steady(request: Request, plan: Plan, progress: Progress) -> Results | None:
    """The hours of steady load; not in the quick benchmark, where one would be all of its time."""
    if request.quick:
        return None
    hours = Plan(
        scenarios=steady_hours(request.suite_seed).scenarios,
        policies=STEADY_POLICIES,
        seeds=plan.seeds,
        suite_seed=plan.suite_seed,
        folder=plan.folder,
        processes=plan.processes,
        training_loads=0,
    )
    return run_plan(hours, progress)


def _policies(request: Request) -> tuple[str, ...]:
    if request.quick and not request.policies:
        costly = [name for name in POLICIES if name.startswith("autothread-")]
        return tuple(name for name in POLICIES if name not in costly)
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


def _command(request: Request) -> str:
    words = ["slimscale bench threads", f"--seeds {request.seeds}"]
    words += ["--quick"] if request.quick else []
    words += [f"--scenario {request.scenario}"] if request.scenario else []
    if request.drift_spread != DRIFT_SPREAD:
        words.append(f"--drift-spread {request.drift_spread:g}")
    words += [f"--suite-seed {request.suite_seed}", f"--processes {request.processes}"]
    return " ".join(words)
