"""Many tasks on fewer threads: T(N, k, mu_b, mu_e)."""

import math

import numpy as np
import pytest

from slimscale.threads.cyclic import CyclicQueue
from slimscale.threads.finite_source import FiniteSourceMM1
from tests.support.markov import solve_cyclic


@pytest.mark.parametrize(
    ("tasks", "threads", "expected"),
    [
        (8, 8, 0.7644),
        (16, 8, 0.9183),
        (64, 8, 0.9834),
        (1000, 8, 0.9990),
        (64, 7, 0.8750),
        (64, 9, 0.9999),
    ],
)
def test_throughput_equals_the_reference_values(tasks: int, threads: int, expected: float) -> None:
    metrics = CyclicQueue(tasks, 1.0, 1 / 8).solve(threads)
    assert metrics.throughput_per_second == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("tasks", "threads"), [(1, 1), (6, 2), (9, 9), (12, 30)])
def test_every_mean_equals_a_dense_solve_of_the_chain(tasks: int, threads: int) -> None:
    throughput, weights = solve_cyclic(
        tasks=tasks, threads=threads, dispatch_rate=3.0, execution_rate=0.7
    )
    queue = CyclicQueue(tasks, 3.0, 0.7)
    metrics = queue.solve(threads)
    assert queue.state_probabilities(threads) == pytest.approx(weights, rel=1e-9)
    assert metrics.throughput_per_second == pytest.approx(throughput, rel=1e-9)
    assert metrics.mean_at_workers == pytest.approx(np.arange(tasks + 1) @ weights, rel=1e-9)


def test_as_many_tasks_as_threads_give_back_the_finite_source_queue() -> None:
    for threads in (1, 3, 8, 40):
        cyclic = CyclicQueue(threads, 5.0, 0.4).solve(threads)
        finite = FiniteSourceMM1(threads, 0.4, 5.0).solve()
        assert cyclic.throughput_per_second == pytest.approx(finite.throughput_per_second)
        assert cyclic.mean_at_dispatcher == pytest.approx(finite.mean_number)


def test_with_many_tasks_the_knee_is_exactly_the_time_ratio() -> None:
    queue = CyclicQueue(50_000, 8.0, 1.0)
    assert queue.knee_threads == 8
    assert queue.solve(7).throughput_per_second == pytest.approx(7.0)
    assert queue.solve(8).throughput_per_second == pytest.approx(8.0, rel=1e-3)
    assert queue.solve(9).throughput_per_second == pytest.approx(8.0)


def test_threads_beyond_the_tasks_add_nothing() -> None:
    curve = CyclicQueue(5, 2.0, 1.0).throughput_curve(9)
    assert curve.shape == (9,)
    assert np.diff(curve[:5]).min() > 0
    assert curve[5:] == pytest.approx([curve[4]] * 4, rel=0)


@pytest.mark.parametrize("dispatch", [1e-12, 1e12])
@pytest.mark.parametrize("execution", [1e-12, 1e12])
def test_extreme_rates_stay_finite_and_below_the_bound(dispatch: float, execution: float) -> None:
    queue = CyclicQueue(3000, dispatch, execution)
    metrics = queue.solve(1024)
    assert metrics.throughput_per_second > 0
    assert metrics.throughput_per_second <= queue.bound_curve(1024)[-1] * (1 + 1e-9)
    assert metrics.mean_running * execution == pytest.approx(metrics.throughput_per_second)


@pytest.mark.parametrize(
    ("tasks", "dispatch", "execution", "name"),
    [
        (0, 1.0, 1.0, "tasks is 0"),
        (3, math.nan, 1.0, "dispatch_rate_per_second is nan"),
        (3, 1.0, -2.0, "execution_rate_per_second is -2.0"),
    ],
)
def test_impossible_queues_are_refused_by_name_and_value_with_a_remedy(
    tasks: int, dispatch: float, execution: float, name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*; give "):
        CyclicQueue(tasks, dispatch, execution)


def test_no_thread_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^threads is 0.*; give at least one thread"):
        CyclicQueue(3, 1.0, 1.0).solve(0)
