"""Fit the network with progress shown, and keep it as a checkpoint that export and tests can read."""

import json
import platform
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from slimscale.training.slimmable.data import FASHION_FOLDER, Split
from slimscale.training.slimmable.fit import (
    FitSettings,
    accuracies,
    calibrate,
    fit,
    has_fast_bfloat16,
)
from slimscale.training.slimmable.network import Shape, SlimmableResNet

__all__ = ["TrainSettings", "load_checkpoint", "save_checkpoint", "train"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    data: Path = FASHION_FOLDER
    validation: int = 5000
    shape: Shape = field(default_factory=Shape)
    fit: FitSettings = field(default_factory=lambda: FitSettings(bfloat16=has_fast_bfloat16()))

    def quick(self) -> "TrainSettings":
        """A run of seconds, to see that everything runs; not for weights that are used."""
        few = replace(self.fit, epochs=1, calibration_images=500)
        return replace(self, fit=few, validation=500)


def train(
    data: Split, *, settings: TrainSettings, console: Console
) -> tuple[SlimmableResNet, dict[str, object]]:
    """A fitted, calibrated network, and the facts of the run for its card."""
    torch.manual_seed(settings.fit.seed)
    network = SlimmableResNet(settings.shape).to(memory_format=torch.channels_last)
    began, cpu_began = time.monotonic(), time.process_time()
    history: list[dict[str, float]] = []
    each = len(data.train) // settings.fit.batch
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("train", total=settings.fit.epochs * each)

        def step_done(loss: float) -> None:
            progress.update(task, advance=1, description=f"train, loss {loss:.3f}")

        def epoch_done(epoch: int) -> None:
            found = accuracies(network, data.validation)
            history.append({f"{ratio:g}": share for ratio, share in found.items()})
            shown = "  ".join(f"{ratio:g}: {share:.2%}" for ratio, share in found.items())
            progress.console.print(f"epoch {epoch + 1}, accuracy on validation by width  {shown}")

        fit(
            network,
            data.train,
            settings=settings.fit,
            step_done=step_done,
            epoch_done=epoch_done,
        )
        progress.update(task, description="statistics of each width")
        count = min(settings.fit.calibration_images, len(data.train))
        calibrate(network, data.train.take(torch.arange(count)))
    facts: dict[str, object] = {
        "settings": {"shape": asdict(settings.shape), "fit": asdict(settings.fit)},
        "images": {"train": len(data.train), "validation": len(data.validation)},
        "validation_by_epoch": history,
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time() - cpu_began),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    return network, facts


def save_checkpoint(
    path: Path, network: SlimmableResNet, facts: dict[str, object], settings: TrainSettings
) -> None:
    """safetensors, with shape and facts in its metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    metadata = {"shape": json.dumps(asdict(settings.shape)), "facts": json.dumps(facts)}
    save_file(tensors, path, metadata=metadata)


def load_checkpoint(path: Path) -> tuple[SlimmableResNet, dict[str, object]]:
    """The network in evaluation mode, and the facts of its training.

    Raises:
        ValueError: no such checkpoint, or one that is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        shape: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(metadata["shape"]).items()
        }
        network = SlimmableResNet(Shape(**shape))
        network.load_state_dict(load_file(path))
        facts = json.loads(metadata["facts"])
    except (OSError, SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is no checkpoint of a slimmable network: {error}") from error
    network.eval()
    return network, facts
