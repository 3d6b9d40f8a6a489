"""Train one network: seeded, with early stopping on the validation families' decisions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from slimscale.training.losses import (
    LossWeights,
    balance_residual,
    data_loss,
    decision_loss,
    shape_loss,
)
from slimscale.training.network import OperatorNetwork
from slimscale.training.raw import GRID
from slimscale.training.tensors import Tensors

__all__ = ["AVERAGE_DECAY", "Average", "FitSettings", "fit", "validate"]

AVERAGE_DECAY = 0.998
"""Of the weights' moving average over steps, which is what is judged and kept."""
ATTENTION_DECAY = 0.999
ATTENTION_RATE = 0.01
"""Of residual-based attention (Anagnostopoulos et al. 2024): w <- decay*w + rate*|r|/max|r|."""


@dataclass(frozen=True, slots=True)
class FitSettings:
    epochs: int = 24
    batch: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    balance_every: int = 4
    """Batches between two looks at the balance equations, which cost as much as ten batches."""
    balance_counts: int = 4
    balance_rows: int = 64
    feature_noise: float = 0.02
    """Standard deviations of noise on the branch's features: windows are never measured twice."""
    seed: int = 1


def fit(
    network: OperatorNetwork,
    train: Tensors,
    validation: Tensors,
    *,
    weights: LossWeights,
    settings: FitSettings,
    progress: Callable[[int, float], None],
) -> float:
    """Leaves the best epoch's averaged weights in `network`; returns its validation loss.

    `progress` is told each epoch's number and validation loss.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    steps = settings.epochs * max(1, -(-len(train) // settings.batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=settings.learning_rate, total_steps=steps, pct_start=0.1
    )
    equations = _BalanceEquations(train, settings)
    best, kept = float("inf"), _copy(network)
    average = Average(network)
    step = 0
    for epoch in range(settings.epochs):
        network.train()
        order = torch.randperm(len(train), generator=generator)
        for index in torch.split(order, settings.batch):
            batch = train.take(index)
            noise = torch.randn(batch.branch.shape, generator=generator)
            branch = batch.branch + settings.feature_noise * noise * network.branch_scale
            curves = network(branch, batch.trunk, batch.log_bound, batch.odds)
            loss = (
                weights.data * data_loss(curves.log_rates, batch.log_labels, batch.labelled)
                + weights.decision * decision_loss(curves.log_rates, batch.shares)
                + weights.correction * (curves.correction**2).mean()
            )
            if weights.shape:
                loss = loss + weights.shape * shape_loss(curves.log_rates, batch.below_knee)
            if weights.balance and step % settings.balance_every == 0:
                part = index[: settings.balance_rows]
                loss = loss + weights.balance * equations.loss(network, part, generator)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            step += 1
            average.add(network, step)
        with average.in_place_of(network):
            score = validate(network, validation)
            if score < best:
                best, kept = score, _copy(network)
        progress(epoch, score)
    network.load_state_dict(kept)
    network.eval()
    return best


def validate(network: OperatorNetwork, data: Tensors) -> float:
    """Expected share of throughput given up on `data`, plus a tenth of the data loss."""
    network.eval()
    with torch.no_grad():
        curves = network(data.branch, data.trunk, data.log_bound, data.odds)
        decision = decision_loss(curves.log_rates, data.shares)
        miss = data_loss(curves.log_rates, data.log_labels, data.labelled)
    return float(decision + 0.1 * miss)


class _BalanceEquations:
    """Their residuals at thread counts that no label covers, weighted by residual attention."""

    def __init__(self, train: Tensors, settings: FitSettings) -> None:
        self._train = train
        self._settings = settings
        self._attention = torch.ones(len(train), len(GRID))

    def loss(self, network: OperatorNetwork, index: Tensor, generator: torch.Generator) -> Tensor:
        """Mean over the rows of `index` at a few counts of the grid."""
        batch = self._train.take(index)
        points = torch.randperm(len(GRID), generator=generator)[: self._settings.balance_counts]
        counts = torch.from_numpy(GRID)[points]
        curves = network(batch.branch, batch.trunk, batch.log_bound, batch.odds)
        logits = network.state_logits(curves.coefficients, counts, batch.log_lock.shape[1] - 1)
        residual = balance_residual(
            batch.physics(counts),
            logits,
            curves.contention,
            curves.log_rates[:, points] + batch.log_dispatch[:, None],
        )
        where = (index[:, None], points[None, :])
        size = residual.detach().sqrt()
        grown = ATTENTION_DECAY * self._attention[where]
        self._attention[where] = grown + ATTENTION_RATE * size / size.max().clamp(min=1e-9)
        return (self._attention[where] * residual).mean()


class Average:
    """Exponential moving average of the weights: the noise of single batches goes out of them."""

    def __init__(self, network: OperatorNetwork) -> None:
        self._weights = _copy(network)

    def add(self, network: OperatorNetwork, step: int) -> None:
        share = 1.0 - min(AVERAGE_DECAY, (1.0 + step) / (10.0 + step))
        for name, value in network.state_dict().items():
            self._weights[name].lerp_(value, share)

    @contextmanager
    def in_place_of(self, network: OperatorNetwork) -> Iterator[None]:
        """`network` has the average for weights meanwhile, and its own again afterwards."""
        own = _copy(network)
        network.load_state_dict(self._weights)
        try:
            yield
        finally:
            network.load_state_dict(own)


def _copy(network: OperatorNetwork) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
