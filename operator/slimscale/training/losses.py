"""What the operator network is trained for: labels where there are some, physics everywhere.

All terms are of order one. Logarithms make a task of microseconds and one of seconds weigh alike.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = [
    "LossWeights",
    "Physics",
    "balance_residual",
    "data_loss",
    "decision_loss",
    "shape_loss",
]

HUBER = 0.1
"""Log units, about three standard deviations of a label's noise."""
SOFTNESS = 0.02
"""Log units: how close to the best a predicted throughput must be to be a likely choice."""


@dataclass(frozen=True, slots=True)
class LossWeights:
    """0 switches a term off: for the ablations."""

    data: float = 1.0
    decision: float = 2.0
    shape: float = 0.3
    balance: float = 0.05
    correction: float = 1e-4


@dataclass(frozen=True, slots=True)
class Physics:
    """For the balance equations of B rows at Q thread counts. m and n run from 0 to the most."""

    counts: Tensor
    """(Q,) thread counts k."""
    log_outside: Tensor
    """(B, most + 1): log G of blocking and CPU part alone, with m threads."""
    outside_rate: Tensor
    """(B, most + 1): their throughput with m threads, times S: arrivals at the dispatcher."""
    log_lock: Tensor
    """(B, most + 1): log f_lock(n) of the analytic estimate, in units of S."""


def data_loss(log_rates: Tensor, log_labels: Tensor, labelled: Tensor) -> Tensor:
    """Huber loss of log throughput, mean over labelled points. Shapes (B, G); labelled is bool."""
    miss = torch.where(labelled, log_rates - log_labels, torch.zeros_like(log_rates))
    whole = nn.functional.huber_loss(miss, torch.zeros_like(miss), delta=HUBER, reduction="sum")
    return whole / (HUBER * labelled.sum().clamp(min=1))


def decision_loss(log_rates: Tensor, shares: Tensor) -> Tensor:
    """Expected share of throughput given up by a choice that follows the predicted curve.

    Both (B, G); `shares` is T(k)/max T, measured and smoothed, 0 where not known. The choice is softened to
    probabilities ~ T^(1/SOFTNESS), so that the loss has a gradient; with less softness it is
    1 - T(k_hat)/max T. It is a mean over all loads that look alike, so its least value has the
    thread count with the least expected loss, which is not the maximum of the expected curve.
    """
    known = shares > 0
    chance = torch.softmax((log_rates / SOFTNESS).masked_fill(~known, -torch.inf), dim=1)
    return (1.0 - (chance * shares).sum(dim=1)).mean()


def shape_loss(log_rates: Tensor, below_knee: Tensor) -> Tensor:
    """Falls below the knee, and rises after a fall: a curve of threads has neither.

    `below_knee` (B, G-1): the step from this point of the grid to the next is below the knee.
    """
    steps = log_rates[:, 1:] - log_rates[:, :-1]
    falls = torch.relu(-steps)
    early = (falls * below_knee).sum(dim=1)
    fallen = torch.cummax(falls, dim=1).values[:, :-1]
    again = (torch.minimum(fallen, torch.relu(steps[:, 1:]))).sum(dim=1)
    return (early + again).mean()


def balance_residual(
    physics: Physics, state_logits: Tensor, contention: Tensor, log_rates_s: Tensor
) -> Tensor:
    """Squared residuals of the balance equations, shape (B, Q).

    Cut between n and n+1 threads at the dispatcher: p(n) X_outside(k-n) = p(n+1)/S(n+1), with
    S(n) = S(1 + h(n>1) + a1(n-1) + b1 n(n-1)); and the curve itself, T(k) = sum_n p(n)/S(n)
    (flow-equivalent server, Chandy, Herzog and Woo 1975). `log_rates_s` (B, Q) is log(T(k) S).
    Exact for exponential times: a soft demand elsewhere.
    """
    most = physics.log_lock.shape[1] - 1
    n = torch.arange(most + 1, device=state_logits.device)
    away = physics.counts[:, None] - n[None, :]  # (Q, N): threads elsewhere
    inside = away >= 0
    index = away.clamp(min=0)
    base = physics.log_lock[:, None, :] + physics.log_outside[:, index]
    logits = (base + state_logits).masked_fill(~inside[None], -torch.inf)
    chance = torch.softmax(logits, dim=2)
    here = n.float()
    handover, linear, quadratic = (contention[:, i, None] for i in range(3))
    growth = 1.0 + handover * (here > 1) + linear * (here - 1).clamp(min=0)
    served = 1.0 / (growth + quadratic * here * (here - 1).clamp(min=0))
    served = torch.where(here > 0, served, torch.zeros_like(served))  # (B, N), times S
    arrivals = physics.outside_rate[:, index]
    up = (chance * arrivals)[:, :, :-1]
    down = (chance * served[:, None, :])[:, :, 1:]
    cut = (up - down).masked_fill(~inside[None, :, 1:], 0.0).abs().sum(dim=2)
    flow = torch.log((chance * served[:, None, :]).sum(dim=2).clamp(min=1e-9))
    # Relative to the flow itself: a cut's residual at a quiet dispatcher counts as much.
    relative = cut / flow.exp().clamp(min=1e-9)
    gap = torch.clamp(log_rates_s - flow, -1.0, 1.0)
    return torch.clamp(relative, max=2.0) ** 2 + gap**2
