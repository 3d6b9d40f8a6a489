"""The card as a page with a plot."""

import math
from pathlib import Path
from typing import Any

from slimscale.training.slimmable.measure import BATCHES

__all__ = ["PAGE", "write_report"]

PAGE, PLOT = "slimmable-cnn.md", "slimmable-cnn.png"
NORMAL_95 = 1.96


def write_report(card: dict[str, Any], folder: Path) -> None:
    """slimmable-cnn.md and .png in `folder`, from a card with latencies."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(card), encoding="utf-8")
    draw(card, folder / PLOT)


def page(card: dict[str, Any]) -> str:
    training, latency, widths = card["training"], card["latency"], card["widths"]
    settings = training["settings"]
    lines = [
        "# The slimmable CNN on Fashion-MNIST",
        "",
        "One set of weights that runs at four widths: a narrower network uses the first channels of"
        " each layer. Each width is served as a graph of its own. Written by"
        " `python -m slimscale.training.slimmable report` from"
        " [the model card](../../operator/slimscale/weights/fashion/card.json).",
        "",
        f"![Latency and accuracy by width]({PLOT})",
        "",
        "## What a width gives and costs",
        "",
        "| width | model | accuracy on the test set | parameters | MFLOP a row | file |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {width['ratio']:g} | `{width['model']}` | {_share(width['accuracy'], card['test_images'])}"
        f" | {width['parameters']:,} | {width['flops'] / 1e6:.1f} ({width['flops_ratio']:.2f})"
        f" | {width['file_bytes'] / 1e3:.0f} kB |"
        for width in widths
    ]
    lines += [
        "",
        f"Accuracy is on {card['test_images']:,} test images, looked at once, with the 95 % interval of that"
        " many. A FLOP is half a multiply-add of a convolution or of the linear layer; in brackets the share"
        " of the widest. Published figures of slimmable networks are on CIFAR-100 and ImageNet, which are far"
        " harder than this data set: they are not comparable.",
        "",
        "## Latency",
        "",
        "Milliseconds a batch in onnxruntime on one thread; medians of"
        f" {latency['rounds']} rounds, each of which timed every width and batch in a new order.",
        "",
        "| width | " + " | ".join(f"{rows}" for rows in BATCHES) + " | base | a row | worst error | load |",
        "|---|" + "---|" * (len(BATCHES) + 4),
    ]  # fmt: skip
    lines += [
        f"| {width['ratio']:g} | "
        + " | ".join(f"{1e3 * width['latency_seconds'][str(rows)]:.2f}" for rows in BATCHES)
        + f" | {1e3 * width['base_seconds']:.3f} | {1e3 * width['row_seconds']:.3f}"
        f" | {width['line_error']:.0%} | {1e3 * width['load_seconds']:.0f} |"
        for width in widths
    ]
    lines += [
        "",
        "*base* and *a row* are the line that router and sidecar start from: a batch of b rows takes"
        " about base + b times a row; *worst error* is how far the line is off. *load* is the time to make a"
        " session. One thread of a CPU is kept busy by a single image of this size, so a batch saves little"
        " computing: what it saves is the handling of requests.",
        "",
        "## How it was made",
        "",
        "Sandwich rule and in-place distillation (arXiv 1903.05134): in each step the widest network learns"
        " from the labels, the narrowest and one drawn between learn from the widest one's answers. Each width has"
        " normalisation statistics of its own, computed anew after training and folded into the convolutions"
        " at export. Validation images were drawn from the training files and held out.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in settings["shape"].items()),
        *(f"| {key} | {value} |" for key, value in settings["fit"].items()),
        f"| images | {training['images']['train']:,} for training, {training['images']['validation']:,} for validation |",
        f"| time | {training['seconds']} s, {training['cpu_seconds']} s of CPU |",
        f"| torch | {training['torch']} |",
        f"| difference from torch | at most {max(w['difference_from_torch'] for w in widths):.0e} of the largest logit |",
        f"| latency measured | {latency['cpu']}, {latency['cores']} cores, onnxruntime {latency['onnxruntime']}, load average {latency['load_average']:g} |",
        "",
    ]
    if training["validation_by_epoch"]:
        lines += _history(training["validation_by_epoch"])
    return "\n".join(lines)


def _history(history: list[dict[str, float]]) -> list[str]:
    ratios = list(history[0])
    lines = [
        "Accuracy on the validation images while training, with statistics that lag behind:",
        "",
        "| epoch | " + " | ".join(ratios) + " |",
        "|---|" + "---|" * len(ratios),
    ]
    lines += [
        f"| {number} | " + " | ".join(f"{row[ratio]:.2%}" for ratio in ratios) + " |"
        for number, row in enumerate(history, start=1)
    ]
    return [*lines, ""]


def _share(share: float, count: int) -> str:
    """A share with its Wilson interval."""
    z2 = NORMAL_95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = (
        NORMAL_95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    )
    return f"{100 * share:.2f} % ({100 * (middle - half):.1f} to {100 * (middle + half):.1f})"


def draw(card: dict[str, Any], path: Path) -> None:
    """Latency against batch with the fitted lines; accuracy against latency at one row."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for width in card["widths"]:
        measured = [1e3 * width["latency_seconds"][str(rows)] for rows in BATCHES]
        line = [1e3 * (width["base_seconds"] + rows * width["row_seconds"]) for rows in BATCHES]
        (points,) = left.plot(BATCHES, measured, "o", label=f"width {width['ratio']:g}")
        left.plot(BATCHES, line, "-", color=points.get_color(), alpha=0.6)
        at = (1e3 * width["latency_seconds"]["1"], 100 * width["accuracy"])
        right.plot(*at, "o", color=points.get_color())
        right.annotate(f"{width['ratio']:g}", at, xytext=(6, -4), textcoords="offset points")
    left.set(xscale="log", yscale="log", xlabel="rows of a batch", ylabel="ms a batch")
    left.set_xticks(BATCHES, [str(rows) for rows in BATCHES])
    left.minorticks_off()
    left.legend(frameon=False)
    left.set_title("Time of a batch, one thread (lines: base + b rows)")
    right.set(xlabel="ms at one row", ylabel="accuracy on the test set, %")
    right.set_title("What a wider network buys")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
