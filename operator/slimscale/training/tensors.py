"""A data set as tensors, with what the losses need at every thread count of the grid."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.curve_table import throughput_table
from slimscale.threads.features import log_odds
from slimscale.training.dataset import Dataset
from slimscale.training.judge import smooth_log
from slimscale.training.losses import Physics
from slimscale.training.network import Standardisation
from slimscale.training.raw import GRID
from slimscale.training.workloads import MOST_THREADS

__all__ = ["Tensors", "standardisation_of", "tensors_of"]

SMALLEST_SCALE = 0.05
"""Of a feature that hardly varies in the training set: its noise must not be blown up."""
KNEE_SHARE = 0.7
"""Of the estimated knee: below it more threads bring more, whatever the contention."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """R rows, G thread counts; float32."""

    branch: Tensor
    trunk: Tensor
    log_bound: Tensor
    """(R, G)."""
    odds: Tensor
    """(R, G) logit of the analytic curve over the bound."""
    log_labels: Tensor
    """(R, G); 0 where not labelled."""
    labelled: Tensor
    """(R, G) bool."""
    shares: Tensor
    """(R, G) T(k)/max T of the nearest curve that rises and then falls; 0 where not known."""
    below_knee: Tensor
    """(R, G-1)."""
    log_dispatch: Tensor
    """(R,) log S."""
    log_outside: Tensor
    """(R, MOST_THREADS + 1)."""
    outside_rate: Tensor
    log_lock: Tensor

    def __len__(self) -> int:
        return len(self.branch)

    def take(self, index: Tensor) -> "Tensors":
        return Tensors(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def physics(self, counts: Tensor) -> Physics:
        return Physics(counts, self.log_outside, self.outside_rate, self.log_lock)


def standardisation_of(data: Dataset) -> Standardisation:
    trunk = data.trunk.reshape(-1, data.trunk.shape[2])
    return Standardisation(
        branch_mean=_tensor(data.branch.mean(axis=0)),
        branch_scale=_tensor(np.maximum(data.branch.std(axis=0), SMALLEST_SCALE)),
        trunk_mean=_tensor(trunk.mean(axis=0)),
        trunk_scale=_tensor(np.maximum(trunk.std(axis=0), SMALLEST_SCALE)),
    )


def tensors_of(data: Dataset) -> Tensors:
    labelled = np.isfinite(data.labels) & (data.labels > 0)
    grid = GRID - 1
    bound = data.bound[:, grid]
    odds = log_odds(data.analytic[:, grid].astype(np.float64), bound)
    blocking, cpu, dispatch, cores = data.physics.T.astype(np.float64)
    knee = (blocking + cpu + dispatch) / np.maximum(cpu / cores, dispatch)
    below = GRID[None, 1:] <= KNEE_SHARE * knee[:, None]
    outside = np.vstack([_outside(row) for row in data.physics.astype(np.float64)])
    log_outside = np.zeros((len(data), MOST_THREADS + 1))
    log_outside[:, 1:] = -np.cumsum(np.log(outside * dispatch[:, None]), axis=1)
    rate = np.zeros_like(log_outside)
    rate[:, 1:] = outside * dispatch[:, None]
    smooth = smooth_log(data.labels.astype(np.float64))
    shares = np.exp(smooth - np.nanmax(smooth, axis=1, keepdims=True))
    return Tensors(
        branch=_tensor(data.branch),
        trunk=_tensor(data.trunk),
        log_bound=_tensor(np.log(bound)),
        odds=_tensor(odds),
        log_labels=_tensor(np.log(np.where(labelled, data.labels, 1.0))),
        labelled=torch.from_numpy(labelled),
        shares=_tensor(np.nan_to_num(shares)),
        below_knee=torch.from_numpy(below),
        log_dispatch=_tensor(np.log(dispatch)),
        log_outside=_tensor(log_outside),
        outside_rate=_tensor(rate),
        log_lock=torch.zeros(len(data), MOST_THREADS + 1),
    )


def _outside(physics: NDArray[np.float64]) -> NDArray[np.float64]:
    """Throughput of blocking and CPU part alone with 1..MOST_THREADS threads."""
    blocking, cpu, _, cores = physics
    parameters = NetworkParameters(blocking, max(cpu, 1e-9), 0.0, max(cores, 0.001))
    table = throughput_table(parameters, [(parameters.cpu_servers, 0.0)], MOST_THREADS)
    return np.asarray(table[0], dtype=np.float64)


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
