"""Demand by windows: what scaling is told, and that silence is not read as an empty hour."""

import pytest

from slimscale.serving.router.retries import RetryBudget
from slimscale.serving.router.windows import Demand


def test_rates_are_of_the_window_and_of_the_time_that_was_watched() -> None:
    demand = Demand(now=1000.0)
    for second in range(10):
        for _ in range(5):
            demand.arrived(2, now=1000.0 + second)
    assert demand.observed_seconds(60, now=1010.0) == 10.0
    total = demand.totals(60, now=1010.0)
    assert (total.requests, total.rows) == (50, 100)
    assert demand.totals(3, now=1009.5).rows == 30


def test_old_seconds_fall_out_of_the_window_and_out_of_memory() -> None:
    demand = Demand(now=0.0)
    for second in range(5000):
        demand.arrived(1, now=float(second))
    assert demand.totals(60, now=4999.5).rows == 60
    assert demand.totals(100_000, now=4999.5).rows <= 3602


def test_refusals_and_failures_count_against_the_slo_attainment() -> None:
    demand = Demand(now=0.0)
    demand.answered("m", within_slo=True, seconds=0.1, now=1.0)
    demand.answered("m", within_slo=False, seconds=9.0, now=1.0)
    demand.rejected(3, now=1.0)
    demand.failed(now=1.0)
    total = demand.totals(60, now=2.0)
    assert (total.within_slo, total.ended, total.rejected_rows) == (1, 4, 3)


def test_a_percentile_of_the_latency_is_the_window_s_and_rounded_up_by_little() -> None:
    demand = Demand(now=0.0)
    demand.answered("m", within_slo=True, seconds=50.0, now=1.0)  # before the window
    for number in range(1, 101):
        demand.answered("m", within_slo=True, seconds=number / 1000.0, now=100.0)
    for percentile, seconds in ((50, 0.05), (95, 0.095), (99.99, 0.1)):
        told = demand.totals(60, now=101.0).latency_seconds(percentile)
        assert told is not None
        assert seconds <= told <= 1.1 * seconds
    assert demand.totals(60, now=1000.0).latency_seconds(95) is None


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9, float("nan"), float("inf")])
def test_no_latency_is_too_odd_to_be_counted_in_bounded_memory(seconds: float) -> None:
    demand = Demand(now=0.0)
    for number in range(1000):
        demand.answered("m", within_slo=True, seconds=seconds * (1 + number), now=1.0)
    total = demand.totals(60, now=2.0)
    assert total.latencies.total() == 1000
    assert len(total.latencies) <= 193
    assert 0 < (total.latency_seconds(95) or 0) < 2000


def test_the_last_arrival_is_unknown_until_there_was_one() -> None:
    demand = Demand(now=5.0)
    assert demand.last_arrival is None
    demand.arrived(1, now=7.0)
    assert demand.last_arrival == 7.0


def test_a_router_that_has_just_started_divides_by_a_second_at_least() -> None:
    demand = Demand(now=5.0)
    assert demand.observed_seconds(60, now=5.001) == 1.0


def test_retries_run_out_and_are_earned_again_by_requests() -> None:
    budget = RetryBudget(most=2.0, earned_by_request=0.25)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(4):
        budget.earn()
    assert [budget.take(), budget.take()] == [True, False]
    for _ in range(100):
        budget.earn()
    assert [budget.take() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("window", [1.0, 6.0, 60.0, 3600.0])
def test_an_idle_window_is_empty(window: float) -> None:
    assert Demand(now=0.0).totals(window, now=100.0).requests == 0
