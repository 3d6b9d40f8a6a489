"""Entry point of `slimscale` and `kubectl slimscale`. Each command imports its parts on use."""

import sys
from typing import Annotated

import typer

from slimscale import __version__
from slimscale.cli.bench import bench_app
from slimscale.cli.train import train_app
from slimscale.exceptions import SlimError

__all__ = ["app", "run"]

app = typer.Typer(
    name="slimscale",
    help="Thread counts for simulation pods. `slimscale COMMAND --help` shows an example of each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
explain_app = typer.Typer(
    help="Say why an object is as it is. Example: slimscale explain simworkload ant -n sims",
    no_args_is_help=True,
)
app.add_typer(explain_app, name="explain")
app.add_typer(bench_app, name="bench")
app.add_typer(train_app, name="train")

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; else the context's own.")
]
Context = Annotated[str, typer.Option("--context", help="kubeconfig context; else the current.")]
Png = Annotated[str, typer.Option("--png", help="Also draw the curve into this file.")]


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Thread counts for simulation pods."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@explain_app.command(
    "simworkload", epilog="Example: slimscale explain simworkload ant -n sims --png ant.png"
)
def explain_simworkload(
    name: str, namespace: Namespace = "", context: Context = "", png: Png = ""
) -> None:
    """Why a SimWorkload has the thread count it has: inputs, steps, curve, pods, history."""
    from slimscale.cli.explain import explain

    explain(name=name, namespace=namespace, context=context, png=png)


@app.command(
    epilog="Example: slimscale advise --max-threads 32 -- python rollout.py",
    context_settings={"ignore_unknown_options": True},
)
def advise(  # noqa: PLR0917 - each is an option of its own on the command line
    command: Annotated[list[str], typer.Argument(help="The program, after `--`.")],
    max_threads: Annotated[int, typer.Option(min=1, max=1024, help="Most threads to try.")] = 64,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Measuring time of each thread count.")
    ] = 5.0,
    cpus: Annotated[
        float, typer.Option(min=0.0, help="CPUs to plan for; 0: the quota or cores found here.")
    ] = 0.0,
    probe: Annotated[
        bool, typer.Option(help="Also run the best count and its neighbours, to check.")
    ] = True,
    png: Png = "",
) -> None:
    """The best thread count of a local program, with its curve.

    A program that follows the contract is measured while it runs, for about six times --seconds.
    One that ends by itself, without the contract, is run once for each count of a ladder.
    """
    from slimscale.cli.advise import advise as advise_program

    advise_program(
        command=command,
        max_threads=max_threads,
        seconds=seconds,
        cpus=cpus or None,
        probe=probe,
        png=png,
    )


@app.command(epilog="Example: slimscale generate --check")
def generate(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail when something differs.")
    ] = False,
) -> None:
    """Write the generated files of a checkout: CRDs, the chart's copy, references in docs/."""
    from slimscale.cli.generate import generate as generate_files

    raise typer.Exit(generate_files(check=check))


def run() -> None:
    """Run the command line; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except SlimError as error:
        typer.echo(f"slimscale: {error}", err=True)
        sys.exit(1)
