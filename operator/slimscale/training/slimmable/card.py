"""The model card: what the widths are, what they reach, what they cost. JSON beside the graphs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimscale.training.slimmable.data import CLASSES
from slimscale.training.slimmable.export import INPUT, OUTPUT, model_name
from slimscale.training.slimmable.measure import Latency, Work

__all__ = ["CARD_FILE", "make_card", "read_card", "with_latency", "write_card"]

CARD_FILE = "card.json"
FORMAT = 1


def make_card(
    *,
    service: str,
    paths: Mapping[float, Path],
    work: Mapping[float, Work],
    test: Mapping[float, float],
    validation: Mapping[float, float],
    differences: Mapping[float, float],
    facts: Mapping[str, object],
    images: int,
) -> dict[str, Any]:
    """Everything but the latencies, which `with_latency` adds. Accuracies are shares, 0 to 1."""
    widest = work[max(work)].flops
    return {
        "format": FORMAT,
        "what": "slimmable CNN, one graph a width, on Fashion-MNIST",
        "made_by": "python -m slimscale.training.slimmable train",
        "service": service,
        "input": {"name": INPUT, "datatype": "FP32", "shape": [-1, 1, 28, 28], "range": [0, 1]},
        "output": {"name": OUTPUT, "datatype": "FP32", "shape": [-1, len(CLASSES)]},
        "classes": list(CLASSES),
        "test_images": images,
        "widths": [
            {
                "ratio": ratio,
                "model": model_name(service, ratio),
                "accuracy": round(test[ratio], 4),
                "validation_accuracy": round(validation[ratio], 4),
                "parameters": work[ratio].parameters,
                "flops": work[ratio].flops,
                "flops_ratio": round(work[ratio].flops / widest, 4),
                "file_bytes": work[ratio].file_bytes,
                "sha256": hashlib.sha256(paths[ratio].read_bytes()).hexdigest(),
                "difference_from_torch": float(f"{differences[ratio]:.1e}"),
            }
            for ratio in paths
        ],
        "training": dict(facts),
    }


def with_latency(
    card: dict[str, Any], latency: Mapping[float, Latency], facts: Mapping[str, object]
) -> dict[str, Any]:
    """The card with each width's times, in seconds, on one thread."""
    widths = [
        {
            **width,
            "latency_seconds": {
                str(rows): float(f"{seconds:.4g}")
                for rows, seconds in latency[width["ratio"]].by_batch.items()
            },
            "base_seconds": float(f"{latency[width['ratio']].base_seconds:.4g}"),
            "row_seconds": float(f"{latency[width['ratio']].row_seconds:.4g}"),
            "line_error": round(latency[width["ratio"]].worst_error, 3),
            "load_seconds": float(f"{latency[width['ratio']].load_seconds:.4g}"),
        }
        for width in card["widths"]
    ]
    return {**card, "widths": widths, "latency": dict(facts)}


def write_card(folder: Path, card: Mapping[str, object]) -> None:
    text = json.dumps(card, indent=1, ensure_ascii=False)
    (folder / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> dict[str, Any]:
    """Raises ValueError when `folder` holds no card."""
    path = folder / CARD_FILE
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no model card ({error}); make one with `train`") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ValueError(f"{path} is no model card of format {FORMAT}; make one with `train`")
    return card
