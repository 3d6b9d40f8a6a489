"""What a simulated pod serves is what a real one would: counters, quota, threads, time."""

from dataclasses import replace

import pytest

from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Family, Host, Waiting, Workload
from tests.support.simulated import exponential, time_of, work


def after(plant: Plant, seconds: float) -> ContractSample:
    plant.advance(seconds)
    return plant.sample()


def mean(histogram: HistogramSnapshot | None) -> float:
    assert histogram is not None
    return histogram.sum_seconds / histogram.count


def number(value: float | None) -> float:
    assert value is not None
    return value


def test_a_seed_gives_the_same_pod_bit_by_bit() -> None:
    load = work(1e-3, 3e-3, 1e-4)
    first, second = (Plant(load, Host(2, 1.5), threads=6, seed=9) for _ in range(2))
    other = Plant(load, Host(2, 1.5), threads=6, seed=10)
    for seconds in (0.3, 0.7, 1.1):
        other.advance(seconds)  # in between: pods must not share anything
        assert after(first, seconds) == after(second, seconds)
    assert first.sample() != replace(other.sample(), pod_uid="plant-0")


def test_one_long_step_is_as_good_as_many_short_ones() -> None:
    load = work(1e-3, 3e-3, 1e-4)
    long, short = (Plant(load, Host(2, 1.5), threads=6, seed=9) for _ in range(2))
    long.advance(5.0)
    for _ in range(500):
        short.advance(0.01)
    assert short.now_seconds == pytest.approx(5.0)
    assert short.tasks_done == pytest.approx(long.tasks_done, rel=0.02)


def test_a_quota_is_spent_and_its_throttling_counted_as_the_kernel_counts() -> None:
    """Four busy cores spend half a core's quota in an eighth of each period, then all four stand."""
    plant = Plant(work(5e-3), Host(4, 0.5), threads=8, seed=1)
    sample = after(plant, 10.0)
    assert sample.cpu_usage_seconds_total == pytest.approx(5.0, rel=1e-6)
    assert sample.cpu_periods_total == pytest.approx(100, abs=1)
    assert sample.cpu_throttled_periods_total == pytest.approx(100, abs=1)
    assert sample.cpu_throttled_seconds_total == pytest.approx(4 * 10.0 * (1 - 0.125), rel=0.01)


def test_a_quota_that_is_not_reached_throttles_nothing() -> None:
    plant = Plant(work(1e-3, 9e-3), Host(4, 2.0), threads=4, seed=1)
    sample = after(plant, 10.0)
    assert sample.cpu_throttled_periods_total == 0
    assert sample.cpu_throttled_seconds_total == 0
    assert number(sample.cpu_periods_total) >= 99


def test_without_a_quota_no_periods_are_counted() -> None:
    sample = after(Plant(work(1e-3), Host(2), threads=2, seed=1), 2.0)
    assert sample.cpu_quota_cores is None
    assert sample.cpu_periods_total == 0


def test_a_new_quota_holds_from_then_on() -> None:
    plant = Plant(work(5e-3), Host(4, 0.5), threads=8, seed=1)
    before = after(plant, 5.0)
    plant.set_quota(2.0)
    later = after(plant, 5.0)
    used = number(later.cpu_usage_seconds_total) - number(before.cpu_usage_seconds_total)
    assert used == pytest.approx(10.0, rel=0.01)
    assert later.cpu_quota_cores == 2.0
    plant.set_quota(None)
    last = after(plant, 5.0)
    assert number(last.cpu_usage_seconds_total) - number(
        later.cpu_usage_seconds_total
    ) == pytest.approx(20.0, rel=0.01)


def test_a_task_on_a_free_machine_takes_its_cpu_and_blocking_time() -> None:
    sample = after(Plant(work(2e-3, 6e-3, 1e-4), Host(64), threads=8, seed=2), 100.0)
    tasks = number(sample.tasks_total)
    assert mean(sample.task) == pytest.approx(8e-3, rel=0.02)
    assert number(sample.task_cpu_seconds_total) / tasks == pytest.approx(2e-3, rel=0.02)
    assert number(sample.task_runqueue_seconds_total) / tasks < 1e-9
    assert mean(sample.dispatch) == pytest.approx(1e-4, rel=0.02)


def test_waiting_for_a_cpu_and_for_the_quota_is_run_queue_time() -> None:
    """Wall = CPU + run queue + blocking, on short cores and under a quota alike."""
    for host in (Host(1), Host(4, 0.7)):
        sample = after(Plant(work(2e-3, 6e-3, 1e-5), host, threads=12, seed=2), 200.0)
        tasks = number(sample.tasks_total)
        parts = number(sample.task_cpu_seconds_total) + number(sample.task_runqueue_seconds_total)
        assert mean(sample.task) == pytest.approx(parts / tasks + 6e-3, rel=0.02)
        assert number(sample.task_runqueue_seconds_total) / tasks > 2e-3


def test_dispatch_is_served_without_the_wait_for_it_and_without_the_hand_over() -> None:
    """What a program can measure inside its lock; the crowd's slowing is in it."""
    load = work(0.0, 4e-3, 1e-3)
    crowded = after(Plant(load, Host(64), threads=16, seed=2), 100.0)
    assert mean(crowded.dispatch) == pytest.approx(1e-3, rel=0.02)
    handed = after(
        Plant(replace(load, contention_handover=2.0), Host(64), threads=16, seed=2), 99.0
    )
    assert mean(handed.dispatch) == pytest.approx(1e-3, rel=0.02)
    assert number(handed.tasks_total) == pytest.approx(99.0 / 3e-3, rel=0.03)
    slowed = after(Plant(replace(load, contention_linear=0.1), Host(64), threads=16, seed=2), 100.0)
    assert mean(slowed.dispatch) > 1.8e-3


def test_spinning_burns_the_cpu_that_parking_leaves() -> None:
    parked = work(1e-3, 0.0, 2e-3)
    spun = replace(parked, waiting=Waiting.SPIN)
    use = [
        number(after(Plant(load, Host(4), threads=8, seed=2), 20.0).cpu_usage_seconds_total) / 20
        for load in (parked, spun)
    ]
    assert use[0] == pytest.approx(1.5, rel=0.03)
    assert use[1] == pytest.approx(4.0, rel=1e-6)


def test_histograms_have_the_bounds_that_pods_serve_and_count_every_task() -> None:
    sample = after(Plant(work(1e-3, 1e-3, 1e-5), Host(2), threads=4, seed=2), 10.0)
    for histogram in (sample.task, sample.dispatch):
        assert histogram is not None
        assert histogram.upper_bounds_seconds[:-1] == BUCKET_BOUNDS_SECONDS
        assert list(histogram.cumulative_counts) == sorted(histogram.cumulative_counts)
    assert sample.task is not None
    assert sample.task.count == sample.tasks_total


def test_a_time_on_a_bound_is_in_the_bucket_below_it() -> None:
    """As Prometheus wants it (le), and as the recorder does it."""
    load = Workload(exponential(0.0), time_of(0.25, Family.DETERMINISTIC), exponential(0.0))
    sample = after(Plant(load, Host(1), threads=1, seed=1), 0.3)
    assert sample.task is not None
    at = sample.task.upper_bounds_seconds.index(0.25)
    assert sample.task.cumulative_counts[at - 1 : at + 1] == (0.0, 1.0)


def test_surplus_threads_finish_their_task_and_are_acknowledged_only_then() -> None:
    load = Workload(exponential(0.0), time_of(1.0, Family.DETERMINISTIC), exponential(0.0))
    plant = Plant(load, Host(4), threads=8, seed=1)
    plant.advance(0.5)
    plant.set_threads(2)
    assert plant.threads == 2
    assert plant.sample().threads_applied == 8
    sample = after(plant, 0.6)
    assert sample.threads_applied == 2
    assert sample.tasks_total == 8
    assert after(plant, 1.0).tasks_total == 10


def test_threads_that_wait_for_the_dispatcher_leave_without_a_task() -> None:
    plant = Plant(work(0.0, 1e-3, 10e-3), Host(4), threads=64, seed=1)
    plant.advance(1.0)
    plant.set_threads(1)
    assert after(plant, 0.5).threads_applied == 1


def test_more_threads_start_at_once() -> None:
    load = Workload(exponential(0.0), time_of(1.0, Family.DETERMINISTIC), exponential(0.0))
    plant = Plant(load, Host(4), threads=2, seed=1)
    plant.advance(0.5)
    plant.set_threads(6)
    assert plant.sample().threads_applied == 6
    assert after(plant, 1.2).tasks_total == 6


def test_outstanding_tells_whether_work_waits() -> None:
    load = work(1e-3, 5e-3, 1e-5)
    busy = Plant(load, Host(2), threads=8, seed=1).sample()
    assert number(busy.tasks_outstanding) >= 8
    short = Plant(replace(load, outstanding=3), Host(2), threads=8, seed=1)
    sample = after(short, 20.0)
    assert sample.tasks_outstanding == 3
    assert sample.threads_applied == 8
    three = after(Plant(load, Host(2), threads=3, seed=1), 20.0)
    assert number(sample.tasks_total) == pytest.approx(number(three.tasks_total), rel=0.02)


def test_a_new_load_changes_what_tasks_cost_and_keeps_the_counters() -> None:
    plant = Plant(work(1e-3, 0.0, 1e-5), Host(2), threads=2, seed=1)
    before = after(plant, 5.0)
    plant.set_workload(work(10e-3, 0.0, 1e-5))
    later = after(plant, 50.0)
    tasks = number(later.tasks_total) - number(before.tasks_total)
    cpu = number(later.task_cpu_seconds_total) - number(before.task_cpu_seconds_total)
    assert cpu / tasks == pytest.approx(10e-3, rel=0.05)


def test_a_load_may_lose_its_dispatcher_while_threads_queue_there() -> None:
    plant = Plant(work(0.0, 1e-3, 10e-3), Host(4), threads=16, seed=1)
    before = after(plant, 1.0)
    plant.set_workload(work(0.0, 1e-3))
    later = after(plant, 1.0)
    assert number(later.tasks_total) - number(before.tasks_total) == pytest.approx(16e3, rel=0.05)


def test_the_clock_starts_where_it_is_told() -> None:
    plant = Plant(work(1e-3), Host(1), threads=1, seed=1, start_seconds=1000.0, pod_uid="a")
    sample = after(plant, 2.0)
    assert (sample.sampled_at_seconds, sample.process_start_seconds) == (1002.0, 1000.0)
    assert sample.pod_uid == "a"


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_impossible_thread_counts_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        Plant(work(1e-3), Host(1), threads=threads, seed=1)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="seconds"):
        Plant(work(1e-3), Host(1), threads=1, seed=1).advance(-1.0)


def test_a_quota_below_a_millicore_is_refused() -> None:
    with pytest.raises(ValueError, match="cores"):
        Plant(work(1e-3), Host(1), threads=1, seed=1).set_quota(0.0)
