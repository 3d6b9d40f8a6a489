"""`python -m slimscale.training.slimmable train | export | measure | report`.

train: fit, export every width, look at the test set once, time every width, write card and page.
export: the same from the checkpoint that `train` kept. measure: time the graphs in --out again.
report: the page from the card.
"""

import argparse
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from rich.console import Console
from rich.progress import Progress

from slimscale.training.slimmable.card import make_card, read_card, with_latency, write_card
from slimscale.training.slimmable.data import FASHION_FOLDER, DataMissing, Split, load_fashion
from slimscale.training.slimmable.export import check_export, export
from slimscale.training.slimmable.fit import accuracies
from slimscale.training.slimmable.measure import load_average, measure_latency, work_of
from slimscale.training.slimmable.network import SlimmableResNet
from slimscale.training.slimmable.report import write_report
from slimscale.training.slimmable.train import (
    TrainSettings,
    load_checkpoint,
    save_checkpoint,
    train,
)

SERVICE = "fashion"
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / "weights" / SERVICE
RESULTS_FOLDER = Path("docs/results")
CHECKPOINT = Path("build/slimmable/network.safetensors")
QUICK_IMAGES = 2000
QUICK_FOLDER = Path("build/slimmable/quick")
"""A quick run must not take the place of weights that are used."""
TOLERANCE = 1e-5
ROUNDS = 60


def finish(
    network: SlimmableResNet,
    data: Split,
    facts: dict[str, object],
    *,
    out: Path,
) -> dict[str, Any]:
    """Export, check against torch, look at the test set; the card so far."""
    paths = export(network, out, service=SERVICE)
    differences = check_export(network, paths, data.validation.pixels[:64], tolerance=TOLERANCE)
    return make_card(
        service=SERVICE,
        paths=paths,
        work={ratio: work_of(path.read_bytes()) for ratio, path in paths.items()},
        test=accuracies(network, data.test),
        validation=accuracies(network, data.validation),
        differences=differences,
        facts=facts,
        images=len(data.test),
    )


def measured(card: dict[str, Any], out: Path, *, rounds: int, console: Console) -> dict[str, Any]:
    """The card with latencies of the graphs in `out`."""
    paths = {width["ratio"]: out / width["model"] / "model.onnx" for width in card["widths"]}
    with Progress(console=console) as progress:
        task = progress.add_task("latency", total=rounds + 1)
        latency = measure_latency(
            paths, rounds=rounds, seed=1, round_done=lambda: progress.advance(task)
        )
    return with_latency(
        card,
        latency,
        {
            "rounds": rounds,
            "threads": 1,
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "load_average": round(load_average(), 1),
            "onnxruntime": onnxruntime.__version__,
        },
    )


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    console = Console()
    torch.set_num_threads(asked.threads)
    settings = TrainSettings(data=asked.data)
    fit = replace(settings.fit, seed=asked.seed, epochs=asked.epochs or settings.fit.epochs)
    settings = replace(settings, fit=fit)
    rounds = ROUNDS
    if asked.quick:
        settings, rounds = settings.quick(), 5
    out = asked.out or (QUICK_FOLDER if asked.quick else WEIGHTS_FOLDER)
    results = asked.results or (QUICK_FOLDER if asked.quick else RESULTS_FOLDER)
    checkpoint = asked.checkpoint or (QUICK_FOLDER / CHECKPOINT.name if asked.quick else CHECKPOINT)
    try:
        if asked.what in ("train", "export"):
            data = load_fashion(settings.data, validation=settings.validation, seed=asked.seed)
            if asked.quick:
                count = min(QUICK_IMAGES, len(data.train))
                data = replace(data, train=data.train.take(torch.arange(count)))
            if asked.what == "train":
                network, facts = train(data, settings=settings, console=console)
                save_checkpoint(checkpoint, network, facts, settings)
            else:
                network, facts = load_checkpoint(checkpoint)
            card = finish(network, data, facts, out=out)
        else:
            card = read_card(out)
        if asked.what != "report":
            card = measured(card, out, rounds=rounds, console=console)
            write_card(out, card)
        write_report(card, results)
    except (DataMissing, ValueError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    for width in card["widths"]:
        console.print(
            f"{width['model']}  accuracy {width['accuracy']:.2%}"
            f"  one row {1e3 * width['latency_seconds']['1']:.2f} ms"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slimscale.training.slimmable", description=__doc__)
    parser.add_argument("what", choices=("train", "export", "measure", "report"))
    parser.add_argument("--data", type=Path, default=FASHION_FOLDER, help="folder of *-ubyte.gz")
    parser.add_argument("--out", type=Path, default=None, help="folder of graphs and card")
    parser.add_argument("--results", type=Path, default=None, help="folder of page and plot")
    parser.add_argument("--checkpoint", type=Path, default=None, help="the trained weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument(
        "--threads", type=int, default=min(2, torch.get_num_threads()), help="of the training"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a run of seconds, to see that it runs"
    )
    return parser


def _cpu() -> str:
    """As the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
