"""A measured curve is a function of the workload, the host, the counts and the seed."""

import numpy as np
import pytest

from slimscale.simulate.measure import measure_batches, measure_curve
from slimscale.simulate.workload import Family, Host, Workload
from tests.support.simulated import exponential, time_of, work

LOAD = work(2e-3, 8e-3, 1e-4, contention_linear=0.05)


def test_each_count_is_measured_as_if_alone() -> None:
    """Neither order nor company matter, so that curves can be filled in point by point."""
    together = measure_curve(LOAD, Host(4), (1, 8, 64), seed=1, tasks=500)
    alone = [measure_curve(LOAD, Host(4), (k,), seed=1, tasks=500)[0] for k in (64, 1, 8)]
    assert together.tolist() == [alone[1], alone[2], alone[0]]


def test_seeds_give_different_curves() -> None:
    first, second = (measure_curve(LOAD, Host(4), (8,), seed=s, tasks=500) for s in (1, 2))
    assert first[0] != second[0]


def test_more_tasks_make_a_point_surer() -> None:
    def spread(tasks: int) -> float:
        rates = [measure_curve(LOAD, Host(4), (8,), seed=s, tasks=tasks)[0] for s in range(40)]
        return float(np.std(rates))

    assert spread(200) > 2 * spread(5_000)


def test_the_start_with_all_threads_at_the_dispatcher_is_not_measured() -> None:
    """A thousand tasks that begin together end together; later they are spread over the second."""
    load = Workload(exponential(0.0), time_of(1.0, Family.LOGNORMAL, 0.3), exponential(1e-6))
    found = measure_curve(load, Host(1024), (1000,), seed=1, tasks=100)[0]
    assert found == pytest.approx(1000.0, rel=0.03)


@pytest.mark.parametrize("tasks", [30, 130, 5000])
def test_threads_in_step_are_measured_over_whole_rounds(tasks: int) -> None:
    """Constant times: a hundred threads end their tasks within 10 ms of each other, for ever."""
    load = Workload(
        exponential(0.0),
        time_of(1.0, Family.DETERMINISTIC),
        time_of(1e-4, Family.DETERMINISTIC),
    )
    found = measure_curve(load, Host(128), (100,), seed=1, tasks=tasks)[0]
    assert found == pytest.approx(100 / 1.0001, rel=1e-6)


@pytest.mark.parametrize("quota", [0.25, 0.6, 1.7])
def test_a_quota_is_measured_over_whole_periods(quota: float) -> None:
    """A batch that began or ended inside a period would be off by up to a period's work."""
    load = work(2e-3)
    rates = measure_batches(load, Host(8, quota), 16, seed=1, tasks=100, batches=10)
    assert np.mean(rates) == pytest.approx(quota / 2e-3, rel=0.05)
    assert np.std(rates) / np.mean(rates) < 0.1


def test_blocking_fits_into_the_standstill_of_a_quota() -> None:
    """50 ms of CPU and 50 ms of blocking: half a core's quota costs such a thread nothing, where
    half a core would make each task 150 ms long. Less quota than that spreads it over periods."""
    constant = time_of(50e-3, Family.DETERMINISTIC)
    load = Workload(constant, constant, exponential(0.0))
    for quota, expected in ((0.5, 10.0), (0.25, 5.0)):
        found = measure_curve(load, Host(4, quota), (1,), seed=1, tasks=1000)[0]
        assert found == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(("threads", "tasks"), [((0,), 10), ((5000,), 10), ((1,), 0)])
def test_impossible_questions_are_refused(threads: tuple[int, ...], tasks: int) -> None:
    with pytest.raises(ValueError, match=r"threads|tasks"):
        measure_curve(LOAD, Host(1), threads, seed=1, tasks=tasks)


def test_no_counts_give_an_empty_curve() -> None:
    assert measure_curve(LOAD, Host(1), (), seed=1).shape == (0,)
