"""The plan of measured curves: reproducible, split by family, measured where it matters."""

from collections import Counter

from slimscale.bench.native.plan import KINDS, QUOTAS_CORES, SHAPES, curve_plan, network_of
from slimscale.bench.native.program import load_fields
from slimscale.simulate.workload import Waiting
from slimscale.threads.closed_network import knee_threads

PLAN = curve_plan(seed=3, curves_a_family=5, cores=2)


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert curve_plan(seed=3, curves_a_family=5, cores=2) == PLAN
    assert curve_plan(seed=4, curves_a_family=5, cores=2) != PLAN


def test_no_family_is_both_trained_and_tested_on() -> None:
    splits: dict[str, set[str]] = {}
    for curve in PLAN:
        splits.setdefault(curve.family, set()).add(curve.split)
    assert all(len(found) == 1 for found in splits.values())
    held_out = Counter(
        family.partition("-")[0] for family, s in splits.items() if s == {"held-out"}
    )
    assert held_out == dict.fromkeys(KINDS, 1)


def test_every_family_meets_every_quota() -> None:
    met: dict[str, set[float | None]] = {}
    for curve in PLAN:
        met.setdefault(curve.family, set()).add(curve.quota_cores)
    assert len(met) == len(KINDS) * len(SHAPES)
    assert all(quotas == set(QUOTAS_CORES) for quotas in met.values())


def test_names_tell_curves_apart() -> None:
    assert len({curve.name for curve in PLAN}) == len(PLAN)


def test_each_curve_starts_at_one_thread_and_goes_past_its_knee() -> None:
    for curve in PLAN:
        assert curve.threads[0] == 1
        assert len(curve.threads) >= 6
        most = 16 if curve.workload.waiting is Waiting.SPIN else 96
        load, quota = curve.workload, curve.quota_cores
        own = load.cpu.mean_seconds + load.dispatch.mean_seconds
        reach = 2.0 if quota is None else min(quota, 2.0)
        full = (own + load.blocking.mean_seconds) * reach / own
        knee = min(full, knee_threads(network_of(load, cores=2, quota_cores=quota)))
        assert curve.threads[-1] >= min(2 * knee, most)


def test_every_window_is_whole_quota_periods() -> None:
    for curve in PLAN:
        assert len(curve.seconds) == len(curve.threads)
        for seconds in curve.seconds:
            assert 0.2 <= seconds <= 0.6
            assert abs(seconds * 10 - round(seconds * 10)) < 1e-9


def test_the_program_can_do_every_load_of_the_plan() -> None:
    assert all("cpu=" in load_fields(curve.workload) for curve in PLAN)
