"""Look, choose, look again: what a predictor's choices are worth once it may follow them.

One window says little of a dispatcher that had no crowd. The operator moves to the predicted count,
remembers what it saw, and predicts anew: this plays that for some looks, each with its own model.
As in `recommend`, what was measured in the load overrules what is predicted there, and with
`probes` a count that stays is doubted by the steps of `threads/probe.py`.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.calibrate import best_known, through_measured
from slimscale.threads.estimate import Estimate
from slimscale.threads.memo import Regime
from slimscale.threads.operator_network import OperatorPredictor, OperatorWeights
from slimscale.threads.predictor import AnalyticPredictor, Surface, ThreadPredictor
from slimscale.threads.probe import next_probe
from slimscale.threads.window import WorkloadWindow
from slimscale.training.judge import chosen_threads
from slimscale.training.raw import look_at
from slimscale.training.rows import look
from slimscale.training.workloads import MOST_THREADS, Case, Split, draw_case

__all__ = ["Play", "follow", "follow_all"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Play:
    """How a case is followed."""

    looks: int
    tolerance: float
    probes: bool = False
    hysteresis: float = 0.05
    """Gain that an untried count must promise over the best tried one, to be the last choice."""


def follow(case: Case, predictor: ThreadPredictor, play: Play) -> list[int]:
    """The thread counts asked for after each look, the first look at the case's own count; and, as
    the last, the count that is kept after all looks, without a further probe.

    Where a window allows no decision the count stays. Seeds differ from look to look.
    """
    threads, regime = case.threads, Regime()
    chosen: list[int] = []
    settled = threads
    for number in range(play.looks):
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
            rates = through_measured(surface, regime.points, cores=cores).tasks_per_second
            asked = int(chosen_threads(rates, tolerance=play.tolerance)[0])
            settled = best_known(asked, rates[0], regime.points, hysteresis=play.hysteresis)
            if play.probes and asked == threads:
                asked, regime = _probed(window, estimate, regime, surface)
            threads = asked
        chosen.append(threads)
    return [*chosen, settled]


def _probed(
    window: WorkloadWindow, estimate: Estimate, regime: Regime, surface: Surface
) -> tuple[int, Regime]:
    """The next count to try; the present one when nothing is worth trying."""
    rates = surface.tasks_per_second[0]
    probe = next_probe(
        window,
        estimate,
        regime,
        predicted=lambda threads: float(rates[min(threads, len(rates)) - 1]),
        least=1,
        most=MOST_THREADS,
    )
    if probe is None:
        return window.threads, regime
    return probe.threads, replace(regime, probes=regime.probes + 1)


def follow_all(
    split: Split, indices: IntArray, weights: OperatorWeights | None, play: Play, *, seed: int
) -> IntArray:
    """`follow` for many cases, shape (len(indices), looks + 1); without weights the analytic model."""
    work = partial(_follow_one, split, weights, play, seed=seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        chosen = list(pool.map(work, indices.tolist(), chunksize=8))
    return np.asarray(chosen, dtype=np.int64)


def _follow_one(
    split: Split, weights: OperatorWeights | None, play: Play, index: int, *, seed: int
) -> list[int]:
    predictor = AnalyticPredictor() if weights is None else OperatorPredictor(weights)
    return follow(draw_case(split, index, seed=seed), predictor, play)
