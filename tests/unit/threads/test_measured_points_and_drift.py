"""What was measured in a load overrules the model there; a load that creeps away leaves it behind."""

import math
from dataclasses import replace

import numpy as np
import pytest

from slimscale.threads.calibrate import best_known, through_measured
from slimscale.threads.change import DRIFTED, has_drifted
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.memo import LoadPoint, Memo, Regime, load_memo
from slimscale.threads.predictor import Surface
from tests.support.observations import SyntheticWorkload, drive, make_spec

FLAT = Surface((1.0, 2.0), np.full((2, 32), 100.0), 1e-3)
MINUTE = 12


def test_the_surface_passes_through_the_points_and_keeps_its_shape_between() -> None:
    points = (LoadPoint(4, 2.0, 50.0), LoadPoint(16, 2.0, 200.0))
    moved = through_measured(FLAT, points, cores=2.0).tasks_per_second[1]
    low, high = 50.0 * math.exp(0.05), 200.0 / math.exp(0.05)  # what counts as noise is left alone
    assert moved[3] == pytest.approx(low)
    assert moved[15] == pytest.approx(high)
    assert moved[7] == pytest.approx(math.sqrt(low * high))
    assert moved[0] == pytest.approx(low)
    assert moved[31] == pytest.approx(high)


@pytest.mark.parametrize(
    "points",
    [
        (LoadPoint(4, 2.0, 50.0),),
        (LoadPoint(4, 2.0, 98.0), LoadPoint(16, 2.0, 103.0)),
        (LoadPoint(4, 1.0, 50.0), LoadPoint(16, 1.0, 200.0)),
        (LoadPoint(4, 2.0, 50.0), LoadPoint(64, 2.0, 200.0)),
    ],
    ids=["one point", "within noise", "measured on another CPU", "outside the table"],
)
def test_points_that_say_nothing_change_nothing(points: tuple[LoadPoint, ...]) -> None:
    moved = through_measured(FLAT, points, cores=2.0).tasks_per_second
    assert np.allclose(moved, FLAT.tasks_per_second)


def test_no_correction_promises_more_than_the_cpu_can_pay() -> None:
    dear = Surface((1.0, 2.0), np.full((2, 32), 100.0), 1 / 80)  # 80 tasks/s on 1 CPU, 160 on 2
    points = (LoadPoint(4, 2.0, 100.0), LoadPoint(16, 2.0, 300.0))
    moved = through_measured(dear, points, cores=2.0).tasks_per_second
    assert moved.max() <= 160.0 + 1e-9


def test_repeated_windows_of_one_count_are_averaged() -> None:
    regime = Regime()
    for rate in (100.0, 121.0):
        regime = regime.with_point(LoadPoint(4, 2.0, rate))
    (point,) = regime.points
    assert point.tasks_per_second == pytest.approx(110.0)
    assert point.windows == 2


def _drift(
    memo: Memo,
    cpu: float,
    *,
    blocked: float = 0.0,
    tasks: float = 1e5,
    threads: int = 8,
    at: float = 100.0,
) -> tuple[Memo, str]:
    return has_drifted(
        memo, threads=threads, cpu_seconds=cpu, blocked_seconds=blocked, tasks=tasks,
        started_at_seconds=at, ended_at_seconds=at + 15.0,
    )  # fmt: skip


def test_a_slow_drift_starts_a_new_load_and_drops_what_was_learned() -> None:
    memo = Memo(regime=Regime(ceiling_threads=5, waits_are_real=True))
    memo, said = _drift(memo, 1e-3)
    assert said == ""
    for step in range(1, 5):
        memo, said = _drift(memo, 1e-3 * math.exp(0.9 * DRIFTED * step / 4))
        assert said == ""
    memo, said = _drift(memo, 1e-3 * math.exp(1.1 * DRIFTED))
    assert said == ""
    memo, said = _drift(memo, 1e-3 * math.exp(1.1 * DRIFTED), at=115.0)
    assert "CPU of a task drifted" in said
    assert memo.regime.ceiling_threads is None
    assert memo.regime.waits_are_real  # the same program, a little further on
    assert memo.repredict


def test_a_few_giants_in_one_window_are_no_drift_however_often_it_is_looked_at() -> None:
    memo, _ = _drift(Memo(), 1e-3)
    far = 1e-3 * math.exp(2 * DRIFTED)
    for at in (115.0, 120.0, 125.0):  # they share seconds: the same giants are in all of them
        memo, said = _drift(memo, far, at=at)
        assert said == ""
    memo, said = _drift(memo, 1.05e-3, at=131.0)
    assert said == ""
    memo, said = _drift(memo, far, at=200.0)
    assert said == "", "the giants of before are forgotten"


def test_noise_of_few_tasks_and_another_thread_count_are_no_drift() -> None:
    memo, _ = _drift(Memo(), 1e-3, blocked=5e-3)
    _, said = _drift(memo, 1.8e-3, blocked=5e-3, tasks=50.0)
    assert said == ""
    memo, said = _drift(memo, 1.1e-3, blocked=20e-3, threads=32)
    assert said == ""
    _, said = _drift(memo, 1.1e-3, blocked=20e-3, threads=32)
    assert said == ""


def test_a_load_that_creeps_is_followed() -> None:
    start = NetworkParameters(2e-3, 2e-3, 60e-6, 2.0, contention_linear=0.1)
    plant = SyntheticWorkload(start, threads=4, noise=0.02)
    spec = make_spec(cpu={"limitPolicy": "Keep"})
    memo: dict[str, object] = {}
    for step in range(60):  # the wait grows twentyfold in an hour, 5 % at a time
        plant.truth = replace(start, blocking_seconds=2e-3 * 1.05**step)
        memo = drive(plant, spec, MINUTE // 2, memo=memo, decide=decide)
    assert plant.rate(plant.threads, 2000) >= 0.9 * plant.best_rate(2000)
    assert load_memo(memo)[1] == ""


def test_a_point_that_was_measured_while_something_took_the_cpu_is_dropped_by_the_next() -> None:
    disturbed = LoadPoint(15, 1.5, 98.0)
    regime = Regime().with_point(disturbed).with_point(LoadPoint(17, 1.5, 251.0))
    assert [p.threads for p in regime.points] == [17]
    kept = Regime().with_point(LoadPoint(8, 1.5, 120.0)).with_point(LoadPoint(16, 1.5, 235.0))
    assert [p.threads for p in kept.points] == [8, 16]


PROMISED = np.full(32, 100.0)


@pytest.mark.parametrize(
    ("chosen", "points", "kept"),
    [
        (8, (), 8),
        (8, (LoadPoint(4, 2.0, 97.0),), 4),
        (8, (LoadPoint(4, 2.0, 94.0),), 8),
        (4, (LoadPoint(4, 2.0, 96.0), LoadPoint(6, 2.0, 100.0)), 4),
        (4, (LoadPoint(4, 2.0, 94.0), LoadPoint(6, 2.0, 100.0)), 6),
        (8, (LoadPoint(64, 2.0, 200.0),), 8),
    ],
    ids=[
        "nothing is measured",
        "an untried count promises 3 %",
        "an untried count promises 6 %",
        "a tried count is 4 % behind, and the fewer threads",
        "a tried count is 6 % behind",
        "measured outside of what may be chosen",
    ],
)
def test_the_best_tried_count_is_kept_unless_more_than_the_hysteresis_is_to_be_won(
    chosen: int, points: tuple[LoadPoint, ...], kept: int
) -> None:
    assert best_known(chosen, PROMISED, points, hysteresis=0.05) == kept
