"""Which thread count each way would choose on a measured curve, and what that costs there.

The loss is 1 - T(chosen)/max T, on medians of the repeats. Choosing on some repeats and judging on others shows how much of a loss is noise.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.bench.native.dataset import MeasuredCurve
from slimscale.threads.bounds import CpuBounds
from slimscale.threads.estimate import estimate_parameters
from slimscale.threads.memo import Regime
from slimscale.threads.objective import choose
from slimscale.threads.predictor import ThreadPredictor, floor_of_quota

__all__ = [
    "Operated",
    "best_of_curve",
    "fixed_threads",
    "loss",
    "noise_floor",
    "operated",
    "rule_threads",
]

FloatArray = NDArray[np.float64]

TOLERANCE = 0.03
"""objective.tolerancePercent, the default: throughput given up for fewer threads."""


@dataclass(frozen=True, slots=True)
class Operated:
    """What the operator's stages made of one window."""

    observed_threads: int
    chosen_threads: int
    loss: float
    note: str
    """Why a learned predictor left the answer to the analytic model; empty where it did not."""


def loss(measured: MeasuredCurve, threads: int) -> float:
    """Against the best count that was measured; 0 for what lies between two and is better."""
    return max(0.0, 1.0 - measured.rate_at(threads) / float(measured.rates.max()))


def best_of_curve(threads: tuple[int, ...], rates: FloatArray, *, tolerance: float = 0.0) -> int:
    """The fewest threads whose predicted rate is within `tolerance` of the predicted best."""
    return threads[int(np.argmax(rates >= (1.0 - tolerance) * rates.max()))]


def fixed_threads(measured: MeasuredCurve) -> dict[str, int]:
    """The static rules by name."""
    workload = measured.curve.workload
    cpu, blocked = workload.cpu.mean_seconds, workload.blocking.mean_seconds
    goetz = measured.cores_in_reach * (1.0 + blocked / max(cpu, 1e-9))
    return {
        "unset (cores)": measured.cores,
        "floor(quota)": floor_of_quota(measured.cores_in_reach),
        "fixed 8": 8,
        "fixed 16": 16,
        "fixed 32": 32,
        "1 + r": rule_threads(1.0 + workload.ratio),
        "Goetz": rule_threads(goetz),
    }


def rule_threads(value: float) -> int:
    return min(max(1, round(value)), 256) if math.isfinite(value) else 256


def noise_floor(measured: MeasuredCurve) -> float:
    """Mean loss, on one repeat, of the count that was best on the others: no rule can do better.

    It holds both what noise makes one choose and what noise makes the best look better than it is.
    """
    repeats = measured.repeats
    found = []
    for left_out in range(repeats.shape[1]):
        others = np.delete(repeats, left_out, axis=1)
        chosen = int(np.argmax(np.median(others, axis=1)))
        judged = repeats[:, left_out]
        found.append(1.0 - judged[chosen] / judged.max())
    return float(np.mean(found))


def operated(measured: MeasuredCurve, threads: int, predictor: ThreadPredictor) -> Operated | None:
    """Window, estimate, prediction and choice as the operator makes them, from one thread count.

    None where the window holds too little work to decide on.
    """
    spec = SimWorkloadSpec.model_validate({"targetRef": {"name": "native"}})
    window = measured.window_at(threads)
    if window is None or window.tasks < spec.tuning.min_tasks:
        return None
    cores = measured.cores_in_reach
    estimate = estimate_parameters(
        window,
        cores=cores,
        node_cores=float(measured.cores),
        regime=Regime(),
        min_tasks=spec.tuning.min_tasks,
    )
    if estimate is None:
        return None
    most = max(measured.threads)
    surface = predictor.surface(estimate, cpu_cores=(cores,), max_threads=most)
    millicores = round(cores * 1000)
    fixed = CpuBounds(millicores, millicores, False, "measured under one quota")
    choice = choose(surface, spec, fixed, least=1, most=most)
    note = str(getattr(surface, "note", ""))
    return Operated(threads, choice.threads, loss(measured, choice.threads), note)
