"""The universal scalability law."""

import math

import numpy as np
import pytest

from slimscale.threads.scalability import speedup_curve, threads_at_peak


def test_the_peak_lies_where_the_reference_example_has_it() -> None:
    assert threads_at_peak(contention=0.05, coherence=0.001) == pytest.approx(30.8, abs=0.05)
    curve = speedup_curve(contention=0.05, coherence=0.001, max_threads=100)
    assert int(np.argmax(curve)) + 1 == 31


def test_without_coherence_cost_it_is_amdahls_law() -> None:
    curve = speedup_curve(contention=0.1, coherence=0.0, max_threads=100_000)
    assert math.isinf(threads_at_peak(contention=0.1, coherence=0.0))
    assert np.diff(curve).min() > 0
    assert curve[3] == pytest.approx(1 / (0.1 + 0.9 / 4))
    assert curve[-1] == pytest.approx(10, rel=1e-3)


def test_without_any_cost_every_thread_counts_in_full() -> None:
    assert speedup_curve(contention=0, coherence=0, max_threads=5).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_costs_that_are_no_share_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^contention is .*; give a share"):
        speedup_curve(contention=value, coherence=0.0, max_threads=3)
    with pytest.raises(ValueError, match=r"^coherence is .*; give a share"):
        threads_at_peak(contention=0.0, coherence=value)
