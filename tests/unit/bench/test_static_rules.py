"""Rules that set a thread count once."""

import pytest

from slimscale.bench.baselines.analytic import PredictOnce, fewest_within
from slimscale.bench.baselines.formula import Goetz, Ratio
from slimscale.bench.baselines.static import Fixed, FloorOfQuota, Unset
from slimscale.bench.policy import view_between
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host
from tests.support.bench_cases import make_view, make_workload


@pytest.mark.parametrize(
    ("host", "unset", "floor"),
    [(Host(8), 8, 8), (Host(8, 2.9), 8, 2), (Host(8, 0.5), 8, 1), (Host(2, 6.0), 2, 2)],
)
def test_unset_follows_the_cores_and_floor_the_quota(host: Host, unset: int, floor: int) -> None:
    assert Unset().start(host) == unset
    assert FloorOfQuota().start(host) == floor
    assert Fixed("fixed-16", threads=16).start(host) == 16


def test_ratio_is_task_over_dispatch_without_the_wait_for_a_cpu() -> None:
    # 10 ms wall, 2 ms of it queueing for a CPU: Z = 8 ms, S = 0.5 ms
    view = make_view(task_runqueue_seconds=0.002)
    assert Ratio("r").choose(view).threads == 16
    assert Ratio("1+r", extra=1.0).choose(view).threads == 17


def test_goetz_is_cores_times_one_plus_wait_over_compute() -> None:
    # 7.5 ms waiting, 2.5 ms computing: 4 threads a core
    assert Goetz("goetz").choose(make_view()).threads == 32
    assert Goetz("goetz").choose(make_view(quota_cores=1.5)).threads == 6
    assert Goetz("goetz", utilisation=0.5).choose(make_view()).threads == 16


def test_a_rule_measures_once_and_keeps_its_count_when_the_load_changes() -> None:
    rule = Ratio("r")
    first = rule.choose(make_view()).threads
    assert rule.choose(make_view(task_seconds=1.0)).threads == first


def test_a_rule_measures_every_window_where_it_is_told_to() -> None:
    rule = Ratio("r", every_window=True)
    first = rule.choose(make_view()).threads
    assert rule.choose(make_view(task_seconds=0.1)).threads != first


def test_a_rule_waits_for_a_window_with_work_in_it() -> None:
    rule = Ratio("r")
    empty = make_view(task_seconds=None, task_cpu_seconds=None, dispatch_seconds=None)
    assert rule.choose(empty).threads is None
    assert rule.choose(make_view()).threads == 20


def test_the_analytic_model_asked_once_is_near_the_simulated_best() -> None:
    host, workload = Host(4), make_workload(cpu_seconds=0.010, blocking_seconds=0.050)
    plant = Plant(workload, host, threads=4, seed=5)
    earlier = plant.sample()
    plant.advance(15.0)
    chosen = PredictOnce().choose(view_between(earlier, plant.sample(), host)).threads
    assert chosen is not None
    rates = measure_curve(workload, host, (chosen, 64), seed=1, tasks=8000)
    assert rates[0] >= 0.92 * rates[1]
    assert chosen < 50


def test_the_fewest_threads_near_the_top_are_chosen() -> None:
    assert fewest_within([1.0, 2.0, 2.92, 3.0, 2.9], 0.03) == 3
    assert fewest_within([1.0, 2.0, 2.90, 3.0, 2.9], 0.03) == 4
