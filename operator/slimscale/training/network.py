"""The operator network in torch: what `threads.operator_network` computes, differentiable.

Beside the correction g it has two heads that only training uses: the contention of the dispatcher,
and p(n|k), the share of time with n of k threads at the dispatcher. They tie the curve to the
balance equations at thread counts that no label covers (`losses.balance_residual`).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slimscale.threads.operator_network import LARGEST_CORRECTION

__all__ = ["Curves", "OperatorNetwork", "Standardisation"]

BRANCH_WIDTHS = (128, 128, 64)
TRUNK_WIDTHS = (64, 64, 64)
STATE_WIDTHS = (32, 32)
STATE_FEATURES = 6
"""Of (n, k), see `_state_features`."""
CONTENTION = 3
"""Hand-over, linear, quadratic."""


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Means and scales of the training set's features."""

    branch_mean: Tensor
    branch_scale: Tensor
    trunk_mean: Tensor
    trunk_scale: Tensor


@dataclass(frozen=True, slots=True)
class Curves:
    """Predictions for B rows at the G thread counts of their trunk."""

    log_rates: Tensor
    """(B, G) log tasks a second."""
    correction: Tensor
    """(B, G) g."""
    contention: Tensor
    """(B, 3), not below 0."""
    coefficients: Tensor
    """(B, W) of the state basis, for `state_logits`."""


class OperatorNetwork(nn.Module):
    """Branch, trunk and heads; float32 while training."""

    def __init__(self, standardisation: Standardisation, *, bounded: bool = True) -> None:
        """`bounded` False: the ablation without physics, log T = g with no bound and no base."""
        super().__init__()
        self.bounded = bounded
        self.branch_mean: Tensor
        self.branch_scale: Tensor
        self.trunk_mean: Tensor
        self.trunk_scale: Tensor
        for name in Standardisation.__slots__:
            self.register_buffer(name, getattr(standardisation, name).float())
        branch_inputs = len(standardisation.branch_mean)
        trunk_inputs = len(standardisation.trunk_mean)
        self.branch = _stack(branch_inputs, BRANCH_WIDTHS)
        self.trunk = _stack(trunk_inputs, TRUNK_WIDTHS)
        self.state = _stack(STATE_FEATURES, STATE_WIDTHS)
        self.contention_head = nn.Linear(BRANCH_WIDTHS[-2], CONTENTION)
        self.state_head = nn.Linear(BRANCH_WIDTHS[-2], STATE_WIDTHS[-1])
        self.bias = nn.Parameter(torch.zeros(()))
        with torch.no_grad():  # begin near the queueing model
            last = self.branch[-1]
            assert isinstance(last, nn.Linear)  # noqa: S101 - for the type checker
            last.weight.mul_(0.1)
            last.bias.zero_()
            self.state_head.weight.mul_(0.01)
            self.state_head.bias.zero_()
            self.contention_head.bias.copy_(torch.tensor([-1.0, -4.0, -7.0]))

    def forward(self, branch: Tensor, trunk: Tensor, log_bound: Tensor, odds: Tensor) -> Curves:
        """(B, F), (B, G, T), and log Bd and logit(T_analytic/Bd), both (B, G)."""
        standard = (branch - self.branch_mean) / self.branch_scale
        hidden = self.branch[:-1](standard)
        coefficients = self.branch[-1](hidden)
        basis = self.trunk((trunk - self.trunk_mean) / self.trunk_scale)
        product = torch.einsum("bgw,bw->bg", basis, coefficients) / math.sqrt(basis.shape[2])
        correction = (product + self.bias).clamp(-LARGEST_CORRECTION, LARGEST_CORRECTION)
        if self.bounded:
            log_rates = log_bound + nn.functional.logsigmoid(odds + correction)
        else:
            log_rates = correction
        return Curves(
            log_rates=log_rates,
            correction=correction,
            contention=nn.functional.softplus(self.contention_head(hidden)),
            coefficients=self.state_head(hidden),
        )

    def state_logits(self, coefficients: Tensor, counts: Tensor, most: int) -> Tensor:
        """Correction to log p(n|k), shape (B, len(counts), most + 1); n above k is not masked."""
        basis = self.state(_state_features(counts, most))
        return torch.einsum("kns,bs->bkn", basis, coefficients)


def _state_features(counts: Tensor, most: int) -> Tensor:
    """(len(counts), most + 1, STATE_FEATURES): the terms that log p(n|k) of a product form has."""
    here = torch.arange(most + 1, dtype=torch.float32)[None, :].expand(len(counts), -1)
    k = counts.float()[:, None].expand_as(here)
    away = (k - here).clamp(min=0.0)
    return torch.stack(
        (
            here / 64.0,
            torch.log1p(here),
            here * torch.log1p(here) / 256.0,
            away / 64.0,
            away * torch.log1p(away) / 256.0,
            torch.log(k),
        ),
        dim=2,
    )


def _stack(inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, width in enumerate(widths):
        layers.append(nn.Linear(inputs, width))
        if index + 1 < len(widths):
            layers.append(nn.SiLU())
        inputs = width
    return nn.Sequential(*layers)
