"""`slimscale bench`: AutoThread against every baseline. Imported with the command, not before."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from slimscale.exceptions import SlimError

__all__ = ["bench_app"]

bench_app = typer.Typer(
    help="Measure thread policies against each other. Example: slimscale bench threads --quick",
    no_args_is_help=True,
)

WORK_FOLDER = ".bench"


@contextmanager
def _missing_packages_named() -> Iterator[None]:
    """The benchmark's packages are extras: say which one is missing and how to get them."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slimscale"):
            raise
        raise SlimError(
            f"{error.name} is missing; from a checkout: pip install '.[simulate,bench]'"
        ) from error


@bench_app.callback()
def bench() -> None:
    """Measure thread policies against each other."""


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
    with _missing_packages_named():
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
    with _missing_packages_named():
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
    "native",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Examples: slimscale bench native real; slimscale bench native validate",
)
def native(context: typer.Context) -> None:
    """Real threads under real CPU quotas on this machine; say --help for its commands."""
    with _missing_packages_named():
        from slimscale.bench.native.__main__ import app
    app(context.args, prog_name="slimscale bench native", standalone_mode=False)
