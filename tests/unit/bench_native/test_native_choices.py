"""What each way of choosing would have cost on a curve, and what a machine adds to a load."""

from dataclasses import replace

import numpy as np
import pytest

from slimscale.bench.native.choices import (
    best_of_curve,
    fixed_threads,
    loss,
    noise_floor,
    operated,
)
from slimscale.bench.native.models import (
    NO_COSTS,
    MachineCosts,
    network_rates,
    single_thread_costs,
)
from slimscale.bench.native.validate import groups, quantiles, validate
from slimscale.simulate.workload import Waiting
from slimscale.threads.predictor import AnalyticPredictor
from tests.support.native_curves import curve, measured, point, workload


def test_the_best_count_loses_nothing_and_one_thread_what_the_others_bring() -> None:
    of = measured()
    best = of.threads[int(np.argmax(of.rates))]
    assert loss(of, best) == 0
    assert loss(of, 1) == pytest.approx(1 - of.rates[0] / of.rates.max())


def test_the_fewest_threads_within_the_tolerance_are_chosen() -> None:
    rates = np.array([50.0, 98.0, 100.0, 99.0])
    assert best_of_curve((1, 2, 4, 8), rates) == 4
    assert best_of_curve((1, 2, 4, 8), rates, tolerance=0.03) == 2


def test_without_noise_nothing_is_lost_to_it() -> None:
    assert noise_floor(measured(factors=(1.0, 1.0, 1.0))) == 0
    assert noise_floor(measured(factors=(0.7, 1.0, 1.3))) == pytest.approx(0, abs=0.02)


def test_noise_that_hits_counts_differently_is_a_loss() -> None:
    of = measured(factors=(1.0, 1.0, 1.0))
    best = of.threads[int(np.argmax(of.rates))]
    spoiled = tuple(
        point(of.curve, best, repeat=2, factor=0.5) if (p.repeat, p.threads) == (2, best) else p
        for p in of.points
    )
    assert noise_floor(replace(of, points=spoiled)) > 0.05


def test_the_operator_finds_a_good_count_from_every_start_where_the_model_is_true() -> None:
    of = measured()
    for count in of.threads:
        made = operated(of, count, AnalyticPredictor())
        assert made is not None
        assert made.loss < 0.06, made


def test_too_little_work_gives_no_decision() -> None:
    assert operated(measured(factors=(0.02,)), 1, AnalyticPredictor()) is None


def test_goetz_counts_the_cores_in_reach_and_the_waiting() -> None:
    rules = fixed_threads(measured(curve(quota_cores=1.0)))
    assert rules["Goetz"] == 5  # 1 core * (1 + 4 ms / 1 ms)
    assert rules["floor(quota)"] == 1
    assert rules["unset (cores)"] == 2


def test_the_network_stops_rising_where_all_tasks_run() -> None:
    of = measured(curve(workload(outstanding=4)))
    rates = network_rates(of, NO_COSTS)
    assert rates[2] == rates[3] == rates[-1]  # 4, 8 and 32 threads
    assert rates[1] < rates[2]


def test_no_model_does_more_than_the_cpu_pays_for() -> None:
    load = workload(cpu=1e-3, blocking=0.0, dispatch=0.5e-3)
    of = measured(curve(load, quota_cores=1.0))
    assert network_rates(of, NO_COSTS).max() <= 1.0 / 1.5e-3 + 1e-9


def test_what_one_thread_takes_beyond_its_load_is_the_machines() -> None:
    of = measured(curve(workload(), quota_cores=2.0), factors=(1.0,))
    later = tuple(
        replace(
            p,
            task_cpu_seconds=p.task_cpu_seconds + 20e-6 * p.tasks,
            blocked_seconds=p.blocked_seconds + 90e-6 * p.tasks,
        )
        for p in of.points
    )
    costs = single_thread_costs([replace(of, points=later)])
    assert costs.wake_cpu_seconds == pytest.approx(20e-6)
    assert costs.wake_delay_seconds == pytest.approx(70e-6)
    throttled = measured(curve(workload(), quota_cores=0.5), factors=(1.0,))
    assert single_thread_costs([throttled]) == NO_COSTS


def test_the_machines_costs_make_tasks_longer_but_not_more_varied() -> None:
    costs = MachineCosts(20e-6, 70e-6, 1e-6, 10e-6)
    asked = workload()
    applied = costs.applied(asked)
    assert applied.blocking.mean_seconds == pytest.approx(4e-3 + 70e-6)
    assert applied.contention_handover == pytest.approx(10 / 50)
    variance = applied.cpu.squared_variation * applied.cpu.mean_seconds**2
    assert variance == pytest.approx(1e-6)
    spinning = costs.applied(replace(asked, waiting=Waiting.SPIN))
    assert spinning.contention_handover == 0  # nobody is woken
    still = costs.applied(workload(blocking=0.0))
    assert still.blocking.mean_seconds == 0  # nobody sleeps


@pytest.mark.slow
def test_a_true_model_has_small_errors_and_a_wrong_one_large_ones() -> None:
    made = validate(
        [measured(), measured(curve(workload(blocking=1e-3), name="mixed-exponential-1"))],
        {"analytic": AnalyticPredictor()},
    )
    document = made.to_json()
    errors = document["relative_error"]
    assert isinstance(errors, dict)
    assert errors["closed network"]["all"]["median"] < 0.02
    assert document["curves"]
    assert list(groups(made.curves)) == ["all", "train", "mixed"]


def test_quantiles_of_nothing_are_nothing() -> None:
    assert quantiles([]) == {}
    assert quantiles([1.0, 3.0])["median"] == 2.0
