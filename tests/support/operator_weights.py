"""Random weights in the shape that training writes, and estimates to use them on."""

from dataclasses import replace

import numpy as np
from safetensors.numpy import save

from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.features import BRANCH_FEATURES, TRUNK_FEATURES
from slimscale.threads.memo import Regime
from slimscale.threads.operator_network import FORMAT
from slimscale.threads.window import observe_window
from tests.support.observations import SyntheticWorkload, make_spec

__all__ = ["estimate_of", "random_arrays", "weights_card", "weights_file"]

BLOCKING = NetworkParameters(20e-3, 2e-3, 60e-6, 2.0, contention_linear=0.7)


def estimate_of(
    truth: NetworkParameters = BLOCKING, *, threads: int = 8, **changes: object
) -> Estimate:
    """What the operator estimates after some intervals of a pod with `threads` threads."""
    plant = SyntheticWorkload(truth, threads=threads, noise=0.02)
    for _ in range(6):
        plant.tick()
    spec = make_spec()
    result = observe_window(
        plant.observe(),
        tuning=spec.tuning,
        metrics=spec.metrics,
        now_seconds=plant.now_seconds,
        not_before_seconds=0.0,
    )
    assert result.window is not None
    estimate = estimate_parameters(
        result.window, cores=2.0, node_cores=4.0, regime=Regime(), min_tasks=30
    )
    assert estimate is not None
    return replace(estimate, **changes)  # type: ignore[arg-type]


def random_arrays(seed: int = 1, *, size: float = 1.0) -> dict[str, np.ndarray]:
    """`size` 0 makes a network that corrects nothing."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for part, inputs in (("branch", len(BRANCH_FEATURES)), ("trunk", len(TRUNK_FEATURES))):
        for index, width in enumerate((16, 8)):
            spread = size / np.sqrt(inputs)
            arrays[f"{part}.{index}.weight"] = rng.normal(0, spread, (width, inputs))
            arrays[f"{part}.{index}.bias"] = rng.normal(0, size, width)
            inputs = width  # noqa: PLW2901
    arrays["bias"] = np.asarray([0.1 * size])
    for part, count in (("branch", len(BRANCH_FEATURES)), ("trunk", len(TRUNK_FEATURES))):
        arrays[f"{part}_mean"] = rng.normal(0, 1, count)
        arrays[f"{part}_scale"] = np.full(count, 2.0)
    arrays["range_low"] = np.full(len(BRANCH_FEATURES), -20.0)
    arrays["range_high"] = np.full(len(BRANCH_FEATURES), 20.0)
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def weights_file(arrays: dict[str, np.ndarray]) -> bytes:
    return save(arrays)


def weights_card(**changes: object) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": "test",
        "branch_features": list(BRANCH_FEATURES),
        "trunk_features": list(TRUNK_FEATURES),
        **changes,
    }
