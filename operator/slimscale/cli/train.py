"""`slimscale train`: learned policies from what routers saw. Imported with the command."""

from pathlib import Path
from typing import Annotated

import typer

from slimscale.cli.extras import missing_packages_named

__all__ = ["train_app"]

train_app = typer.Typer(
    help="Train the learned router on logged decisions. Example: slimscale train router --from-log log",
    no_args_is_help=True,
)


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
    with missing_packages_named("cli,train,operator"):
        from slimscale.cli.fetch_log import fetch_log as fetch
    fetch(name=name, namespace=namespace, context=context, out=out)


@train_app.command(
    "router",
    epilog="Example: slimscale train router --from-log log --name tuned --out tuned.yaml;"
    " kubectl apply --server-side -n shop -f tuned.yaml",
)
def router(
    from_log: Annotated[Path, typer.Option(help="Folder of segments, from `fetch-log`.")],
    out: Annotated[Path, typer.Option(help="Where the ConfigMap's manifest goes.")] = Path(
        "policy.yaml"
    ),
    name: Annotated[str, typer.Option(help="Name of the ConfigMap.")] = "router-policy",
    start: Annotated[
        Path | None,
        typer.Option(help="Folder with policy.safetensors and policy.json; else what ships."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the fit.")] = 1,
) -> None:
    """Fine-tune a policy on logged decisions and write it as a ConfigMap, if it passes its gate.

    Routers whose SlimInference names the ConfigMap (routing.learned.policyConfigMap) try a new policy
    in shadow, then on a canary's share of the requests, and only then on all of them.
    """
    with missing_packages_named("cli,train,operator"):
        from slimscale.cli.train_router import train_router
    raise typer.Exit(train_router(from_log, out=out, name=name, start=start, seed=seed))
