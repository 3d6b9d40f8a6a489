"""OpenMP's rule, the bandit, CPU by percentile, and the oracles."""

import math

import pytest

from slimscale.bench.baselines.bandit import SlidingWindowUCB, log_grid
from slimscale.bench.baselines.cpu_percentile import CpuPercentile, DecayingHistogram
from slimscale.bench.baselines.openmp_dynamic import OpenMPDynamic
from slimscale.bench.baselines.oracle import BestPerPhase, best_static, best_static_over
from slimscale.simulate.workload import Host
from tests.support.bench_cases import curves_of, make_view
from tests.support.bench_pods import pod_view


def test_openmp_takes_its_own_runnable_threads_for_others() -> None:
    rule = OpenMPDynamic()
    assert rule.start(Host(8)) == 8
    busy = make_view(span_seconds=5.0, cpu_used_cores=6.0)
    threads = [rule.choose(busy).threads for _ in range(360)]  # half an hour
    assert threads[0] == 8
    assert threads[-1] == 8 - math.floor(6.0 * (1 - math.exp(-2.0)) + 0.1)


def test_openmp_never_goes_below_one_thread() -> None:
    rule = OpenMPDynamic(load_average=100.0)
    assert rule.choose(make_view(span_seconds=5.0)).threads == 1


def bandit_plays(policy: SlidingWindowUCB, threads: int, *, useful: int, count: int) -> list[int]:
    played = []
    for step in range(count):
        view = pod_view(threads, useful=useful, at_seconds=float(step + 1), falling=0.02)
        threads = policy.choose(view).threads or threads
        played.append(threads)
    return played


def test_the_bandit_plays_the_best_arm_most_and_follows_when_another_becomes_best() -> None:
    policy = SlidingWindowUCB()
    start = policy.start(Host(12))
    played = bandit_plays(policy, start, useful=16, count=200)
    late = played[-60:]
    assert max(set(late), key=late.count) == 16
    later = bandit_plays(policy, played[-1], useful=4, count=200)[-60:]
    assert max(set(later), key=later.count) in {4, 6}


def test_the_grid_is_half_an_octave_wide() -> None:
    assert log_grid(20) == (1, 2, 3, 4, 6, 8, 12, 16, 20)


def test_percentile_is_of_the_weight_and_old_samples_fade() -> None:
    histogram = DecayingHistogram()
    for hour in range(10):
        histogram.add(4.0, weight=1.0, at_seconds=3600.0 * hour)
    assert histogram.percentile_cores(0.9) == pytest.approx(4.0, rel=0.06)
    for hour in range(10):
        histogram.add(1.0, weight=1.0, at_seconds=10 * 86_400.0 + 3600.0 * hour)
    assert histogram.percentile_cores(0.9) == pytest.approx(1.0, rel=0.06)


def test_cpu_by_percentile_never_exceeds_what_the_pod_came_with_and_shrinks_with_use() -> None:
    policy = CpuPercentile()
    assert policy.start(Host(8, 3.5)) == 3
    full = policy.choose(make_view(quota_cores=3.5, cpu_used_cores=3.5))
    assert (full.threads, full.quota_cores) == (3, 3.5)
    policy = CpuPercentile()
    policy.start(Host(8, 3.5))
    low = policy.choose(make_view(quota_cores=3.5, cpu_used_cores=1.0))
    assert low.threads == 1
    assert low.quota_cores == pytest.approx(1.15, rel=0.06)


def test_cpu_by_percentile_adds_no_limit_where_there_is_none() -> None:
    policy = CpuPercentile()
    policy.start(Host(8))
    assert policy.choose(make_view(cpu_used_cores=2.0)).quota_cores is None


def test_best_static_weighs_phases_by_their_length() -> None:
    few, many = (90.0, 80.0, 70.0, 10.0), (10.0, 20.0, 40.0, 80.0)
    assert best_static(curves_of((90.0, few), (10.0, many))) == 1
    assert best_static(curves_of((10.0, few), (90.0, many))) == 8


def test_best_static_of_a_training_set_counts_scenarios_by_share_not_by_tasks() -> None:
    small = curves_of((10.0, (1.0, 2.0, 3.0, 1.0)))
    large = curves_of((10.0, (1000.0, 900.0, 800.0, 100.0)))
    # 4 threads: 1.0 and 0.8 of the best; 1 thread: 0.33 and 1.0
    assert best_static_over([small, large]) == 4
    with pytest.raises(ValueError, match="no training scenario"):
        best_static_over([])


def test_the_best_per_phase_changes_with_the_phase() -> None:
    curves = curves_of((3.0, (9.0, 8.0, 7.0, 1.0)), (3.0, (1.0, 2.0, 4.0, 8.0)))
    policy = BestPerPhase(curves)
    assert policy.start(Host(4)) == 1
    assert [policy.choose(make_view()).threads for _ in range(5)] == [1, 1, 8, 8, 8]
