"""How good the network is beside the analytic model and XGBoost: same rows, same features."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from slimscale.threads.features import TRUNK_FEATURES
from slimscale.threads.operator_network import OperatorWeights
from slimscale.training.boosted import boosted_best_threads, boosted_curves
from slimscale.training.dataset import TEST_SPLITS, Dataset
from slimscale.training.judge import (
    Spread,
    Truth,
    chosen_threads,
    operator_curves,
    spread_of,
)
from slimscale.training.knowable import knowable_losses
from slimscale.training.looks import Play, follow_all
from slimscale.training.losses import LossWeights
from slimscale.training.network import OperatorNetwork
from slimscale.training.paper_style import paper_style_threads
from slimscale.training.train import TrainSettings, fit_network, predict
from slimscale.training.workloads import Split

__all__ = ["Judged", "compare", "compare_looks", "label_efficiency"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LABEL_COUNTS = (100, 300, 500, 1000, 5000)
"""Workloads with their measured curves; each counts as one label."""
MODEL_FEATURES = tuple(name for name in TRUNK_FEATURES if "analytic" in name or "plain" in name)
LOOKS, CASES_FOLLOWED = 6, 400
"""The first look and one after each of five steps."""
KEPT = f"chosen after {LOOKS} looks"
ABLATION_LABELS = 1000
"""The ablations are trained on so many workloads: physics should matter where labels are few."""
STEPS, SMALLEST_BATCH, MOST_EPOCHS = 800, 32, 200
GROUPS = ("all", "first look", "second look")
AT_MOST = "all, against the same measurement"
NETWORK, ANALYTIC = "operator network", "analytic"
TOLERANT = ", fewest threads within 1 %"
PROBING = ", with probes"
KNOWABLE = "all but the contention known"


@dataclass(frozen=True, slots=True)
class Judged:
    """One method on one test split: its losses over all rows, and by what the operator had seen."""

    method: str
    split: str
    labels: int | None
    """Workloads it was trained on; None: none."""
    seed: int
    spreads: Mapping[str, Spread]
    """By GROUPS, or by look."""

    def as_json(self) -> dict[str, object]:
        return {
            "method": self.method,
            "split": self.split,
            "labels": self.labels,
            "seed": self.seed,
            "losses": {name: asdict(spread) for name, spread in self.spreads.items()},
        }


class Judge:
    """Measured truth of the test splits, made once."""

    def __init__(self, data: Mapping[Split, Dataset]) -> None:
        self.data = data
        self._truth = {split: Truth.of(data[split]) for split in TEST_SPLITS}

    def knowable(self, *, settings: TrainSettings) -> list[Judged]:
        """What no predictor can know from one look: `knowable`'s chooser, on the same cases."""
        found = []
        for split in TEST_SPLITS:
            cases = [int(case) for case in np.unique(self.data[split].case)[:CASES_FOLLOWED]]
            losses = knowable_losses(split, cases, seed=settings.test_seed)
            spreads = {"first look": spread_of(losses)}
            found.append(Judged(KNOWABLE, split.value, None, settings.test_seed, spreads))
        return found

    def look_after_look(
        self,
        method: str,
        weights: OperatorWeights | None,
        *,
        settings: TrainSettings,
        play: Play,
        labels: int | None,
    ) -> list[Judged]:
        """The choices after each look, where every look is at the count chosen before it."""
        found = []
        for split in TEST_SPLITS:
            data = self.data[split]
            own = data.facts[:, 2] == 1.0  # the CPU that it was observed with
            own &= np.cumsum(own) <= CASES_FOLLOWED  # each look is a simulation
            truth = self._truth[split].take(own)
            chosen = follow_all(split, data.case[own], weights, play, seed=settings.test_seed)
            names = [f"look {i + 1}" for i in range(play.looks)] + [KEPT]
            spreads = {
                name: spread_of(truth.losses(threads))
                for name, threads in zip(names, chosen.T, strict=True)
            }
            spreads[f"{KEPT}, against the same measurement"] = spread_of(
                truth.at_most(chosen[:, -1])
            )
            found.append(Judged(method, split.value, labels, settings.fit.seed, spreads))
        return found

    def threads(
        self, method: str, choose: Callable[[Dataset], IntArray], *, labels: int | None, seed: int
    ) -> list[Judged]:
        """`choose` gives the thread counts for the rows of a split."""
        found = []
        for split in TEST_SPLITS:
            data, truth = self.data[split], self._truth[split]
            chosen = choose(data)
            losses = truth.losses(chosen)
            looks = data.facts[:, 3]
            groups = dict(
                zip(GROUPS, (np.ones(len(data), bool), looks == 1, looks == 2), strict=True)
            )
            spreads = {name: spread_of(losses[rows]) for name, rows in groups.items() if rows.any()}
            spreads[AT_MOST] = spread_of(truth.at_most(chosen))
            found.append(Judged(method, split.value, labels, seed, spreads))
        return found

    def curves(
        self,
        method: str,
        draw: Callable[[Dataset], FloatArray],
        *,
        labels: int | None,
        seed: int,
        tolerance: float = 0.0,
    ) -> list[Judged]:
        """`draw` gives curves (R, MOST_THREADS); the choice is `objective.choose`'s."""
        return self.threads(
            method,
            lambda data: chosen_threads(draw(data), tolerance=tolerance),
            labels=labels,
            seed=seed,
        )


def compare(
    weights: OperatorWeights,
    data: Mapping[Split, Dataset],
    *,
    settings: TrainSettings,
    console: Console,
) -> list[Judged]:
    """The weights and the analytic model; the ablations, each on ABLATION_LABELS."""
    judge = Judge(data)
    seed = settings.fit.seed
    count = settings.cases[Split.TRAIN]
    part = first_workloads(data[Split.TRAIN], ABLATION_LABELS, seed=seed)
    few = first_workloads(data[Split.VALIDATION], ABLATION_LABELS // 5, seed=seed)
    found = judge.knowable(settings=settings)
    for words, tolerance in (("", 0.0), (TOLERANT, settings.tolerance)):
        found += judge.curves(
            f"{ANALYTIC}{words}",
            lambda d: d.analytic.astype(np.float64),
            labels=None,
            seed=seed,
            tolerance=tolerance,
        )
        found += judge.curves(
            f"{NETWORK}{words}",
            partial(operator_curves, weights),
            labels=count,
            seed=seed,
            tolerance=tolerance,
        )
    for name, losses, bounded in _ablations():
        seen = _whole if bounded else _without_model
        other = fit_network(
            seen(part),
            seen(few),
            settings=replace(_for_few(settings, len(part), seed=seed), weights=losses),
            console=console,
            bounded=bounded,
            label=name,
        )
        found += judge.curves(
            name,
            partial(_predict_of, other, seen),
            labels=ABLATION_LABELS,
            seed=seed,
        )
    found += judge.threads(
        "paper-style, seven features",
        partial(paper_style_threads, part, seed=seed),
        labels=ABLATION_LABELS,
        seed=seed,
    )
    return found


def compare_looks(
    weights: OperatorWeights, data: Mapping[Split, Dataset], *, settings: TrainSettings
) -> list[Judged]:
    """What the choices are worth once the operator has moved to the last one and looked again."""
    judge = Judge(data)
    methods = (
        (ANALYTIC, None, settings.tolerance, None),
        (NETWORK, weights, 0.0, settings.cases[Split.TRAIN]),
    )
    found: list[Judged] = []
    for probes in (True, False):
        for name, own, tolerance, labels in methods:
            play = Play(LOOKS, tolerance, probes)
            words = PROBING if probes else ""
            found += judge.look_after_look(
                f"{name}{words}", own, settings=settings, play=play, labels=labels
            )
    return found


def _ablations() -> list[tuple[str, LossWeights, bool]]:
    return [
        ("the same on fewer labels", LossWeights(), True),
        ("no balance equations", LossWeights(balance=0.0), True),
        ("no decision loss", LossWeights(decision=0.0), True),
        ("no physics", LossWeights(decision=0.0, shape=0.0, balance=0.0), False),
    ]


def _predict_of(
    network: OperatorNetwork, seen: Callable[[Dataset], Dataset], data: Dataset
) -> FloatArray:
    return predict(network, seen(data))


def _whole(data: Dataset) -> Dataset:
    return data


def _without_model(data: Dataset) -> Dataset:
    """The same rows with nothing of the queueing model's curves in their trunk."""
    trunk = data.trunk.copy()
    trunk[:, :, [TRUNK_FEATURES.index(name) for name in MODEL_FEATURES]] = 0.0
    return replace(data, trunk=trunk)


def label_efficiency(
    data: Mapping[Split, Dataset],
    *,
    settings: TrainSettings,
    seeds: tuple[int, ...],
    console: Console,
) -> list[Judged]:
    """The network and XGBoost on the first 100 to 5,000 workloads of each seed's shuffle."""
    judge = Judge(data)
    found: list[Judged] = []
    for count in LABEL_COUNTS:
        for seed in seeds:
            part = first_workloads(data[Split.TRAIN], count, seed=seed)
            few = first_workloads(data[Split.VALIDATION], max(30, count // 5), seed=seed)
            network = fit_network(
                part,
                few,
                settings=_for_few(settings, len(part), seed=seed),
                console=console,
                label=f"{count} labels, seed {seed}",
            )
            found += judge.curves(
                NETWORK,
                partial(predict, network),
                labels=count,
                seed=seed,
            )
            found += judge.threads(
                "XGBoost k*",
                partial(boosted_best_threads, part, seed=seed),
                labels=count,
                seed=seed,
            )
            found += judge.curves(
                "XGBoost curve",
                partial(boosted_curves, part, seed=seed),
                labels=count,
                seed=seed,
            )
    return found


def _for_few(settings: TrainSettings, rows: int, *, seed: int) -> TrainSettings:
    """About STEPS steps: few labels come in small batches and are seen more often, up to a limit."""
    batch = max(SMALLEST_BATCH, min(settings.fit.batch, rows // SMALLEST_BATCH))
    epochs = max(settings.fit.epochs, min(MOST_EPOCHS, STEPS * batch // rows))
    return replace(settings, fit=replace(settings.fit, seed=seed, epochs=epochs, batch=batch))


def first_workloads(data: Dataset, count: int, *, seed: int) -> Dataset:
    """All rows of `count` workloads, drawn without replacement."""
    cases = np.unique(data.case)
    rng = np.random.default_rng([seed, count])
    picked = rng.permutation(cases)[:count]
    return data.take(np.flatnonzero(np.isin(data.case, picked)))
