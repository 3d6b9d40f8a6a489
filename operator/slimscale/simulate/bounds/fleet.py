"""The devices and widths that a bound is worked out for: plain arrays, one entry a device or width."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fleet", "FloatArray", "RequestClass"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fleet:
    """D devices that each serve W widths: a batch of b rows takes `base + b * row * flops(width)`.

    `noise` is the standard deviation of the logarithm of a batch's time, as in the simulators: times
    are `mean * lognormal(0, noise)`. `idle_watts` is drawn always, `dynamic_watts` on top while busy.
    """

    base_seconds: tuple[float, ...]
    row_seconds: tuple[float, ...]
    """Of the widest width."""
    dynamic_watts: tuple[float, ...]
    idle_watts: tuple[float, ...]
    accuracy: tuple[float, ...]
    """Of each width, 0 to 1, ascending."""
    flops_ratio: tuple[float, ...]
    """Of each width, relative to the widest."""
    max_batch_rows: int = 32
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("row_seconds", "dynamic_watts", "idle_watts"):
            if len(getattr(self, name)) != len(self.base_seconds):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} figures for {len(self.base_seconds)}"
                    " devices; give one each"
                )
        if len(self.accuracy) != len(self.flops_ratio):
            raise ValueError(
                f"accuracy has {len(self.accuracy)} figures and flops_ratio"
                f" {len(self.flops_ratio)}; give one of each a width"
            )
        if not self.base_seconds or not self.accuracy:
            raise ValueError("a fleet without devices or widths has no bounds; give at least one")
        if self.max_batch_rows < 1:
            raise ValueError(f"max_batch_rows is {self.max_batch_rows}; give at least 1")

    @property
    def devices(self) -> int:
        return len(self.base_seconds)

    @property
    def widths(self) -> int:
        return len(self.accuracy)

    @property
    def mean_noise(self) -> float:
        """E of the factor on a batch's time."""
        return math.exp(self.noise * self.noise / 2.0)

    def median_seconds(self) -> FloatArray:
        """[D, W, B]: a batch of 1..B rows without its noise."""
        rows = np.arange(1, self.max_batch_rows + 1, dtype=np.float64)
        row = np.outer(self.row_seconds, self.flops_ratio)
        base = np.asarray(self.base_seconds, dtype=np.float64)[:, None, None]
        return np.asarray(base + row[:, :, None] * rows, dtype=np.float64)

    def batch_seconds(self) -> FloatArray:
        """[D, W, B]: the mean of a batch of 1..B rows."""
        return self.median_seconds() * self.mean_noise

    def batch_joules(self) -> FloatArray:
        """[D, W, B]: dynamic energy of a batch of 1..B rows."""
        watts = np.asarray(self.dynamic_watts, dtype=np.float64)
        return np.asarray(self.batch_seconds() * watts[:, None, None])


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests with one latency objective. `share` of all requests; `min_accuracy` 0 to 1."""

    slo_seconds: float
    share: float = 1.0
    min_accuracy: float = 0.0
