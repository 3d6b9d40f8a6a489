"""Measured curves survive being written small, and read as the operator would have seen them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slimscale.bench.native.dataset import load_curves, load_machine, write_dataset
from slimscale.bench.native.plan import curve_plan
from slimscale.bench.native.sweep import curve_line, known_curves, point_between
from slimscale.inpod.cgroup import CgroupCpu
from slimscale.simulate.workload import Waiting
from tests.support.native_curves import curve, measured, point, workload


def raw_file(folder: Path) -> Path:
    raw = folder / "raw.jsonl"
    lines = []
    for of in (curve(), curve(workload(outstanding=6), name="bounded-exponential-0")):
        points = [point(of, count, repeat=r) for r in range(3) for count in of.threads]
        lines.append(json.dumps(curve_line(of, points)))
    raw.write_text("\n".join(lines) + "\n")
    return raw


def test_what_was_measured_comes_back(tmp_path: Path) -> None:
    assert write_dataset(raw_file(tmp_path), tmp_path / "data") == 2
    bounded, plain = load_curves(tmp_path / "data")
    assert plain.curve == curve()
    assert bounded.curve.workload.outstanding == 6
    expected = measured(curve(), factors=(1.0, 1.0, 1.0))
    assert plain.rates == pytest.approx(expected.rates)
    assert plain.histograms == expected.histograms
    assert load_machine(tmp_path / "data")["curves"] == 2


def test_packing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    raw = raw_file(tmp_path)
    write_dataset(raw, tmp_path / "a")
    write_dataset(raw, tmp_path / "b")
    for name in ("curves.csv.gz", "points.csv.gz", "histograms.csv.gz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_curve_that_a_crash_cut_off_is_measured_again(tmp_path: Path) -> None:
    raw = raw_file(tmp_path)
    text = raw.read_text()
    raw.write_text(text[: len(text) - 50])
    assert known_curves(raw) == {"mixed-exponential-0"}
    assert known_curves(tmp_path / "none.jsonl") == set()


def test_the_window_has_the_means_that_were_measured() -> None:
    of = measured()
    window = of.window_at(8)
    assert window is not None
    assert window.threads == 8
    assert window.tasks_per_second == pytest.approx(of.rates[3], rel=0.01)
    assert window.task_cpu_seconds == pytest.approx(1e-3)
    assert window.dispatch_seconds == pytest.approx(50e-6)
    assert window.cpu_quota_cores == 2.0
    assert window.saturated


def test_a_bounded_load_is_not_taken_for_saturated_beyond_its_bound() -> None:
    of = measured(curve(workload(outstanding=6)))
    below, beyond = of.window_at(4), of.window_at(16)
    assert below is not None
    assert beyond is not None
    assert below.saturated
    assert not beyond.saturated


def test_between_measured_counts_the_model_gives_the_bend_and_the_measurement_the_height() -> None:
    load = replace(workload(), waiting=Waiting.SPIN)  # these are not corrected for company
    of = measured(curve(load), factors=(0.9, 0.9, 0.9))
    fine = measured(curve(load, threads=tuple(range(1, 33))), factors=(0.9, 0.9, 0.9))
    for count in (1, 3, 8, 12, 23, 32):
        assert of.rate_at(count) == pytest.approx(fine.rates[count - 1], rel=0.01)
    assert of.rate_at(1000) == pytest.approx(of.rates[-1])


def test_tasks_that_came_out_longer_by_chance_do_not_count_as_slowness() -> None:
    of = measured(factors=(1.0, 1.0, 1.0))
    longer = tuple(
        replace(p, tasks=round(p.tasks * 0.8), drawn_cpu_seconds=p.drawn_cpu_seconds * 0.8 * 1.25)
        if (p.repeat, p.threads) == (2, 16)  # the CPU is full there: 1.25 times the work a task
        else p
        for p in of.points
    )
    unlucky = replace(of, points=longer)
    assert unlucky.raw_repeats[4, 2] == pytest.approx(0.8 * of.rates[4], rel=0.01)
    assert unlucky.repeats[4, 2] == pytest.approx(of.rates[4], rel=0.04)


def test_cpu_that_others_took_is_not_the_loads_own_slowness() -> None:
    load = workload(blocking=0.0, dispatch=20e-6)
    of = measured(curve(load, quota_cores=None), factors=(1.0,))
    halved = tuple(
        replace(
            p,
            tasks=round(p.tasks * 0.6),
            task_cpu_seconds=p.task_cpu_seconds * 0.6,
            cpu_usage_seconds=(p.cpu_usage_seconds or 0.0) * 0.6,
            drawn_cpu_seconds=p.drawn_cpu_seconds * 0.6,
            drawn_dispatch_seconds=p.drawn_dispatch_seconds * 0.6,
            dispatch_seconds=p.dispatch_seconds * 0.6,
            task_runqueue_seconds=p.threads - (p.task_cpu_seconds + p.dispatch_seconds) * 0.6,
        )
        for p in of.points
    )
    disturbed = replace(of, points=halved)
    assert disturbed.raw_repeats == pytest.approx(0.6 * of.raw_repeats, rel=0.01)
    assert disturbed.rates == pytest.approx(of.rates, rel=0.03)
    quiet = replace(of, points=of.points)
    assert quiet.rates == pytest.approx(quiet.raw_repeats[:, 0], rel=0.03)


def test_a_standstill_of_the_quota_is_the_loads_own() -> None:
    load = workload(blocking=0.0, dispatch=20e-6)
    of = measured(curve(load, quota_cores=1.0), factors=(1.0,))
    halved = tuple(
        replace(
            p,
            tasks=round(p.tasks * 0.7),
            drawn_cpu_seconds=p.drawn_cpu_seconds * 0.7,
            drawn_dispatch_seconds=p.drawn_dispatch_seconds * 0.7,
            throttled_periods=4,
        )
        for p in of.points
        if p.threads > 1
    )
    throttled = replace(of, points=halved)
    assert throttled.repeats == pytest.approx(throttled.raw_repeats, rel=0.01)


def test_a_point_is_what_grew_between_two_looks() -> None:
    raw = {
        "monotonic_seconds": 5.0, "threads_applied": 2, "tasks_total": 10, "blocked_seconds": 1.0,
        "drawn_cpu_seconds": 0.4, "drawn_blocking_seconds": 0.9, "drawn_dispatch_seconds": 0.1,
        "task_cpu_seconds": 0.5, "task": {"counts": [4, 6], "sum_seconds": 2.0},
        "dispatch": {"counts": [10, 0], "sum_seconds": 0.1},
    }  # fmt: skip
    later = {
        "monotonic_seconds": 5.5, "threads_applied": 2, "tasks_total": 30, "blocked_seconds": 3.0,
        "drawn_cpu_seconds": 0.9, "drawn_blocking_seconds": 2.8, "drawn_dispatch_seconds": 0.3,
        "task_cpu_seconds": 1.0, "task": {"counts": [14, 16], "sum_seconds": 6.0},
        "dispatch": {"counts": [30, 0], "sum_seconds": 0.3},
    }  # fmt: skip
    seen = point_between(
        (raw, CgroupCpu(usage_seconds=1.0, periods=10, throttled_periods=2)),
        (later, CgroupCpu(usage_seconds=1.7, periods=15, throttled_periods=3)),
        repeat=0,
        steal_seconds=0.0,
        load_average=1.0,
    )
    assert (seen.tasks, seen.seconds, seen.task_counts) == (20, 0.5, (10, 10))
    assert seen.cpu_usage_seconds == pytest.approx(0.7)
    assert (seen.periods, seen.throttled_periods) == (5, 1)
    assert seen.task_runqueue_seconds is None
    assert seen.throttled_seconds is None


def test_the_committed_curves_are_those_of_the_plan() -> None:
    committed = {m.curve.name: m for m in load_curves()}
    plan = curve_plan(seed=20261130, curves_a_family=8, cores=2)
    assert len(committed) >= 200
    for planned in plan:
        if (found := committed.get(planned.name)) is not None:
            assert found.threads == planned.threads
            assert found.curve.quota_cores == planned.quota_cores
            assert found.repeats.shape[1] == 3
            assert (found.rates > 0).all()
