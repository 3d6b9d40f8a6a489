"""What the benchmark runs on."""

import numpy as np
import pytest

from slimscale.bench.curves import curve_of, measure_phases
from slimscale.bench.loads import KINDS, Shape, draw_parts
from slimscale.bench.policy import MAX_THREADS
from slimscale.bench.scenarios import (
    CORES,
    FAMILIES,
    RATE_PER_SECOND,
    SHAPES,
    quick_suite,
    shape_of,
    steady_hours,
    suite,
    training_scenarios,
)
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import Family, Host


def test_every_host_meets_every_shape_and_every_family() -> None:
    names = [s.name for s in suite(1).scenarios]
    assert len(set(names)) == 60
    for cores in CORES:
        here = [name for name in names if f"-c{cores}-" in name]
        assert {shape_of(name) for name in here} == set(SHAPES)
        assert {name.rsplit("-", 1)[1] for name in here} == {f.value for f in FAMILIES}
    for shape in SHAPES:
        of_shape = [name for name in names if shape_of(name) == shape]
        assert {name.rsplit("-", 1)[1] for name in of_shape} == {f.value for f in FAMILIES}


def test_half_of_the_scenarios_have_a_quota_below_their_cores() -> None:
    quotas = [s.host.quota_cores for s in suite(1).scenarios if s.host.quota_cores is not None]
    assert len(quotas) == 30
    assert all(s.host.quota_cores is None or s.host.quota_cores < s.host.cores
               for s in suite(1).scenarios)  # fmt: skip


def test_a_seed_gives_its_scenarios_again_and_another_gives_others() -> None:
    assert suite(3) == suite(3)
    assert quick_suite(3) == quick_suite(3)
    ours, others = suite(3).scenarios, suite(4).scenarios
    assert not {s.phases for s in ours} & {s.phases for s in others}


def test_loads_to_train_on_are_never_those_to_test_on() -> None:
    tested = {s.phases for s in suite(1).scenarios}
    trained = {s.phases for host in (Host(8), Host(8, 2.0)) for s in training_scenarios(host, 1)}
    assert len(trained) == 4
    assert not tested & trained


def test_a_drift_has_small_steps_and_wanders() -> None:
    for scenario in suite(1).scenarios:
        if shape_of(scenario.name) != "drift":
            continue
        ratios = np.log([workload.ratio for _, workload in scenario.phases])
        assert np.abs(np.diff(ratios)).max() < 0.6
        assert ratios.max() - ratios.min() > 0.5


def test_a_wider_drift_wanders_further_and_changes_nothing_else() -> None:
    for usual, wide in zip(suite(1).scenarios, suite(1, drift_spread=2.0).scenarios, strict=True):
        if shape_of(usual.name) != "drift":
            assert usual == wide
            continue
        reach, reach_wide = (
            float(np.ptp(np.log([w.ratio for _, w in s.phases]))) for s in (usual, wide)
        )
        assert reach_wide == pytest.approx(2.0 * reach, rel=0.01)


def test_steady_hours_have_one_load_and_last_an_hour() -> None:
    for scenario in steady_hours(1).scenarios:
        assert len(scenario.phases) == 1
        assert scenario.duration_seconds == 3600.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cores", [2.0, 16.0])
def test_each_kind_of_load_does_about_the_wanted_rate_within_the_bound_on_threads(
    kind: str, cores: float
) -> None:
    rng = np.random.default_rng(5)
    host = Host(round(cores))
    for _ in range(3):
        parts = draw_parts(kind, rate=RATE_PER_SECOND, cores=cores, rng=rng)
        workload = parts.workload(Shape.of(Family.EXPONENTIAL))
        grid, rates = curve_of(workload, host, seed=1, tasks=1000)
        assert 0.3 * RATE_PER_SECOND <= rates.max() <= 1.35 * RATE_PER_SECOND
        assert grid[int(np.argmax(rates >= 0.95 * rates.max()))] < 0.7 * MAX_THREADS


def test_the_kinds_need_very_different_thread_counts() -> None:
    rng = np.random.default_rng(5)
    best = {}
    for kind in KINDS:
        parts = draw_parts(kind, rate=RATE_PER_SECOND, cores=8.0, rng=rng)
        workload = parts.workload(Shape.of(Family.EXPONENTIAL))
        grid, rates = curve_of(workload, Host(8), seed=1, tasks=500)
        best[kind] = grid[int(np.argmax(rates >= 0.97 * rates.max()))]
    assert best["light"] <= 2
    assert best["computing"] in range(7, 15)
    assert best["blocking"] > 15


def test_contention_makes_too_many_threads_cost_throughput() -> None:
    parts = draw_parts("contended", rate=100.0, cores=8.0, rng=np.random.default_rng(2))
    workload = parts.workload(Shape.of(Family.EXPONENTIAL))
    _, rates = curve_of(workload, Host(8), seed=1, tasks=500)
    assert rates[-1] < 0.7 * rates.max()


def test_a_curve_is_that_of_the_simulator_and_equal_phases_share_theirs() -> None:
    scenario = next(s for s in quick_suite(1).scenarios if shape_of(s.name) == "bursts")
    curves = measure_phases(scenario, seed=3, tasks=400)
    assert np.array_equal(curves.rates[0], curves.rates[2])
    phase = 1
    top = int(np.argmax(curves.rates[phase]))
    again = measure_curve(
        scenario.phases[phase][1], scenario.host, (curves.threads[top],), seed=9, tasks=4000
    )
    assert curves.rates[phase][top] == pytest.approx(again[0], rel=0.12)
