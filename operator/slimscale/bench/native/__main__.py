"""Commands of the measurements on this machine; each prints where its results are."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from slimscale.bench.native.machine import alone, read_machine, wait_until_quiet
from slimscale.bench.native.plan import Curve, curve_plan
from slimscale.bench.native.program import build
from slimscale.bench.native.sweep import known_curves, sweep
from slimscale.exceptions import SlimError

app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
console = Console(stderr=True)

PLAN_SEED = 20261130
RAW = Path("build/native-curves.jsonl")

Lock = Annotated[Path | None, typer.Option(help="Folder that says: somebody measures here.")]
MostLoad = Annotated[float, typer.Option(help="Load average above which nothing is measured.")]


@app.command("build")
def build_command() -> None:
    """Compile the native pool and print where it is."""
    sys.stdout.write(f"{build()}\n")


@app.command("sweep")
def sweep_command(
    *,
    output: Annotated[Path, typer.Option(help="Raw lines; a sweep goes on where it was.")] = RAW,
    curves_a_family: Annotated[int, typer.Option(min=1, max=100)] = 8,
    repeats: Annotated[int, typer.Option(min=1, max=20)] = 3,
    minutes: Annotated[float, typer.Option(help="Stop after so long, between curves.")] = 60.0,
    lock: Lock = None,
    most_load: MostLoad = 1.0,
) -> None:
    """Measure the curves of the plan that are not in the output yet (root, about 20 minutes)."""
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
