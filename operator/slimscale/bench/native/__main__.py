"""Commands of the measurements on this machine; each prints where its results are."""

import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from slimscale.bench.native.dataset import (
    DEFAULT_FOLDER,
    load_curves,
    load_machine,
    write_dataset,
)
from slimscale.bench.native.libraries import measure_libraries, write_libraries
from slimscale.bench.native.machine import alone, read_machine, wait_until_quiet
from slimscale.bench.native.plan import Curve, curve_plan
from slimscale.bench.native.program import build
from slimscale.bench.native.real import real_scenario, run_scenario
from slimscale.bench.native.real_report import write_real
from slimscale.bench.native.report import write_validation
from slimscale.bench.native.sweep import known_curves, sweep
from slimscale.bench.native.validate import validate
from slimscale.exceptions import SlimError
from slimscale.threads.predictor import AnalyticPredictor, ThreadPredictor
from slimscale.weights.shipped import shipped_predictor

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console(stderr=True)

PLAN_SEED = 20261130
RAW = Path("build/native-curves.jsonl")
RAW_REAL = Path("build/native-real.jsonl")
RESULTS = Path("docs/results")

Lock = Annotated[Path | None, typer.Option(help="Folder that says: somebody measures here.")]
MostLoad = Annotated[float, typer.Option(help="Load average above which nothing is measured.")]


@app.callback()
def prepare() -> None:
    """Measurements on this machine; each command prints where its results are."""
    # So that control groups and locks are removed when somebody stops a sweep.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@app.command("build", epilog="Example: slimscale bench native build")
def build_command() -> None:
    """Compile the native pool and print where it is."""
    sys.stdout.write(f"{build()}\n")


@app.command(
    "sweep", epilog="Example: slimscale bench native sweep --curves-a-family 8 --minutes 60"
)
def sweep_command(
    *,
    output: Annotated[Path, typer.Option(help="Raw lines; a sweep goes on where it was.")] = RAW,
    curves_a_family: Annotated[int, typer.Option(min=1, max=100)] = 8,
    repeats: Annotated[int, typer.Option(min=1, max=20)] = 3,
    minutes: Annotated[float, typer.Option(help="Stop after so long, between curves.")] = 60.0,
    lock: Lock = None,
    most_load: MostLoad = 1.0,
) -> None:
    """Measure the curves of the plan that are not in the output yet (root, about 35 minutes)."""
    curves = curve_plan(seed=PLAN_SEED, curves_a_family=curves_a_family, cores=read_machine().cores)
    program = build()
    load = wait_until_quiet(most_load=most_load, patience_seconds=600.0)
    with alone(lock), _progress() as bars:
        task = bars.add_task(f"curves, load {load:.1f}", total=len(curves))

        def advance(curve: Curve) -> None:
            bars.update(task, advance=1, description=curve.name)

        done = sweep(
            curves,
            program=program,
            output=output,
            repeats=repeats,
            most_seconds=minutes * 60.0,
            progress=advance,
        )
    known = len(known_curves(output) & {c.name for c in curves})
    console.print(f"{done} curves measured now, {known} of {len(curves)} are in {output}")


@app.command("pack", epilog="Example: slimscale bench native pack --raw build/native-curves.jsonl")
def pack_command(
    raw: Annotated[Path, typer.Option(help="Lines that `sweep` wrote.")] = RAW,
    folder: Annotated[Path, typer.Option(help="Where the committed form goes.")] = DEFAULT_FOLDER,
) -> None:
    """Turn the lines of a sweep into the small files of data/native-curves."""
    console.print(f"{write_dataset(raw, folder)} curves are in {folder}")


@app.command("validate", epilog="Example: slimscale bench native validate --out docs/results")
def validate_command(
    data: Annotated[Path, typer.Option(help="Measured curves.")] = DEFAULT_FOLDER,
    out: Annotated[Path, typer.Option(help="Where the tables and pictures go.")] = RESULTS,
) -> None:
    """Compare measured curves with the closed network, the simulator and the operator's choices."""
    curves = load_curves(data)
    with _progress() as bars:
        task = bars.add_task("curves", total=len(curves) + 1)
        validation = validate(
            curves,
            _predictors(),
            progress=lambda name: bars.update(task, advance=1, description=name),
        )
    for path in write_validation(validation, load_machine(data), out):
        console.print(str(path))


@app.command("real", epilog="Example: slimscale bench native real --quotas 1,2 --seeds 1")
def real_command(
    *,
    output: Annotated[Path, typer.Option(help="Raw lines; goes on where it was.")] = RAW_REAL,
    quotas: Annotated[str, typer.Option(help="CPU quotas in cores; `none` for none.")] = "0.5,1,2",
    seeds: Annotated[int, typer.Option(min=1, help="Times that all is run.")] = 1,
    phase_seconds: Annotated[float, typer.Option(help="A multiple of 5.")] = 20.0,
    minutes: Annotated[float, typer.Option(help="Stop after so long, between runs.")] = 90.0,
    out: Annotated[Path, typer.Option(help="Where the tables and pictures go.")] = RESULTS,
    lock: Lock = None,
    most_load: MostLoad = 1.0,
) -> None:
    """Run all policies on the native pool under real quotas (root, about 12 minutes a quota)."""
    wanted = [None if q == "none" else float(q) for q in quotas.split(",")]
    program, cores = build(), read_machine().cores
    end = time.monotonic() + minutes * 60.0
    predictors = {f"autothread-{name.split()[0]}": p for name, p in _predictors().items()}
    wait_until_quiet(most_load=most_load, patience_seconds=600.0)
    with alone(lock), _progress() as bars:
        task = bars.add_task("runs", total=None)
        for seed in range(1, seeds + 1):
            for quota in wanted:
                run_scenario(
                    real_scenario(quota, cores=cores, phase_seconds=phase_seconds),
                    program=program,
                    output=output,
                    predictors=predictors,
                    seed=seed,
                    most_seconds=end - time.monotonic(),
                    progress=lambda name: bars.update(task, advance=1, description=name),
                )
    for path in write_real(output, out):
        console.print(str(path))


@app.command("libraries", epilog="Example: slimscale bench native libraries --quotas 1,2")
def libraries_command(
    *,
    quotas: Annotated[str, typer.Option(help="CPU quotas in cores.")] = "1,2",
    repeats: Annotated[int, typer.Option(min=1, max=20)] = 3,
    seconds: Annotated[float, typer.Option(help="Of one repeat at one count.")] = 0.5,
    out: Annotated[Path, typer.Option(help="Where the table goes.")] = RESULTS,
    lock: Lock = None,
    most_load: MostLoad = 1.0,
) -> None:
    """Measure libraries' thread counts under quotas (root, about 25 s a library)."""
    wait_until_quiet(most_load=most_load, patience_seconds=600.0)
    with alone(lock):
        curves, missing = measure_libraries(
            quotas=[float(q) for q in quotas.split(",")],
            repeats=repeats,
            seconds=seconds,
            seed=PLAN_SEED,
            progress=console.print,
        )
    if missing:
        console.print(f"not installed, so left out: {', '.join(missing)}")
    for path in write_libraries(curves, missing, out):
        console.print(str(path))


def _predictors() -> dict[str, ThreadPredictor]:
    """Those that the operator can use: the analytic model, and the network where it is installed."""
    shipped = shipped_predictor()
    learned = {"network": shipped} if shipped.weights is not None else {}
    return {"analytic": AnalyticPredictor(), **learned}


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def main() -> None:
    try:
        app()
    except SlimError as error:
        console.print(f"[red]error:[/red] {error}")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
