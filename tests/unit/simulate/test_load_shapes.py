"""Loads change when and how their names say."""

import math
from itertools import pairwise

import pytest

from slimscale.simulate.load import (
    LoadScenario,
    between,
    bursts,
    drift,
    mixture,
    mixtures,
    ramps,
    scaled,
    steps,
)
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import Family, Host
from tests.support.simulated import work

HOST = Host(4, 2.0)
SMALL, LARGE = work(1e-3, 4e-3, 1e-4), work(16e-3, 1e-3, 1e-4)


def all_shapes(seed: int) -> list[LoadScenario]:
    return [
        steps(HOST, [SMALL, LARGE, SMALL], seed=seed),
        ramps(HOST, [SMALL, LARGE], seed=seed),
        bursts(HOST, SMALL, LARGE, seed=seed),
        drift(HOST, SMALL, seed=seed),
        mixtures(HOST, SMALL, LARGE, seed=seed),
    ]


def test_a_seed_gives_the_same_scenario_and_another_one_another() -> None:
    assert all_shapes(3) == all_shapes(3)
    assert all(a != b for a, b in zip(all_shapes(3), all_shapes(4), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_phases_begin_in_order_and_before_the_end(seed: int) -> None:
    for scenario in all_shapes(seed):
        begins = [at for at, _ in scenario.phases]
        assert begins[0] == 0.0
        assert all(a < b for a, b in pairwise([*begins, scenario.duration_seconds]))


def test_a_ramp_goes_from_one_load_to_the_next_in_small_steps() -> None:
    loads = [workload for _, workload in ramps(HOST, [SMALL, LARGE], seed=1).phases]
    assert loads[0] == SMALL
    assert loads[-1].cpu.mean_seconds == pytest.approx(LARGE.cpu.mean_seconds)
    ratios = [b.cpu.mean_seconds / a.cpu.mean_seconds for a, b in pairwise(loads)]
    assert ratios == pytest.approx([16 ** (1 / 10)] * 10)


def test_bursts_come_and_go() -> None:
    loads = [workload for _, workload in bursts(HOST, SMALL, LARGE, seed=1, count=3).phases]
    assert loads == [SMALL, LARGE, SMALL, LARGE, SMALL, LARGE, SMALL]


def test_drift_moves_the_ratio_of_task_to_dispatch_time_about_its_base() -> None:
    logs = [
        math.log(workload.ratio / SMALL.ratio)
        for seed in range(20)
        for _, workload in drift(HOST, SMALL, seed=seed, spread=1.0).phases[5:]
    ]
    assert abs(sum(logs) / len(logs)) < 0.3
    assert 0.7 < (sum(x * x for x in logs) / len(logs)) ** 0.5 < 1.3
    assert all(
        workload.dispatch == SMALL.dispatch for _, workload in drift(HOST, SMALL, seed=1).phases
    )


def test_a_mixture_costs_what_its_tasks_cost() -> None:
    mixed = mixture(SMALL, LARGE, 0.25)
    assert mixed.cpu.family is Family.BIMODAL
    assert mixed.cpu.mean_seconds == pytest.approx(0.75 * 1e-3 + 0.25 * 16e-3)
    # 0.75 * 2*1^2 + 0.25 * 2*16^2 over 4.75^2, less 1
    assert mixed.cpu.squared_variation == pytest.approx(129.5 / 4.75**2 - 1)
    rate = measure_curve(mixed, Host(1), (8,), seed=1, tasks=20_000)[0]
    assert rate == pytest.approx(1 / (4.75e-3 + 1e-4), rel=0.05)


def test_between_two_loads_the_ends_are_the_loads() -> None:
    for share, end in ((0.0, SMALL), (1.0, LARGE)):
        found = between(SMALL, LARGE, share)
        assert found.blocking.mean_seconds == pytest.approx(end.blocking.mean_seconds)
        assert found.waiting is end.waiting


def test_what_one_load_lacks_fades_in() -> None:
    assert between(SMALL, work(1e-3), 0.5).blocking.mean_seconds == pytest.approx(2e-3)


def test_scaling_tasks_keeps_their_dispatch() -> None:
    longer = scaled(SMALL, task=3.0)
    assert longer.ratio == pytest.approx(3 * SMALL.ratio)
    assert longer.dispatch == SMALL.dispatch


def test_the_load_of_a_moment_is_the_last_that_began() -> None:
    scenario = LoadScenario("x", HOST, ((0.0, SMALL), (10.0, LARGE)), 20.0)
    assert [scenario.workload_at(t) for t in (0.0, 9.9, 10.0, 99.0)] == [SMALL, SMALL, LARGE, LARGE]


@pytest.mark.parametrize(
    "phases",
    [(), ((1.0, SMALL),), ((0.0, SMALL), (0.0, LARGE)), ((0.0, SMALL), (30.0, LARGE))],
    ids=["none", "late start", "two at once", "after the end"],
)
def test_phases_out_of_order_are_refused(phases: tuple[tuple[float, object], ...]) -> None:
    with pytest.raises(ValueError, match="phase"):
        LoadScenario("x", HOST, phases, 20.0)  # type: ignore[arg-type]
