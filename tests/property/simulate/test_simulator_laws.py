"""Laws that hold in every run, whatever the workload: no CPU from nothing, no time from nowhere."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.domain.contract import ContractSample
from slimscale.simulate.families import draw_workload
from slimscale.simulate.plant import Plant

ROUNDING = 1e-6
TASKS = 2_000


def counters(sample: ContractSample) -> list[float]:
    values = [
        sample.tasks_total,
        sample.task_cpu_seconds_total,
        sample.task_runqueue_seconds_total,
        sample.cpu_usage_seconds_total,
        sample.cpu_periods_total,
        sample.cpu_throttled_periods_total,
        sample.cpu_throttled_seconds_total,
    ]
    assert sample.task is not None
    assert sample.dispatch is not None
    for histogram in (sample.task, sample.dispatch):
        values += [histogram.sum_seconds, *histogram.cumulative_counts]
    assert all(value is not None and math.isfinite(value) for value in values)
    return [value for value in values if value is not None]


def seconds_for(plant: Plant) -> float:
    """Long enough for about so many tasks on all cores, and some quota periods."""
    work = plant.workload
    cost = work.cpu.mean_seconds + work.dispatch.mean_seconds
    return min(TASKS * cost / plant.host.cores, 5.0)


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 10**6), threads=st.integers(1, 256), other=st.integers(1, 256))
def test_no_run_breaks_an_operational_law(index: int, threads: int, other: int) -> None:
    drawn = draw_workload(5, index)
    host, load = drawn.host, drawn.workload
    plant = Plant(load, host, threads=threads, seed=index)
    before, most = counters(plant.sample()), threads
    for step in range(4):
        plant.advance(seconds_for(plant))
        sample = plant.sample()
        after = counters(sample)
        assert all(b >= a for a, b in zip(before, after, strict=True)), "a counter fell"
        before = after
        _check(plant, sample, most)
        if step == 1:
            plant.set_threads(other)
            most = max(most, other)


def _check(plant: Plant, sample: ContractSample, most: int) -> None:
    elapsed, cores = plant.now_seconds, plant.host.cores
    used = sample.cpu_usage_seconds_total or 0.0
    task_cpu = sample.task_cpu_seconds_total or 0.0
    assert sample.task is not None
    assert sample.dispatch is not None
    assert used <= cores * elapsed * (1 + ROUNDING)
    if plant.quota_cores is not None:
        period = plant.host.period_seconds
        periods = math.floor(elapsed / period + ROUNDING) + 1
        assert used <= plant.quota_cores * period * periods * (1 + ROUNDING)
    # What tasks and hand-overs are said to have cost was used; only spinning costs more.
    assert task_cpu + sample.dispatch.sum_seconds <= used * (1 + ROUNDING) + ROUNDING
    # A task's wall time holds its CPU and run-queue time, and a thread runs one task at a time.
    inside = task_cpu + (sample.task_runqueue_seconds_total or 0.0)
    assert inside <= sample.task.sum_seconds * (1 + ROUNDING) + ROUNDING
    assert sample.task.sum_seconds <= most * elapsed * (1 + ROUNDING)
    # One dispatcher: it is held for no longer than time has passed.
    assert sample.dispatch.sum_seconds <= elapsed * (1 + ROUNDING)
    handed, ended = sample.dispatch.count, sample.tasks_total or 0.0
    assert ended <= handed <= ended + most
    throttled = sample.cpu_throttled_seconds_total or 0.0
    assert throttled + used <= cores * elapsed * (1 + ROUNDING)
    assert (sample.cpu_throttled_periods_total or 0.0) <= (sample.cpu_periods_total or 0.0)
