"""`slimscale bench`: thread policies and serving against every baseline. Imported with the command."""

from pathlib import Path
from typing import Annotated

import typer

from slimscale.cli.extras import missing_packages_named
from slimscale.exceptions import SlimError

__all__ = ["bench_app"]

bench_app = typer.Typer(
    help="Measure thread policies, and serving, against others. Example: slimscale bench threads --quick",
    no_args_is_help=True,
)

WORK_FOLDER = ".bench"


@bench_app.callback()
def bench() -> None:
    """Measure thread policies, and serving, against others."""


@bench_app.command(
    epilog="Examples: slimscale bench threads --quick;"
    " slimscale bench threads --policy autothread --policy floor-of-quota --scenario drift"
)
def threads(  # noqa: PLR0917 - each is an option of its own on the command line
    quick: Annotated[
        bool, typer.Option("--quick", help="Five short scenarios, under a minute.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=0, max=1000, help="Runs of each scenario and policy; 0: 10, quick 2.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables and plots; left out: print only.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this policy; may be given several times.")
    ] = None,
    scenario: Annotated[
        str, typer.Option(help="Only scenarios with this in their names, such as drift or c8.")
    ] = "",
    suite_seed: Annotated[
        int, typer.Option(min=0, help="Draws the scenarios; another seed draws others.")
    ] = 1,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that simulate.")] = 2,
    work: Annotated[
        Path, typer.Option(help="Folder that keeps what is done, so that a stop costs nothing.")
    ] = Path(WORK_FOLDER),
    drift_spread: Annotated[
        float,
        typer.Option(min=0.0, max=4.0, help="How far drifting loads wander; full suite only."),
    ] = 1.0,
    list_policies: Annotated[
        bool, typer.Option("--list", help="Name the policies and stop.")
    ] = False,
) -> None:
    """Simulated pods under changing load: AutoThread beside every baseline, tuning included."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.command import Request, bench_threads
    bench_threads(
        Request(
            quick=quick,
            seeds=seeds or (2 if quick else 10),
            out=out,
            policies=tuple(policy or ()),
            scenario=scenario,
            suite_seed=suite_seed,
            processes=processes,
            work=work,
            drift_spread=drift_spread,
            only_list=list_policies,
        )
    )


@bench_app.command(
    epilog="Example: slimscale bench simulator --out docs/results/simulator-validation.md"
)
def simulator(
    seed: Annotated[int, typer.Option(min=0, help="Draws the simulated times.")] = 11,
    tasks: Annotated[
        int, typer.Option(min=1000, max=10_000_000, help="Tasks of each of a case's 20 batches.")
    ] = 20_000,
    out: Annotated[Path | None, typer.Option(help="File to write; left out: print only.")] = None,
) -> None:
    """The simulator against closed forms: exit status 1 when a case disagrees."""
    with missing_packages_named("simulate,bench"):
        from slimscale.simulate.validation import validation_markdown, validation_rows
    rows = validation_rows(seed, tasks=tasks)
    table = validation_markdown(rows)
    if out is None:
        typer.echo(table)
    else:
        heading = (
            "# The simulator against closed forms\n\n"
            f"Written by `slimscale bench simulator --seed {seed} --tasks {tasks}`; 20 batches a case,"
            " 99.99 % intervals. The equations: [model.md](../model.md).\n\n"
        )
        out.write_text(heading + table, encoding="utf-8")
        typer.echo(f"{sum(row.agrees for row in rows)} of {len(rows)} agree: {out}")
    if not all(row.agrees for row in rows):
        raise typer.Exit(1)


@bench_app.command(
    epilog="Examples: slimscale bench serving --quick;"
    " slimscale bench serving --systems direct,slimscale,litserve-0ms --clients 1,8,64 --loads 50,200;"
    " slimscale bench serving --out docs/results --trace data/traces/azure-llm-2023-code-burst10m.csv"
)
def serving(  # noqa: PLR0917 - each is an option of its own on the command line
    quick: Annotated[
        bool, typer.Option("--quick", help="Three systems, few loads, about a minute.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables and plots; left out: print only.")
    ] = None,
    systems: Annotated[
        str, typer.Option(help="Only these, with commas between; left out: all of --list.")
    ] = "",
    clients: Annotated[
        str, typer.Option(help="Closed loops, such as 1,8,64; left out: 1 to 64.")
    ] = "",
    loads: Annotated[
        str,
        typer.Option(help="Open loops in % of the unbatched capacity, such as 50,110,350."),
    ] = "",
    repetitions: Annotated[
        int, typer.Option(min=0, max=100, help="Of everything; 0: 3, quick 1.")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=600.0, help="Of one cell; 0: 1.5, quick 0.8.")
    ] = 0.0,
    binary: Annotated[
        bool, typer.Option("--binary", help="Binary tensors instead of JSON, where spoken.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="ONNX file, image [-1,1,28,28] to logits [-1,10]; left out: built here."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="CSV with a column t_ms: adds loads shaped like it.")
    ] = None,
    mlperf: Annotated[
        bool, typer.Option("--mlperf", help="MLPerf's load generator, Server scenario, as judge.")
    ] = False,
    target: Annotated[
        float, typer.Option(min=1.0, help="The p99 in ms that the holding setting must keep.")
    ] = 100.0,
    stop_after: Annotated[
        float,
        typer.Option(min=0.0, help="Begin nothing new after so many seconds; 0: until done."),
    ] = 0.0,
    lock: Annotated[
        Path | None,
        typer.Option(help="A folder made while measuring, for minutes at most; waited for."),
    ] = None,
    quiet: Annotated[
        Path | None, typer.Option(help="While this file is there nothing is measured.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder that keeps environments and what is done.")
    ] = Path(WORK_FOLDER) / "serving",
    list_systems: Annotated[
        bool, typer.Option("--list", help="Name the systems and stop.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Measure nothing; print and write what is there.")
    ] = False,
    overload: Annotated[
        bool,
        typer.Option(
            "--overload",
            help="Instead: twice what sidecar and router can do; the result joins that of a run"
            " with the same options.",
        ),
    ] = False,
    overload_seconds: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="Of each overload.")
    ] = 60.0,
) -> None:
    """Our data plane beside no batching, window batching, LitServe, BentoML and Ray Serve, over HTTP.

    The peers are installed into environments of their own in the work folder. A stopped run goes on where it was.
    """
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.serving.command import Request, bench_serving
    bench_serving(
        Request(
            quick=quick,
            out=out,
            systems=_names(systems),
            clients=tuple(int(value) for value in _numbers("--clients", clients)),
            loads=tuple(value / 100.0 for value in _numbers("--loads", loads)),
            repetitions=repetitions,
            seconds=seconds,
            work=work,
            binary=binary,
            model=model,
            trace=trace,
            mlperf=mlperf,
            target_milliseconds=target,
            stop_after_seconds=stop_after or None,
            lock=lock,
            quiet=quiet,
            only_list=list_systems,
            only_report=report,
            overload_seconds=overload_seconds if overload else 0.0,
        )
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(name) for name in _names(text))
    except ValueError:
        raise SlimError(f"{option} {text}: give numbers with commas, such as 1,8,64") from None
    if any(not 0 < value <= 10_000 for value in values):
        raise SlimError(f"{option} {text}: each must be above 0 and at most 10000")
    return values


@bench_app.command(
    epilog="Examples: slimscale bench autoscaling --quick;"
    " slimscale bench autoscaling --seeds 3 --out docs/results"
)
def autoscaling(  # noqa: PLR0917 - each is an option of its own on the command line
    quick: Annotated[
        bool, typer.Option("--quick", help="The first ten minutes of each trace, widest alone.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each autoscaler.")] = 3,
    only: Annotated[str, typer.Option(help="Only the trace of this name: code or conv.")] = "",
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="Also find the fixed count that is just enough.")
    ] = False,
    traces: Annotated[Path, typer.Option(help="Folder of the recorded arrivals.")] = Path(
        "data/traces"
    ),
    out: Annotated[
        Path, typer.Option(help="Folder for the table and the plot; none: print only.")
    ] = Path(),
    work: Annotated[
        Path, typer.Option(help="Folder that keeps what is done, so that a stop costs nothing.")
    ] = Path(WORK_FOLDER),
) -> None:
    """Recorded traffic on simulated pools: our scaling beside HPA on CPU, KPA and fixed counts."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.autoscaling.command import AutoscalingRequest, bench_autoscaling
    bench_autoscaling(
        AutoscalingRequest(
            quick=quick,
            seeds=seeds,
            traces=traces,
            out=out if out != Path() else None,
            work=work,
            only=only,
            hindsight=hindsight,
        )
    )


@bench_app.command(
    epilog="Examples: slimscale bench bounds --quick;"
    " slimscale bench bounds --seeds 5 --out docs/results;"
    " slimscale bench bounds --table operator/slimscale/weights/batching-limits.json"
)
def bounds(  # noqa: PLR0917 - each is an option of its own on the command line
    quick: Annotated[
        bool, typer.Option("--quick", help="Two loads of each, one regime, shorter queues.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Traces of each cell.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=600.0, help="Simulated seconds of a trace.")
    ] = 10.0,
    regimes: Annotated[
        str, typer.Option(help="Only these, with commas between, such as base,burst,cold.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables and plots; left out: print only.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Only solve the batching table anew, into this file.")
    ] = None,
) -> None:
    """What no routing policy can beat, exact optima of small cases, and ideas of related systems."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.bounds.command import BoundsRequest, bench_bounds
    bench_bounds(
        BoundsRequest(
            quick=quick,
            out=out,
            seeds=seeds,
            seconds=seconds,
            regimes=_names(regimes),
            table=table,
        )
    )


@bench_app.command(
    epilog="Examples: slimscale bench routing --quick;"
    " slimscale bench routing --policy router.safetensors --out docs/results;"
    " slimscale bench routing --fidelity --out docs/results"
)
def routing(  # noqa: PLR0917 - each is an option of its own on the command line
    quick: Annotated[
        bool, typer.Option("--quick", help="Two regimes, two loads, short traces: seconds.")
    ] = False,
    policy: Annotated[
        list[Path] | None,
        typer.Option(help="A learned policy (.safetensors, its .json beside it); several times."),
    ] = None,
    regimes: Annotated[
        str, typer.Option(help="Only these, with commas between, such as base,fault,real.")
    ] = "",
    loads: Annotated[
        str, typer.Option(help="In % of the capacity, such as 30,50,85; left out: 30 to 95.")
    ] = "",
    test_traces: Annotated[
        int, typer.Option(min=0, max=1000, help="Of each cell; 0: 10, quick 3.")
    ] = 0,
    validation_traces: Annotated[
        int, typer.Option(min=0, max=1000, help="On which settings are chosen; 0: 3, quick 1.")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=600.0, help="Of each trace; 0: 10, quick 3.")
    ] = 0.0,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that simulate.")] = 1,
    fidelity: Annotated[
        bool,
        typer.Option(
            "--fidelity", help="Instead: this simulator against the data plane's own code."
        ),
    ] = False,
    traces: Annotated[Path, typer.Option(help="Folder of the recorded arrivals.")] = Path(
        "data/traces"
    ),
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables and plots; left out: print only.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder that keeps what is done, so that a stop costs nothing.")
    ] = Path(WORK_FOLDER),
    list_rules: Annotated[bool, typer.Option("--list", help="Name the rules and stop.")] = False,
) -> None:
    """Routing policies on simulated devices: every rule, learned ones, the bound, in all regimes."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.routing.command import RoutingRequest, bench_routing
    bench_routing(
        RoutingRequest(
            quick=quick,
            out=out,
            work=work,
            traces=traces,
            policies=tuple(policy or ()),
            regimes=_names(regimes),
            loads=tuple(value / 100.0 for value in _numbers("--loads", loads)),
            test_traces=test_traces,
            validation_traces=validation_traces,
            seconds=seconds,
            processes=processes,
            fidelity=fidelity,
            only_list=list_rules,
        )
    )


@bench_app.command(
    epilog="Examples: slimscale bench router; slimscale bench router --repetitions 8 --out docs/results"
)
def router(  # noqa: PLR0917 - each is an option of its own on the command line
    pods: Annotated[int, typer.Option(min=1, max=64, help="Pods behind the router.")] = 8,
    clients: Annotated[int, typer.Option(min=1, max=256, help="Closed loops.")] = 16,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=60.0, help="Of each run, after half a second.")
    ] = 3.0,
    repetitions: Annotated[int, typer.Option(min=1, max=100, help="Runs of each policy.")] = 5,
    decisions: Annotated[int, typer.Option(min=200, help="Timed in one process.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Of the order and the intervals.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the data; left out: print only.")
    ] = None,
    lock: Annotated[
        Path | None, typer.Option(help="A folder made while measuring; refused if it is there.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder for configurations and logs.")] = Path(
        f"{WORK_FOLDER}/router"
    ),
) -> None:
    """What a policy costs the router: CPU of a request, requests a second, time of a decision."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.router.command import RouterRequest, bench_router
    bench_router(
        RouterRequest(
            pods=pods, clients=clients, seconds=seconds, repetitions=repetitions,
            decisions=decisions, seed=seed, out=out, work=work, lock=lock,
        )
    )  # fmt: skip


@bench_app.command(
    "native",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Examples: slimscale bench native real; slimscale bench native validate",
)
def native(context: typer.Context) -> None:
    """Real threads under real CPU quotas on this machine; say --help for its commands."""
    with missing_packages_named("simulate,bench"):
        from slimscale.bench.native.__main__ import app
    app(context.args, prog_name="slimscale bench native", standalone_mode=False)
