"""`python -m slimscale.training train | evaluate`; `make train` calls the first."""

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console

from slimscale.threads.operator_network import OperatorWeights
from slimscale.training.card import WEIGHTS_NAME
from slimscale.training.evaluate import compare, compare_looks, label_efficiency
from slimscale.training.report import write_report
from slimscale.training.train import WEIGHTS_FOLDER, TrainSettings, load_or_make, train
from slimscale.training.workloads import Split

DATA_FOLDER = Path("build/training")
RESULTS_FOLDER = Path("docs/results")


def run_train(*, folder: Path, out: Path, seed: int, quick: bool) -> None:
    """Simulate, fit, write weights/threads-operator.safetensors with its card."""
    settings = replace(TrainSettings(), seed=seed)
    settings = settings.quick() if quick else settings
    train(folder=folder, out=out, settings=settings, console=Console())


def run_evaluate(
    *,
    folder: Path,
    out: Path,
    weights_folder: Path,
    seed: int,
    quick: bool,
    label_seeds: tuple[int, ...],
) -> None:
    """Compare the weights with the analytic model, XGBoost and ablations; write the page."""
    console = Console()
    settings = replace(TrainSettings(), seed=seed)
    settings = settings.quick() if quick else settings
    began = time.monotonic()
    data = load_or_make(folder, settings, console)
    weights = OperatorWeights.read(*_read(weights_folder))
    compared = compare(weights, data, settings=settings, console=console)
    looks = compare_looks(weights, data, settings=settings)
    by_labels = label_efficiency(data, settings=settings, seeds=label_seeds, console=console)
    write_report(
        out,
        compared=compared,
        looks=looks,
        by_labels=by_labels,
        facts={
            "command": "python -m slimscale.training evaluate",
            "tolerance": settings.tolerance,
            "weights": weights.version,
            "data seed": seed,
            "test seed": settings.test_seed,
            "fit seed of the ablations": settings.fit.seed,
            "label seeds": json.dumps(label_seeds),
            "workloads": ", ".join(f"{k.value} {v}" for k, v in settings.cases.items()),
            "rows": ", ".join(f"{k.value} {len(v)}" for k, v in data.items()),
            "training data": data[Split.TRAIN].digest,
            "fit": json.dumps(asdict(settings.fit)),
            "loss": json.dumps(asdict(settings.weights)),
            "seconds": round(time.monotonic() - began),
        },
    )


def _read(folder: Path) -> tuple[bytes, dict[str, object]]:
    card: dict[str, object] = json.loads((folder / f"{WEIGHTS_NAME}.json").read_text("utf-8"))
    return (folder / f"{WEIGHTS_NAME}.safetensors").read_bytes(), card


def main() -> None:
    parser = argparse.ArgumentParser(prog="slimscale.training", description=__doc__)
    parser.add_argument("what", choices=("train", "evaluate"))
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="data, made when missing")
    parser.add_argument("--out", type=Path, default=None, help="folder of what is written")
    parser.add_argument("--seed", type=int, default=1, help="of the data")
    parser.add_argument(
        "--quick", action="store_true", help="a run of seconds, to see that it runs"
    )
    parser.add_argument("--label-seeds", type=int, default=3)
    parser.add_argument(
        "--weights", type=Path, default=WEIGHTS_FOLDER, help="folder of the weights to evaluate"
    )
    asked = parser.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    folder = asked.folder / "quick" if asked.quick else asked.folder
    if asked.what == "train":
        run_train(
            folder=folder, out=asked.out or WEIGHTS_FOLDER, seed=asked.seed, quick=asked.quick
        )
    else:
        run_evaluate(
            folder=folder,
            out=asked.out or RESULTS_FOLDER,
            weights_folder=asked.weights,
            seed=asked.seed,
            quick=asked.quick,
            label_seeds=tuple(range(1, asked.label_seeds + 1)),
        )


if __name__ == "__main__":
    main()
