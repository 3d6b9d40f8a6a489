"""`train`: simulate, fit, write the weights and their card. Seeded, with progress shown."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from slimscale.training.card import arrays_of, make_card, write_weights
from slimscale.training.dataset import Dataset, Plan, generate, load_split
from slimscale.training.fit import FitSettings, fit, validate
from slimscale.training.judge import (
    Spread,
    Truth,
    chosen_threads,
    corrected_curves,
    spread_of,
)
from slimscale.training.losses import LossWeights
from slimscale.training.network import OperatorNetwork
from slimscale.training.tensors import Tensors, standardisation_of, tensors_of
from slimscale.training.workloads import Split

__all__ = ["TrainSettings", "finish", "fit_network", "load_or_make", "predict", "train"]

FloatArray = NDArray[np.float64]

WEIGHTS_FOLDER = Path(__file__).resolve().parents[1] / "weights"


@dataclass(frozen=True, slots=True)
class TrainSettings:
    seed: int = 1
    """Of the workloads that are trained on and validated with."""
    test_seed: int = 2
    """Of those that are judged by. Seed 1 was looked at while the network was designed."""
    cases: dict[Split, int] = field(
        default_factory=lambda: {
            Split.VALIDATION: 1000,
            Split.SEEN: 200,
            Split.HELD_OUT: 400,
            Split.TRAIN: 24_000,
        }
    )
    tolerance: float = 0.01
    """Share of throughput given up for fewer threads when a curve is judged."""
    weights: LossWeights = field(default_factory=LossWeights)
    fit: FitSettings = field(default_factory=FitSettings)
    fit_seeds: tuple[int, ...] = (1, 2, 3)

    def quick(self) -> "TrainSettings":
        """Minutes to seconds: to see that everything runs, not for weights that are used."""
        few = {Split.VALIDATION: 30, Split.SEEN: 20, Split.HELD_OUT: 20, Split.TRAIN: 120}
        return replace(self, cases=few, fit=replace(self.fit, epochs=4, batch=32), fit_seeds=(1, 2))


def train(
    *, folder: Path, out: Path, settings: TrainSettings, console: Console
) -> dict[str, object]:
    """Make what is missing of the data in `folder`, fit, and write the weights to `out`.

    Returns the card. An interrupted run goes on where it stopped.
    """
    began = time.monotonic()
    data = load_or_make(folder, settings, console)
    made = time.monotonic()
    networks = fit_networks(
        data[Split.TRAIN],
        data[Split.VALIDATION],
        settings=settings,
        seeds=settings.fit_seeds,
        console=console,
    )
    seconds = {"data": round(made - began), "fits": round(time.monotonic() - made)}
    return finish(networks, data, out=out, settings=settings, seconds=seconds, console=console)


def finish(
    networks: Sequence[OperatorNetwork],
    data: Mapping[Split, Dataset],
    *,
    out: Path,
    settings: TrainSettings,
    seconds: Mapping[str, int],
    console: Console,
) -> dict[str, object]:
    """Judge the networks on the test splits, write the one of the best validation loss with its
    card; returns the card. All are in it: the spread over fit seeds is what a new run may differ.
    """
    checked = tensors_of(data[Split.VALIDATION])
    scores = [validate(network, checked) for network in networks]
    best = int(np.argmin(scores))
    metrics: dict[str, Spread] = {}
    for split in (Split.SEEN, Split.HELD_OUT):
        truth = Truth.of(data[split])
        curves = {
            "operator network" + ("" if index == best else f", fit seed {seed} instead"): (
                predict(network, data[split]),
                0.0,
            )
            for index, (seed, network) in enumerate(zip(settings.fit_seeds, networks, strict=True))
        }
        curves["analytic"] = (data[split].analytic.astype(np.float64), settings.tolerance)
        for name, (curve, tolerance) in curves.items():
            chosen = chosen_threads(curve, tolerance=tolerance)
            families = f"{name}, {split.value} families"
            metrics[families] = spread_of(truth.losses(chosen))
            metrics[f"{families}, against the same measurement"] = spread_of(truth.at_most(chosen))
    arrays = arrays_of(networks[best], data[Split.TRAIN])
    card = make_card(
        arrays,
        settings={
            "seed": settings.seed,
            "test seed": settings.test_seed,
            "cases": {split.value: count for split, count in settings.cases.items()},
            "tolerance": settings.tolerance,
            "loss": asdict(settings.weights),
            "fit": asdict(settings.fit),
            "fit seeds": list(settings.fit_seeds),
            "validation losses": [round(score, 5) for score in scores],
            "shipped fit seed": settings.fit_seeds[best],
            "seconds": dict(seconds),
        },
        metrics=metrics,
        data_hash=data[Split.TRAIN].digest,
    )
    write_weights(out, arrays, card)
    console.print(_table(metrics))
    return card


def load_or_make(folder: Path, settings: TrainSettings, console: Console) -> dict[Split, Dataset]:
    """All splits, simulated where they are not there yet."""
    plan = Plan(folder, settings.seed, settings.cases, settings.test_seed)
    with _progress(console) as progress:
        tasks = {
            split: progress.add_task(f"simulate {split.value}", total=count)
            for split, count in settings.cases.items()
        }
        generate(plan, progress=lambda split, cases: progress.advance(tasks[split], cases))
        found = {}
        for split, count in settings.cases.items():
            task = progress.add_task(f"features {split.value}", total=count)
            found[split] = load_split(plan, split, progress=partial(progress.advance, task))
    return found


def fit_networks(
    train_data: Dataset,
    validation: Dataset,
    *,
    settings: TrainSettings,
    seeds: Sequence[int],
    console: Console,
    bounded: bool = True,
    label: str = "fit",
) -> list[OperatorNetwork]:
    """A network for each seed, fitted to `train_data`; the same seed and data give the same one."""
    standardisation = standardisation_of(train_data)
    seen, checked = tensors_of(train_data), tensors_of(validation)
    found = []
    with _progress(console) as progress:
        for seed in seeds:
            words = f"{label}, seed {seed}"
            task = progress.add_task(words, total=settings.fit.epochs)

            def tell(_: int, score: float, task: TaskID = task, words: str = words) -> None:
                progress.update(task, advance=1, description=f"{words}, validation {score:.4f}")

            torch.manual_seed(seed)
            network = OperatorNetwork(standardisation, bounded=bounded)
            fit(
                network,
                seen,
                checked,
                weights=settings.weights,
                settings=replace(settings.fit, seed=seed),
                progress=tell,
            )
            found.append(network)
    return found


def fit_network(
    train_data: Dataset,
    validation: Dataset,
    *,
    settings: TrainSettings,
    console: Console,
    bounded: bool = True,
    label: str = "fit",
) -> OperatorNetwork:
    """`fit_networks` with the one seed of `settings.fit`."""
    return fit_networks(
        train_data,
        validation,
        settings=settings,
        seeds=(settings.fit.seed,),
        console=console,
        bounded=bounded,
        label=label,
    )[0]


def predict(network: OperatorNetwork, data: Dataset) -> FloatArray:
    """Curves (R, MOST_THREADS) in tasks a second, as the operator would draw them."""
    tensors = tensors_of(data)
    return corrected_curves(data, correction_of(network, tensors), bounded=network.bounded)


def correction_of(network: OperatorNetwork, tensors: Tensors) -> FloatArray:
    """g (R, G)."""
    network.eval()
    with torch.no_grad():
        curves = network(tensors.branch, tensors.trunk, tensors.log_bound, tensors.odds)
    return np.asarray(curves.correction.numpy(), dtype=np.float64)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _table(metrics: dict[str, Spread]) -> Table:
    table = Table(title="Throughput given up, 1 - T(k)/max T")
    for name in ("", "rows", "median", "mean", "p90", "p95"):
        table.add_column(name, justify="left" if not name else "right")
    for name, spread in metrics.items():
        shares = (spread.median, spread.mean, spread.p90, spread.p95)
        table.add_row(name, str(spread.rows), *(f"{100 * share:.2f} %" for share in shares))
    return table
