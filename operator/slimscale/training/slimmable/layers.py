"""Layers that run at several widths: the first channels of one set of weights.

Normalisation is switchable: each width keeps statistics and an affine map of its own, since the mean
and variance of a feature differ by width. At export they fold into the convolution before them, so
that a served graph has no normalisation at all; one over groups of channels would need no statistics
of its own, but would stay in the graph and cost a pass over each image's features.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["SlimmableConv2d", "SlimmableLinear", "SwitchableBatchNorm2d", "channels_at"]


def channels_at(channels: int, ratio: float) -> int:
    """Channels of a layer at a width: `ratio` of all, rounded up, at least 1."""
    return max(1, math.ceil(channels * ratio - 1e-9))


class SlimmableConv2d(nn.Conv2d):
    """A convolution without bias. Inputs are the channels that come; `ratio` says how many leave."""

    def __init__(
        self, in_channels: int, out_channels: int, *, kernel: int, stride: int = 1
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False
        )

    def sliced(self, in_channels: int, ratio: float) -> Tensor:
        """A view of the weights (out, in, kernel, kernel) at a width: nothing is copied."""
        return self.weight[: channels_at(self.out_channels, ratio), :in_channels]

    def forward(self, x: Tensor, ratio: float) -> Tensor:
        """(B, in, H, W) to (B, out, H', W')."""
        weight = self.sliced(x.shape[1], ratio)
        return functional.conv2d(x, weight, stride=self.stride, padding=self.padding)


class SlimmableLinear(nn.Linear):
    """The classifier: as many inputs as come, all outputs."""

    def sliced(self, in_features: int) -> Tensor:
        return self.weight[:, :in_features]

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) to (B, classes)."""
        return functional.linear(x, self.sliced(x.shape[1]), self.bias)


class SwitchableBatchNorm2d(nn.Module):
    """One batch normalisation for each width."""

    def __init__(self, channels: int, ratios: tuple[float, ...]) -> None:
        super().__init__()
        self._index = {ratio: index for index, ratio in enumerate(ratios)}
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels_at(channels, ratio)) for ratio in ratios)

    def at(self, ratio: float) -> nn.BatchNorm2d:
        return self.norms[self._index[ratio]]

    def folded(self, ratio: float) -> tuple[Tensor, Tensor]:
        """(scale, shift), (C,) each: in evaluation the layer is scale*x + shift, by channel."""
        norm = self.at(ratio)
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        return scale, norm.bias - norm.running_mean * scale

    def forward(self, x: Tensor, ratio: float) -> Tensor:
        return self.at(ratio)(x)
