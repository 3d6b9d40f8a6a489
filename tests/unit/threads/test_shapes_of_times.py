"""The quantiles and the history that a window carries for learned predictors."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.threads.histogram import HistogramDelta
from slimscale.threads.window import (
    DISPATCH_PROBABILITIES,
    HISTORY_INTERVALS,
    TASK_PROBABILITIES,
    observe_window,
)
from tests.support.observations import SyntheticWorkload, make_spec
from tests.support.operator_weights import BLOCKING

BOUNDS = (1e-3, 2e-3, 5e-3, 1e-2, math.inf)
counts = st.lists(st.floats(0, 1e6), min_size=len(BOUNDS), max_size=len(BOUNDS)).filter(any)


@given(counts)
def test_quantiles_in_one_pass_are_the_quantiles_one_by_one(found: list[float]) -> None:
    histogram = HistogramDelta(BOUNDS, tuple(found), 1.0)
    together = histogram.quantiles_seconds(TASK_PROBABILITIES)
    apart = [histogram.quantile_seconds(p) for p in TASK_PROBABILITIES]
    assert together == pytest.approx(apart, rel=1e-9, abs=1e-12)
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(together))  # but for rounding


def test_an_empty_histogram_has_no_shape() -> None:
    assert HistogramDelta(BOUNDS, (0.0,) * len(BOUNDS), 0.0).quantiles_seconds((0.5,)) == ()


def test_a_window_carries_its_shape_and_no_more_than_the_last_intervals() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=8, noise=0.02)
    for _ in range(HISTORY_INTERVALS + 6):
        plant.tick()
    spec = make_spec()
    window = observe_window(
        plant.observe(),
        tuning=spec.tuning,
        metrics=spec.metrics,
        now_seconds=plant.now_seconds,
        not_before_seconds=0.0,
    ).window
    assert window is not None
    assert len(window.task_shape_seconds) == len(TASK_PROBABILITIES)
    assert len(window.dispatch_shape_seconds) == len(DISPATCH_PROBABILITIES)
    assert len(window.history_per_second) == HISTORY_INTERVALS
    last, before = plant.samples[-1], plant.samples[-2]
    rate = ((last.tasks_total or 0) - (before.tasks_total or 0)) / plant.interval_seconds
    assert window.history_per_second[-1] == pytest.approx(rate)
