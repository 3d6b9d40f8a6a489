"""A small residual network in three segments, each of which runs at any of the widths."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from slimscale.training.slimmable.layers import (
    SlimmableConv2d,
    SlimmableLinear,
    SwitchableBatchNorm2d,
)

__all__ = ["ConvNorm", "Residual", "Shape", "SlimmableResNet"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the network at width 1; one entry a segment. Channels at every width are best multiples of
    16: onnxruntime computes blocks of that size with AVX-512."""

    channels: tuple[int, ...] = (64, 64, 96)
    blocks: tuple[int, ...] = (2, 1, 1)
    strides: tuple[int, ...] = (1, 1, 2)
    stem_kernel: int = 5
    stem_stride: int = 2
    classes: int = 10
    ratios: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    """Ascending; the last is 1."""

    def __post_init__(self) -> None:
        lengths = {len(self.channels), len(self.blocks), len(self.strides)}
        if len(lengths) != 1:
            raise ValueError("channels, blocks and strides need one entry a segment each")
        if list(self.ratios) != sorted(set(self.ratios)) or self.ratios[-1] != 1.0:
            raise ValueError(f"ratios {self.ratios}: give them in ascending order, 1 last")
        if self.ratios[0] <= 0:
            raise ValueError(f"ratios {self.ratios}: each must be above 0")


class ConvNorm(nn.Module):
    """A convolution and its normalisation: one node of the exported graph."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, ratios: tuple[float, ...]
    ) -> None:
        super().__init__()
        self.conv = SlimmableConv2d(inputs, outputs, kernel=kernel, stride=stride)
        self.norm = SwitchableBatchNorm2d(outputs, ratios)

    def forward(self, x: Tensor, ratio: float) -> Tensor:
        return self.norm(self.conv(x, ratio), ratio)


class Residual(nn.Module):
    """Two convolutions beside a shortcut, which is itself one where the shape changes."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, ratios: tuple[float, ...]
    ) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, kernel=3, stride=stride, ratios=ratios)
        self.second = ConvNorm(outputs, outputs, kernel=3, stride=1, ratios=ratios)
        self.shortcut: ConvNorm | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = ConvNorm(inputs, outputs, kernel=1, stride=stride, ratios=ratios)

    def forward(self, x: Tensor, ratio: float) -> Tensor:
        y = self.second(functional.relu(self.first(x, ratio)), ratio)
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x, ratio)))


class SlimmableResNet(nn.Module):
    """Stem, segments of residual blocks, mean over the image, one linear layer.

    Images come as they are, 0 (black) to 1 (white): the stem's normalisation sees to their scale.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        ratios, width = shape.ratios, shape.channels[0]
        self.stem = ConvNorm(
            1, width, kernel=shape.stem_kernel, stride=shape.stem_stride, ratios=ratios
        )
        self.segments = nn.ModuleList()
        for channels, blocks, stride in zip(
            shape.channels, shape.blocks, shape.strides, strict=True
        ):
            segment = nn.ModuleList()
            for index in range(blocks):
                segment.append(
                    Residual(width, channels, stride=1 if index else stride, ratios=ratios)
                )
                width = channels
            self.segments.append(segment)
        self.head = SlimmableLinear(width, shape.classes)
        for module in self.modules():
            if isinstance(module, SlimmableConv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor, ratio: float = 1.0) -> Tensor:
        """Images (B, 1, H, W) to logits (B, classes), at one of the shape's widths."""
        x = functional.relu(self.stem(x, ratio))
        for segment in self.segments:
            for block in segment:
                x = block(x, ratio)
        return self.head(x.mean(dim=(2, 3)))
