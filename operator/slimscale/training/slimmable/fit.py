"""Sandwich rule and in-place distillation (Yu & Huang 2019, arXiv 1903.05134, section 3).

In each step the widest network learns from the labels, and the narrowest and some of those between
learn from the widest one's answers. After training, each width's statistics are computed anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from slimscale.training.slimmable.data import Images
from slimscale.training.slimmable.network import SlimmableResNet

__all__ = ["FitSettings", "accuracies", "calibrate", "fit", "has_fast_bfloat16", "sandwich_step"]


@dataclass(frozen=True, slots=True)
class FitSettings:
    epochs: int = 4
    batch: int = 128
    learning_rate: float = 0.1
    """The highest of one cycle."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    """Of convolutions and the linear layer; not of normalisation."""
    between: int = 1
    """Widths between the narrowest and the widest that are drawn for each step."""
    label_smoothing: float = 0.0
    calibration_images: int = 10_000
    bfloat16: bool = False
    """Convolutions in half precision; twice as fast where the CPU has instructions for it."""
    seed: int = 1


def fit(
    network: SlimmableResNet,
    train: Images,
    *,
    settings: FitSettings,
    step_done: Callable[[float], None],
    epoch_done: Callable[[int], None],
) -> None:
    """Train in place; the same seed and settings give the same network on the same machine.

    `step_done` gets the widest network's loss, `epoch_done` the number of the epoch from 0.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    rng = Random(settings.seed)  # noqa: S311
    optimiser = torch.optim.SGD(
        _groups(network, settings.weight_decay),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=True,
    )
    steps = settings.epochs * (len(train) // settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=settings.learning_rate, total_steps=steps, pct_start=0.25
    )
    network.train()
    for epoch in range(settings.epochs):
        order = torch.randperm(len(train), generator=generator)
        for index in torch.split(order, settings.batch):
            if len(index) < settings.batch:
                continue  # a batch of a few images would disturb the statistics
            images = train.take(index)
            flipped = torch.rand(len(index), generator=generator) < 0.5
            pixels = torch.where(flipped[:, None, None, None], images.pixels.flip(3), images.pixels)
            optimiser.zero_grad(set_to_none=True)
            loss = sandwich_step(network, pixels, images.labels, settings=settings, rng=rng)
            optimiser.step()
            schedule.step()
            step_done(loss)
        epoch_done(epoch)
        network.train()


def sandwich_step(
    network: SlimmableResNet,
    pixels: Tensor,
    labels: Tensor,
    *,
    settings: FitSettings,
    rng: Random,
) -> float:
    """Add up the gradients of the widest, the narrowest and some widths between.

    The widest network's loss is the cross entropy with the labels; the others' is that with the
    widest network's answers, through which no gradient flows back. Returns the widest one's loss.
    """
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    *narrower, widest = network.shape.ratios
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
        logits = network(pixels, widest).float()
    loss = functional.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing)
    loss.backward()
    teacher = functional.softmax(logits.detach(), dim=1)
    drawn = rng.sample(narrower[1:], min(settings.between, len(narrower[1:])))
    for ratio in [*narrower[:1], *drawn]:
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
            student = network(pixels, ratio).float()
        functional.cross_entropy(student, teacher).backward()
    return float(loss.detach())


def calibrate(network: SlimmableResNet, images: Images, *, batch: int = 500) -> None:
    """Compute each width's mean and variance anew over `images`, as a plain average.

    While training, a width's running statistics lag behind weights that other widths changed too.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    network.train()
    with torch.no_grad():
        for ratio in network.shape.ratios:
            for pixels in torch.split(images.pixels, batch):
                network(pixels.contiguous(memory_format=torch.channels_last), ratio)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()


def accuracies(
    network: SlimmableResNet, images: Images, *, batch: int = 500
) -> Mapping[float, float]:
    """Share of images answered right, by width."""
    network.eval()
    parts = list(
        zip(torch.split(images.pixels, batch), torch.split(images.labels, batch), strict=True)
    )
    with torch.no_grad():
        return {
            ratio: sum(
                int((network(pixels, ratio).argmax(dim=1) == labels).sum())
                for pixels, labels in parts
            )
            / len(images)
            for ratio in network.shape.ratios
        }


def has_fast_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this CPU multiplies bfloat16 itself; elsewhere it is slower than float32."""
    try:
        words = cpuinfo.read_text(encoding="utf-8").split()
    except OSError:
        return False
    return "avx512_bf16" in words or "amx_bf16" in words


def _groups(network: SlimmableResNet, weight_decay: float) -> list[dict[str, object]]:
    decayed = [p for p in network.parameters() if p.ndim > 1]
    plain = [p for p in network.parameters() if p.ndim <= 1]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
