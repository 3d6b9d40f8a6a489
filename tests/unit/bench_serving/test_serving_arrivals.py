"""When the requests of an open loop are due."""

from pathlib import Path

import numpy as np
import pytest

from slimscale.bench.serving.arrivals import mmpp, poisson, read_trace, squeezed


def test_poisson_arrivals_have_the_asked_rate_and_exponential_gaps() -> None:
    times = poisson(500.0, 200.0, seed=3)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(100_000, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert times[0] >= 0.0
    assert times[-1] < 200.0


def test_bursts_keep_the_mean_rate_and_vary_more_than_poisson() -> None:
    bursty = mmpp(200.0, 400.0, stay_seconds=0.5, seed=5)
    steady = poisson(200.0, 400.0, seed=5)
    assert len(bursty) == pytest.approx(80_000, rel=0.08)
    assert np.all(np.diff(bursty) >= 0)
    dispersion = [
        np.var(counts) / np.mean(counts)
        for counts in (np.histogram(t, bins=400)[0] for t in (bursty, steady))
    ]
    assert dispersion[0] > 10 * dispersion[1]


def test_the_same_seed_gives_the_same_arrivals_and_another_one_others() -> None:
    first, again, other = (mmpp(50.0, 20.0, stay_seconds=1.0, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[:10], other[:10])


def test_a_squeezed_trace_keeps_the_shape_of_its_gaps() -> None:
    trace = np.concatenate([np.linspace(0, 1, 100), np.linspace(50, 51, 100)])
    times = squeezed(trace, rate=15.0, seconds=10.0, seed=0)
    assert len(times) == 150
    assert times[0] == 0.0
    assert times[-1] <= 10.0
    # One pause holds nearly all of the time, as in the trace.
    assert np.max(np.diff(times)) > 9.0


def test_a_trace_shorter_than_the_load_says_so() -> None:
    with pytest.raises(ValueError, match="3 rows, fewer than the 100"):
        squeezed(np.array([0.0, 1.0, 2.0]), rate=10.0, seconds=10.0, seed=0)


def test_the_kept_traces_are_read_in_seconds_from_their_first_row(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("t_ms,size\n500,1\n250,1\n1250,1\n")
    assert read_trace(file).tolist() == [0.0, 0.25, 1.0]
