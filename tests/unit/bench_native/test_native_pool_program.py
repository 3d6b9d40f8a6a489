"""The native pool itself: built with all warnings as errors, run for a moment, told, asked."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slimscale.bench.native.errors import PoolError
from slimscale.bench.native.program import NativePool, build, load_fields, sample_of
from slimscale.inpod.cgroup import CgroupCpu
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.workload import Family, TimeDistribution, Waiting, Workload
from tests.support.native_curves import workload

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
PATIENCE_SECONDS = 20.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nativepool"))


def until(pool: NativePool, holds: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds(raw := pool.raw()):
        assert time.monotonic() < end, raw
    return raw


@needs_compiler
@pytest.mark.parametrize("waiting", [Waiting.PARK, Waiting.SPIN])
def test_every_task_is_in_the_counter_and_in_both_histograms(
    program: Path, waiting: Waiting
) -> None:
    load = Workload(
        cpu=TimeDistribution(Family.LOGNORMAL, 50e-6, 1.0),
        blocking=TimeDistribution(Family.BIMODAL, 100e-6, 1.0),
        dispatch=TimeDistribution(Family.DETERMINISTIC, 5e-6),
        contention_linear=0.1,
        waiting=waiting,
    )
    with NativePool(program, load, threads=3, seed=1) as pool:
        raw = until(pool, lambda r: r["tasks_total"] >= 200)
        assert raw["threads_applied"] == 3
        assert sum(raw["task"]["counts"]) == raw["tasks_total"]
        assert sum(raw["dispatch"]["counts"]) == raw["tasks_total"]
        assert pool.bounds_seconds == BUCKET_BOUNDS_SECONDS
        # Each task sleeps at least as long as it was told, so at least the mean of many.
        assert raw["blocked_seconds"] / raw["tasks_total"] > 50e-6


@needs_compiler
def test_the_file_is_followed_up_and_down_and_only_what_is_in_effect_is_acknowledged(
    program: Path,
) -> None:
    with NativePool(program, workload(cpu=100e-6, blocking=1e-3), threads=2, seed=1) as pool:
        for count in (5, 1, 3):
            pool.want(count)
            assert pool.raw()["threads_applied"] == count


@needs_compiler
def test_no_more_tasks_run_at_once_than_circulate(program: Path) -> None:
    load = workload(cpu=10e-6, blocking=2e-3, outstanding=2)
    with NativePool(program, load, threads=6, seed=1) as pool:
        before = pool.raw()
        after = until(pool, lambda r: r["tasks_total"] >= before["tasks_total"] + 60)
        elapsed = after["monotonic_seconds"] - before["monotonic_seconds"]
        inside = after["task"]["sum_seconds"] - before["task"]["sum_seconds"]
        # Little: mean tasks inside. Those of before may have ended after, at most two.
        assert inside / elapsed < 2.5
        assert after["tasks_outstanding"] == 2


@needs_compiler
def test_another_load_holds_from_the_next_task_on(program: Path) -> None:
    with NativePool(program, workload(cpu=20e-6, blocking=0.0), threads=1, seed=1) as pool:
        until(pool, lambda r: r["tasks_total"] >= 10)
        pool.set_workload(workload(cpu=20e-6, blocking=3e-3))
        before = until(pool, lambda r: r["blocked_seconds"] > 0)
        after = until(pool, lambda r: r["tasks_total"] >= before["tasks_total"] + 5)
        assert after["blocked_seconds"] - before["blocked_seconds"] > 1e-3


@needs_compiler
def test_a_load_that_it_cannot_read_is_refused_and_the_old_one_stays(program: Path) -> None:
    with NativePool(program, workload(cpu=50e-6, blocking=0.0), threads=1, seed=1) as pool:
        with pytest.raises(PoolError, match="fields are cpu"):
            pool._ask("load cpu=gaussian:1:1")
        before = pool.raw()["tasks_total"]
        until(pool, lambda r: r["tasks_total"] > before)


@needs_compiler
def test_a_pool_that_has_ended_says_so(program: Path) -> None:
    pool = NativePool(program, workload(), threads=1, seed=1)
    pool.close()
    with pytest.raises((PoolError, ValueError)):
        pool.raw()


def test_times_that_the_program_does_not_have_are_refused_before_it_starts() -> None:
    pareto = TimeDistribution(Family.PARETO, 1e-3, 4.0)
    load = Workload(cpu=pareto, blocking=pareto, dispatch=pareto)
    with pytest.raises(ValueError, match="no Pareto times"):
        load_fields(load)


def test_a_sample_has_cumulative_histograms_and_leaves_out_what_the_kernel_does_not_say() -> None:
    raw = {
        "sampled_at_seconds": 10.0,
        "process_start_seconds": 1.0,
        "threads_applied": 2,
        "tasks_total": 3,
        "tasks_outstanding": 514,
        "task": {"counts": [1, 2, 0], "sum_seconds": 0.3},
        "dispatch": {"counts": [3, 0, 0], "sum_seconds": 0.003},
        "task_cpu_seconds": 0.2,
    }
    sample = sample_of(raw, CgroupCpu(usage_seconds=0.25), bounds=(0.1, 0.2), pod_uid="p")
    assert sample.task is not None
    assert sample.task.cumulative_counts == (1.0, 3.0, 3.0)
    assert sample.task.count == 3
    assert sample.task_runqueue_seconds_total is None
    assert sample.cpu_quota_cores is None
    assert sample.cpu_usage_seconds_total == 0.25
