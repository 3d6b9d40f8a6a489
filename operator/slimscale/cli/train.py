"""`slimscale train`: learned policies from what routers saw. Imported with the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from slimscale.exceptions import SlimError

__all__ = ["train_app"]

train_app = typer.Typer(
    help="Train the learned router on logged decisions. Example: slimscale train fetch-log fashion --out log",
    no_args_is_help=True,
)


@contextmanager
def _missing_packages_named() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slimscale"):
            raise
        raise SlimError(
            f"{error.name} is missing; from a checkout: pip install '.[cli,train,operator]'"
        ) from error


@train_app.callback()
def train() -> None:
    """Train the learned router on logged decisions."""


@train_app.command(
    "fetch-log", epilog="Example: slimscale train fetch-log fashion -n shop --out log"
)
def fetch_log(
    name: Annotated[str, typer.Argument(help="The SlimInference.")],
    out: Annotated[Path, typer.Option(help="Folder for the segments; made when missing.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace; else the context's own.")
    ] = "",
    context: Annotated[str, typer.Option(help="kubeconfig context; else the current.")] = "",
) -> None:
    """Fetch the decisions that the routers of a SlimInference keep.

    They keep some once `routing.decisionLog.samplePercent` is above 0. The format is in
    docs/reference/decision-log.md.
    """
    with _missing_packages_named():
        from slimscale.cli.fetch_log import fetch_log as fetch
    fetch(name=name, namespace=namespace, context=context, out=out)
