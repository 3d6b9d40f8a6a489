"""The network that a reproduction of AutoThread describes, as an ablation (science.md 1.1).

Seven scalars in, one thread count and two contention coefficients out. Two small networks read the
load and the machine, one attention head joins them. Its loss wants the finite-source model's
throughput at the observed point, and the thread count to be r = mu_b/mu_e, which science.md 1.3
shows to be biased: too few threads for an ideal dispatcher, too many for a crowded one.

Of its features this operator sees other ones in their place: no context switches and no memory
are in the contract, so the machine's side reads CPU use, run queue and throttling.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slimscale.threads.features import BRANCH_FEATURES
from slimscale.training.dataset import Dataset
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = ["paper_style_threads"]

IntArray = NDArray[np.int64]

LOAD_FEATURES = ("log outstanding a thread", "log ratio r", "log threads now")
MACHINE_FEATURES = (
    "CPU used share",
    "run-queue share of the task",
    "throttled share of periods",
    "log cores",
)
WIDTH = 32
THREADS_PENALTY = 0.1
"""alpha, of the distance between r and k*, in logarithms."""
SUPERVISED = 1.0
"""lambda."""
MOST_TERMS = MOST_THREADS


class PaperStyleNetwork(nn.Module):
    """(B, 7) standardised features -> log k* and (a1, b1)."""

    def __init__(self) -> None:
        super().__init__()
        self.load = _perceptron(len(LOAD_FEATURES))
        self.machine = _perceptron(len(MACHINE_FEATURES))
        self.attention = nn.MultiheadAttention(WIDTH, num_heads=1, batch_first=True)
        self.decoder = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 3))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        load = self.load(features[:, : len(LOAD_FEATURES)])
        machine = self.machine(features[:, len(LOAD_FEATURES) :])
        mixed, _ = self.attention(load[:, None], machine[:, None], machine[:, None])
        out = self.decoder(torch.cat((load, mixed[:, 0]), dim=1))
        threads = nn.functional.softplus(out[:, 0]) + 1e-3
        return torch.log(threads + 1.0), nn.functional.softplus(out[:, 1:] - 3.0)


def paper_style_threads(
    train: Dataset, test: Dataset, *, seed: int, epochs: int = 60, batch: int = 256
) -> IntArray:
    """Thread counts for the rows of `test`, (R,), after training on `train`."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    columns = [BRANCH_FEATURES.index(name) for name in (*LOAD_FEATURES, *MACHINE_FEATURES)]
    mean, scale = train.branch[:, columns].mean(0), train.branch[:, columns].std(0) + 0.05
    features = _tensor((train.branch[:, columns] - mean) / scale)
    ratio = _tensor(train.branch[:, BRANCH_FEATURES.index("log ratio r")])
    best, observed, log_rate = _targets(train)
    network = PaperStyleNetwork()
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(epochs):
        order = torch.randperm(len(features), generator=generator)
        for index in torch.split(order, batch):
            threads, contention = network(features[index])
            predicted = _log_throughput(ratio[index], observed[index], contention)
            loss = (
                nn.functional.huber_loss(predicted, log_rate[index])
                + THREADS_PENALTY * ((ratio[index] - threads) ** 2).mean()
                + SUPERVISED * ((threads - best[index]) ** 2).mean()
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    network.eval()
    with torch.no_grad():
        threads, _ = network(_tensor((test.branch[:, columns] - mean) / scale))
    counts = np.rint(np.exp(threads.numpy().astype(np.float64)))
    return np.asarray(np.clip(counts, 1, MOST_THREADS), dtype=np.int64)


def _targets(data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """log k* of the labels, the observed k, and log T*S there (the nearest label)."""
    known = np.isfinite(data.labels)
    rates = np.where(known, data.labels, -np.inf)
    good = rates >= 0.99 * rates.max(axis=1, keepdims=True)
    best = np.log(GRID[np.argmax(good, axis=1)])
    far = np.abs(np.log(GRID)[None, :] - np.log(data.facts[:, :1]))
    nearest = np.argmin(np.where(known, far, np.inf), axis=1)
    rows = np.arange(len(data))
    log_rate = np.log(rates[rows, nearest] * data.physics[:, 2])
    return _tensor(best), torch.from_numpy(GRID[nearest]), _tensor(log_rate)


def _log_throughput(log_ratio: Tensor, threads: Tensor, contention: Tensor) -> Tensor:
    """log T*S of the finite-source model with a dispatcher S(q) = S(1 + a1(q-1) + b1 q(q-1))."""
    here = torch.arange(1, MOST_TERMS + 1, dtype=torch.float32)[None, :]
    linear, quadratic = contention[:, :1], contention[:, 1:]
    growth = 1.0 + linear * (here - 1.0) + quadratic * here * (here - 1.0)
    count = threads[:, None].float()
    arrivals = torch.log((count - here + 1.0).clamp(min=1e-9)) - log_ratio[:, None]
    steps = (arrivals + torch.log(growth)).masked_fill(here > count, -math.inf)
    terms = torch.cumsum(torch.where(here > count, torch.zeros_like(steps), steps), dim=1)
    terms = terms.masked_fill(here > count, -math.inf)
    whole = torch.logsumexp(torch.cat((torch.zeros_like(count), terms), dim=1), dim=1)
    served = torch.logsumexp(terms - torch.log(growth), dim=1)
    return served - whole


def _perceptron(inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())


def _tensor(values: NDArray[np.floating]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
