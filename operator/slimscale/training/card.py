"""Weights as safetensors, and the card that says what they are."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from slimscale.threads.features import BRANCH_FEATURES, TRUNK_FEATURES
from slimscale.threads.operator_network import FORMAT, OperatorWeights
from slimscale.training.dataset import Dataset
from slimscale.training.judge import Spread
from slimscale.training.network import OperatorNetwork

__all__ = [
    "WEIGHTS_NAME",
    "arrays_of",
    "make_card",
    "training_range",
    "weights_of",
    "write_weights",
]

FloatArray = NDArray[np.float64]

WEIGHTS_NAME = "threads-operator"
SLACK = 0.1
"""Of a feature's range in the training data, added on both sides."""
LEAST_SLACK = 0.25
"""In the features' own units, logarithms or shares."""


def training_range(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """(low, high) of each branch feature, (F,) each, with a little slack."""
    low, high = data.branch.min(axis=0), data.branch.max(axis=0)
    slack = np.maximum(SLACK * (high - low), LEAST_SLACK)
    return np.asarray(low - slack, np.float64), np.asarray(high + slack, np.float64)


def arrays_of(network: OperatorNetwork, data: Dataset) -> dict[str, NDArray[np.float32]]:
    """What `OperatorWeights.read` looks for; the heads that only training uses stay behind."""
    arrays: dict[str, NDArray[np.float32]] = {}
    state = network.state_dict()
    for part in ("branch", "trunk"):
        layers = sorted({int(key.split(".")[1]) for key in state if key.startswith(f"{part}.")})
        for index, layer in enumerate(layers):
            for kind in ("weight", "bias"):
                value = state[f"{part}.{layer}.{kind}"]
                arrays[f"{part}.{index}.{kind}"] = value.detach().numpy().astype(np.float32)
    arrays["bias"] = state["bias"].detach().numpy().astype(np.float32).reshape(1)
    for name in ("branch_mean", "branch_scale", "trunk_mean", "trunk_scale"):
        arrays[name] = state[name].detach().numpy().astype(np.float32)
    low, high = training_range(data)
    arrays["range_low"], arrays["range_high"] = low.astype(np.float32), high.astype(np.float32)
    return {name: np.ascontiguousarray(value) for name, value in arrays.items()}


def weights_of(network: OperatorNetwork, data: Dataset) -> OperatorWeights:
    """What the operator would run, from a network and the data it was trained on."""
    arrays = arrays_of(network, data)
    card = make_card(arrays, settings={}, metrics={}, data_hash="")
    return OperatorWeights.read(save(arrays), card)


def make_card(
    arrays: Mapping[str, NDArray[np.float32]],
    *,
    settings: Mapping[str, object],
    metrics: Mapping[str, Spread],
    data_hash: str,
) -> dict[str, object]:
    """The JSON card: everything needed to judge the weights, and to make them again."""
    return {
        "format": FORMAT,
        "version": hashlib.sha256(save(dict(arrays))).hexdigest()[:12],
        "what": "correction to the throughput curve of the analytic model, per pod",
        "made_by": "make train",
        "output": "g in log odds of T/Bd at given thread counts; T in tasks a second",
        "branch_features": list(BRANCH_FEATURES),
        "trunk_features": list(TRUNK_FEATURES),
        "units": "natural logarithms of ratios, and shares; see slimscale.threads.features",
        "not_seen": [
            "system CPU time, context switches and memory of the process: not in the contract",
        ],
        "range": "range_low and range_high in the weights; outside, the analytic model answers",
        "data_hash": data_hash,
        "settings": dict(settings),
        "metrics": {
            name: {key: round(value, 5) for key, value in asdict(spread).items()}
            for name, spread in metrics.items()
        },
    }


def write_weights(
    folder: Path, arrays: Mapping[str, NDArray[np.float32]], card: Mapping[str, object]
) -> None:
    """Both files, after `OperatorWeights.read` has accepted them."""
    data = save(dict(arrays))
    OperatorWeights.read(data, card)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{WEIGHTS_NAME}.safetensors").write_bytes(data)
    text = json.dumps(card, indent=2, ensure_ascii=False)
    (folder / f"{WEIGHTS_NAME}.json").write_text(text + "\n", encoding="utf-8")
