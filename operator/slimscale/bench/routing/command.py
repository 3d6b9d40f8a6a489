"""What `slimscale bench routing` does, once its options are read."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.routing.fidelity import Fidelity, compare_simulators, write_fidelity
from slimscale.bench.routing.judge import difference
from slimscale.bench.routing.report import Report, write_report
from slimscale.bench.routing.rules import learned_players, rules
from slimscale.bench.routing.runner import TRACE, Store
from slimscale.bench.routing.suite import Plan, Played, play_headline, play_pools, play_six
from slimscale.exceptions import SlimError
from slimscale.simulate.routing.scene import REGIMES

__all__ = ["RoutingRequest", "bench_routing"]

PLAIN_WIDTH = 160


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """The options of the command line. Empty tuples and 0: the usual ones."""

    quick: bool
    out: Path | None
    work: Path
    traces: Path
    policies: tuple[Path, ...] = ()
    regimes: tuple[str, ...] = ()
    loads: tuple[float, ...] = ()
    test_traces: int = 0
    validation_traces: int = 0
    seconds: float = 0.0
    processes: int = 1
    fidelity: bool = False
    """Instead: the compiled simulator against the one that runs the data plane's own code."""
    only_list: bool = False


def bench_routing(request: RoutingRequest) -> None:
    """Run and print; with `out`, write tables and plots.

    Raises SlimError for names and files that are not there.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    if request.only_list:
        console.print("\n".join(rule.name for rule in rules()), highlight=False)
        return
    began = time.monotonic()
    if request.fidelity:
        with TerminalProgress(console) as progress:
            found = compare_simulators(progress, quick=request.quick)
        _print_fidelity(found, console)
        paths = write_fidelity(found, request.out, command=_command(request)) if request.out else []
    else:
        plan = _plan(request)
        store = Store(request.work / "routing.jsonl", request.traces)
        with TerminalProgress(console) as progress:
            played = play_six(plan, store, progress)
            headline = play_headline(plan, store, progress)
            pools = play_pools(plan, store, progress, played)
        _print(played, plan, console)
        report = Report(
            plan, played, headline, tuple(pools), _command(request), time.monotonic() - began
        )
        paths = write_report(report, request.out) if request.out else []
    for path in paths:
        console.print(f"wrote {path}", highlight=False)


def _plan(request: RoutingRequest) -> Plan:
    for name in request.regimes:
        if name not in REGIMES:
            raise SlimError(f"no regime {name!r}; there are {', '.join(REGIMES)}")
    plan = Plan(processes=request.processes, learned=tuple(learned_players(request.policies)))
    if request.quick:
        plan = plan.quick()
    plan = replace(
        plan,
        regimes=request.regimes or plan.regimes,
        loads=request.loads or plan.loads,
        test_traces=request.test_traces or plan.test_traces,
        validation_traces=request.validation_traces or plan.validation_traces,
        seconds=request.seconds or plan.seconds,
    )
    needs_trace = any(REGIMES[name].trace for name in plan.regimes)
    if needs_trace and not (request.traces / TRACE).exists():
        raise SlimError(
            f"no trace {request.traces / TRACE}; give the folder with --traces, or leave out the"
            " regime trace with --regimes"
        )
    return plan


def _print(played: Played, plan: Plan, console: Console) -> None:
    shown = Table(title="Mean J of test traces; differences with 95 % intervals, paired by trace")
    for heading in ("regime", "load", "bound", "best rule (chosen on validation traces)", "its J"):
        shown.add_column(heading)
    for one in plan.learned:
        shown.add_column(f"{one.name} less the best rule")
    for cell, name in played.best.items():
        base = played.of(cell, name).values("value")
        row = [cell[0], f"{cell[1]:g}", f"{played.bound[cell]:.3f}", name, f"{base.mean():.3f}"]
        for one in plan.learned:
            gap = difference(played.of(cell, one.name).values("value"), base)
            row.append(f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})")
        shown.add_row(*row)
    console.print(shown)


def _print_fidelity(found: Fidelity, console: Console) -> None:
    shown = Table("load", "policies", "tau of J", "tau of latency", "median latency error", "worst")
    for row in found.loads:
        shown.add_row(
            f"{row.load:g}", str(len(row.pairs)), f"{row.tau_value:.2f}", f"{row.tau_latency:.2f}",
            f"{row.median_error:.1%}", f"{row.worst_error:.1%}",
        )  # fmt: skip
    console.print(shown)


def _command(request: RoutingRequest) -> str:
    words = ["slimscale bench routing"]
    words += ["--quick"] if request.quick else []
    words += ["--fidelity"] if request.fidelity else []
    words += [f"--policy {policy}" for policy in request.policies]
    words += [f"--regimes {','.join(request.regimes)}"] if request.regimes else []
    words += [f"--loads {','.join(f'{x:g}' for x in request.loads)}"] if request.loads else []
    words += [f"--test-traces {request.test_traces}"] if request.test_traces else []
    if request.validation_traces:
        words.append(f"--validation-traces {request.validation_traces}")
    words += [f"--seconds {request.seconds:g}"] if request.seconds else []
    words.append(f"--out {request.out}")
    return " ".join(words)
