"""What a policy of the benchmark is shown of two samples."""

import math

import pytest

from slimscale.bench.policy import view_between, within
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from tests.support.bench_cases import make_sample, make_workload


def histogram(count: float, sum_seconds: float) -> HistogramSnapshot:
    return HistogramSnapshot((1.0, math.inf), (count, count), sum_seconds)


def test_figures_are_of_the_time_between_the_samples_alone() -> None:
    earlier = make_sample(
        100.0,
        tasks_total=1000.0,
        task=histogram(1000, 50.0),
        dispatch=histogram(1000, 1.0),
        task_cpu_seconds_total=20.0,
        cpu_usage_seconds_total=21.0,
        cpu_periods_total=10.0,
        cpu_throttled_periods_total=9.0,
    )
    later = make_sample(
        110.0,
        threads_applied=6,
        tasks_total=1200.0,
        task=histogram(1200, 54.0),
        dispatch=histogram(1200, 1.1),
        task_cpu_seconds_total=21.0,
        task_runqueue_seconds_total=0.5,
        cpu_usage_seconds_total=26.0,
        cpu_periods_total=110.0,
        cpu_throttled_periods_total=34.0,
        cpu_quota_cores=1.5,
    )
    view = view_between(earlier, later, Host(8, 1.5))
    assert view.tasks_per_second == 20.0
    assert view.task_seconds == pytest.approx(0.020)
    assert view.task_cpu_seconds == pytest.approx(0.005)
    assert view.task_waiting_seconds == pytest.approx(0.020 - 0.005 - 0.0025)
    assert view.dispatch_seconds == pytest.approx(0.0005)
    assert view.cpu_used_cores == pytest.approx(0.5)
    assert view.throttled_ratio == 0.25
    assert view.cores_in_reach == 1.5
    assert view.threads == 6
    assert view.saturated


def test_a_pod_short_of_work_is_not_saturated() -> None:
    view = view_between(make_sample(0.0), make_sample(5.0, tasks_outstanding=3.0), Host(8))
    assert not view.saturated


def test_without_tasks_there_are_no_times_to_speak_of() -> None:
    view = view_between(make_sample(0.0), make_sample(5.0), Host(8))
    assert view.task_seconds is None
    assert view.service_seconds is None
    assert view.window() is None


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (make_sample(0.0), "no time has passed"),
        (make_sample(5.0, process_start_seconds=3.0), "another process"),
        (make_sample(5.0, tasks_total=1.0), "counters ran backwards"),
    ],
)
def test_samples_that_do_not_belong_together_are_refused(later: ContractSample, why: str) -> None:
    earlier = make_sample(0.0, tasks_total=2.0)
    with pytest.raises(ValueError, match="cannot be compared"):
        view_between(earlier, later, Host(8))


def test_the_operators_own_window_says_the_same_as_the_view() -> None:
    host = Host(4, 2.0)
    plant = Plant(make_workload(), host, threads=8, seed=3)
    plant.advance(5.0)
    earlier = plant.sample()
    plant.advance(15.0)
    view = view_between(earlier, plant.sample(), host)
    window = view.window()
    assert window is not None
    assert window.tasks_per_second == pytest.approx(view.tasks_per_second)
    assert window.task_cpu_seconds == pytest.approx(view.task_cpu_seconds)
    assert window.cpu_used_cores == pytest.approx(view.cpu_used_cores)


@pytest.mark.parametrize(
    ("wanted", "given"),
    [(0.2, 1), (7.6, 8), (1e9, 256), (math.inf, 256), (math.nan, 1), (-3.0, 1)],
)
def test_whatever_a_policy_wants_it_gets_a_count_within_bounds(wanted: float, given: int) -> None:
    assert within(wanted) == given
