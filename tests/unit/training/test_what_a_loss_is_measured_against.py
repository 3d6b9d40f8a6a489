"""Losses are neither made by the noise of the measured curves nor hidden by it."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="pip install slimscale[train]")

from slimscale.simulate.measure import measure_curve
from slimscale.threads.predictor import AnalyticPredictor
from slimscale.training.judge import Truth
from slimscale.training.knowable import knowable_loss
from slimscale.training.looks import Play, follow
from slimscale.training.workloads import MOST_THREADS, Split, draw_case

ROWS = 400


def measured_twice(rates: np.ndarray, *, noise: float) -> Truth:
    rng = np.random.default_rng(3)
    one, other = (rates * np.exp(rng.normal(0.0, noise, (ROWS, MOST_THREADS))) for _ in range(2))
    return Truth(one, other)


def test_noise_alone_is_no_loss() -> None:
    truth = measured_twice(np.ones((ROWS, MOST_THREADS)), noise=0.02)
    chosen = np.full(ROWS, 40)
    assert truth.at_most(chosen).mean() > 0.02
    assert abs(truth.losses(chosen).mean()) < 0.003


def test_a_real_loss_is_found_beneath_the_noise() -> None:
    rates = np.where(np.arange(1, MOST_THREADS + 1) < 10, 0.9, 1.0) * np.ones((ROWS, 1))
    truth = measured_twice(rates, noise=0.01)
    assert truth.losses(np.full(ROWS, 5)).mean() == pytest.approx(0.1, abs=0.003)
    assert truth.at_most(np.full(ROWS, 5)).mean() > 0.1


def test_where_one_task_is_outstanding_no_count_is_better_than_another() -> None:
    case = draw_case(Split.HELD_OUT, 0, seed=1)
    alone = replace(case, workload=replace(case.workload, outstanding=1))
    assert knowable_loss(alone) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
def test_further_looks_find_a_better_count_than_the_first() -> None:
    case = draw_case(Split.SEEN, 3, seed=1)
    case = replace(case, workload=replace(case.workload, outstanding=None), threads=1)
    asked = follow(case, AnalyticPredictor(), Play(looks=4, tolerance=0.01, probes=True))
    assert len(asked) == 5
    tried = sorted({1, *asked})
    rates = measure_curve(case.workload, case.host, tried, seed=9, tasks=2000)
    reached = dict(zip(tried, rates, strict=True))
    assert reached[asked[-1]] > 0.97 * max(reached[count] for count in (1, *asked[:-1]))
