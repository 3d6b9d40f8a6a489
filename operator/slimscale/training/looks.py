"""Look, choose, look again: what a predictor's choices are worth once it may follow them.

One window says little of a dispatcher that had no crowd. The operator moves to the predicted count,
remembers what it saw, and predicts anew: this plays that for some looks, each with its own model.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.memo import Regime
from slimscale.threads.operator_network import OperatorPredictor, OperatorWeights
from slimscale.threads.predictor import AnalyticPredictor, ThreadPredictor
from slimscale.training.judge import chosen_threads
from slimscale.training.raw import look_at
from slimscale.training.rows import look
from slimscale.training.workloads import MOST_THREADS, Case, Split, draw_case

__all__ = ["follow", "follow_all"]

IntArray = NDArray[np.int64]


def follow(case: Case, predictor: ThreadPredictor, *, looks: int, tolerance: float) -> list[int]:
    """The thread counts chosen after each look, the first of them at the case's own count.

    Where a window allows no decision the count stays. Seeds differ from look to look.
    """
    threads, regime = case.threads, Regime()
    chosen: list[int] = []
    for number in range(looks):
        here = replace(case, threads=threads, seed=case.seed + 7919 * (number + 1), before=None)
        packed, timing = look_at(here)
        seen = look(here, packed, timing, regime)
        if seen is not None:
            window, estimate = seen
            if window.saturated:
                linear = estimate.parameters.contention_linear if estimate.crowd_seen else None
                regime = replace(
                    regime.with_point(estimate.point),
                    contention_linear=linear or regime.contention_linear,
                )
            cores = estimate.parameters.cpu_servers
            surface = predictor.surface(estimate, cpu_cores=(cores,), max_threads=MOST_THREADS)
            threads = int(chosen_threads(surface.tasks_per_second, tolerance=tolerance)[0])
        chosen.append(threads)
    return chosen


def follow_all(
    split: Split,
    indices: IntArray,
    weights: OperatorWeights | None,
    *,
    seed: int,
    looks: int,
    tolerance: float,
) -> IntArray:
    """`follow` for many cases, shape (len(indices), looks); without weights the analytic model."""
    work = partial(_follow_one, split, weights, seed=seed, looks=looks, tolerance=tolerance)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        chosen = list(pool.map(work, indices.tolist(), chunksize=8))
    return np.asarray(chosen, dtype=np.int64)


def _follow_one(
    split: Split,
    weights: OperatorWeights | None,
    index: int,
    *,
    seed: int,
    looks: int,
    tolerance: float,
) -> list[int]:
    predictor = AnalyticPredictor() if weights is None else OperatorPredictor(weights)
    case = draw_case(split, index, seed=seed)
    return follow(case, predictor, looks=looks, tolerance=tolerance)
