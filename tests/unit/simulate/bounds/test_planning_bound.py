"""The planning LP: known figures, what it must bound, and what it says about devices."""

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from slimscale.simulate.bounds.fleet import Fleet, RequestClass
from slimscale.simulate.bounds.planning import (
    Infeasible,
    ObjectiveWeights,
    capacity,
    least_energy,
    least_service,
    most_accuracy,
    objective_table,
    planning_lp,
)
from tests.support.six_devices import CLASSES, six_devices


def test_the_scenes_capacity_at_an_accuracy_is_the_published_one() -> None:
    assert capacity(six_devices(), min_accuracy=0.745) == pytest.approx(2209.1, abs=0.1)


@pytest.mark.parametrize(
    ("load", "base", "energy"), [(0.3, 0.43, 0.06), (0.5, 0.40, 0.056), (0.95, 0.26, 0.00)]
)
def test_the_scenes_bound_on_the_objective_is_the_published_one(
    load: float, base: float, energy: float
) -> None:
    fleet, rate = six_devices(), load * 2209.1
    plan = planning_lp(fleet, rows_per_second=rate, classes=CLASSES)
    dear = planning_lp(
        fleet, rows_per_second=rate, classes=CLASSES, weights=ObjectiveWeights(per_joule=1.5)
    )
    assert plan.value == pytest.approx(base, abs=0.005)
    assert dear.value == pytest.approx(energy, abs=0.005)


def test_one_device_and_width_is_a_division() -> None:
    fleet = Fleet(
        base_seconds=(0.01,), row_seconds=(0.002,), dynamic_watts=(100.0,), idle_watts=(10.0,),
        accuracy=(0.7,), flops_ratio=(1.0,), max_batch_rows=8,
    )  # fmt: skip
    full = 0.01 + 8 * 0.002
    assert capacity(fleet) == pytest.approx(8 / full)
    plan = least_energy(fleet, rows_per_second=50.0)
    assert plan.value == pytest.approx(100.0 * full / 8)
    assert plan.utilisation == pytest.approx([50.0 * full / 8])
    assert plan.watts(fleet, idle=True) == pytest.approx(50.0 * plan.value + 10.0)
    # Alone in its batch a request is served soonest, and there is time for it.
    assert least_service(fleet, rows_per_second=50.0).value == pytest.approx(0.012)


def test_accuracy_falls_and_energy_rises_with_the_load() -> None:
    fleet = six_devices()
    rates = [200.0, 1000.0, 2000.0, 3500.0, 6000.0]
    accuracy = [most_accuracy(fleet, rows_per_second=rate).value for rate in rates]
    joules = [least_energy(fleet, rows_per_second=rate).value for rate in rates]
    assert accuracy == sorted(accuracy, reverse=True)
    assert joules == sorted(joules)
    assert accuracy[0] == pytest.approx(0.765)


def test_a_class_with_a_least_accuracy_gets_only_wide_enough_widths() -> None:
    strict = RequestClass(slo_seconds=0.3, share=0.5, min_accuracy=0.755)
    lax = RequestClass(slo_seconds=0.3, share=0.5)
    plan = planning_lp(six_devices(), rows_per_second=1800.0, classes=(strict, lax))
    assert not plan.support[0, :, :2].any()
    assert plan.support[0].any()
    assert plan.support[1, :, :2].any()


def test_what_cannot_be_served_is_said() -> None:
    fleet = six_devices()
    with pytest.raises(Infeasible, match="ask for less, or add devices"):
        least_energy(fleet, rows_per_second=2300.0, min_accuracy=0.745)
    with pytest.raises(Infeasible, match=r"min_accuracy is 0\.9"):
        planning_lp(
            fleet, rows_per_second=10.0, classes=(RequestClass(slo_seconds=0.1, min_accuracy=0.9),)
        )


def test_an_inflated_plan_beyond_the_capacity_is_a_plan_for_the_capacity() -> None:
    fleet = six_devices()
    plan = planning_lp(fleet, rows_per_second=7000.0, classes=CLASSES, inflation=2.5)
    assert plan.rows_per_second == pytest.approx(0.999 * capacity(fleet))
    assert plan.support.any(axis=(0, 2)).all()  # every device is needed


def test_a_slow_device_that_saves_nothing_stays_out_of_the_plan() -> None:
    plan = planning_lp(six_devices(), rows_per_second=0.3 * 2209.1, classes=CLASSES)
    assert not plan.support[:, 4].any()  # the CPU
    assert plan.price_per_busy_second[4] == pytest.approx(0.0, abs=1e-9)
    assert plan.price_per_busy_second[0] > 0.0  # the fastest is fully used: more of it would pay


def test_the_dual_price_predicts_what_a_faster_fleet_gains() -> None:
    fleet, rate = six_devices(), 1500.0
    plan = planning_lp(fleet, rows_per_second=rate, classes=CLASSES)
    gained = planning_lp(fleet, rows_per_second=rate * 1.001, classes=CLASSES).value - plan.value
    # Scaling the load by 1.001 is, for the constraints, taking 0.1 % of each device away.
    assert gained == pytest.approx(-0.001 * plan.price_per_busy_second.sum() / rate, rel=0.05)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_no_stationary_policy_passes_the_bound(seed: int) -> None:
    """Any shares of (device, width, batch) that keep every device below 1 are a policy."""
    rng = np.random.default_rng(seed)
    fleet = six_devices(noise=0.15)
    shape = (len(CLASSES), fleet.devices, fleet.widths, fleet.max_batch_rows)
    shares = rng.dirichlet(np.full(math.prod(shape[1:]), 0.05), size=shape[0]).reshape(shape)
    shares *= np.asarray([one.share for one in CLASSES])[:, None, None, None]
    rows = np.arange(1, fleet.max_batch_rows + 1)
    seconds = (shares.sum(axis=0) * fleet.batch_seconds() / rows).sum(axis=(1, 2))
    rate = 0.95 / seconds.max()
    gains = np.stack([objective_table(fleet, one, ObjectiveWeights()) for one in CLASSES])
    bound = planning_lp(fleet, rows_per_second=rate, classes=CLASSES).value
    assert (shares * gains).sum() <= bound + 1e-9


@given(
    median=st.floats(0.01, 3.0), noise=st.floats(0.05, 0.5), slo=st.sampled_from([0.1, 0.3, 1.0])
)
def test_the_expected_cost_of_a_noisy_batch_is_the_integral(
    median: float, noise: float, slo: float
) -> None:
    fleet = Fleet(
        base_seconds=(median,), row_seconds=(0.0,), dynamic_watts=(0.0,), idle_watts=(0.0,),
        accuracy=(0.703,), flops_ratio=(1.0,), max_batch_rows=1, noise=noise,
    )  # fmt: skip
    got = objective_table(fleet, RequestClass(slo_seconds=slo), ObjectiveWeights())[0, 0, 0]

    def cost(z: float) -> float:
        time = median * math.exp(noise * z)
        density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        return (min(time / slo, 2.0) + (time > slo)) * density

    kinks = sorted(math.log(limit * slo / median) / noise for limit in (1.0, 2.0))
    points = [-9.0, *(k for k in kinks if -9.0 < k < 9.0), 9.0]
    integral = sum(
        integrate.quad(cost, low + 1e-12, high - 1e-12)[0]
        for low, high in itertools.pairwise(points)
    )
    assert got == pytest.approx(-integral, abs=1e-6)


def test_the_bound_holds_for_requests_that_a_pool_serves_alone() -> None:
    """A policy that is easy to work out: everything to one device in batches of one, without a queue."""
    fleet = six_devices(noise=0.15)
    bound = planning_lp(fleet, rows_per_second=30.0, classes=CLASSES).value
    rng = Random(1)
    total, n = 0.0, 20_000
    for _ in range(n):
        slo = 0.1 if rng.random() < 0.3 else 0.3
        time = 0.008 * rng.lognormvariate(0.0, 0.15)
        total += 12 * (0.765 - 0.703) - min(time / slo, 2.0) - 0.3 * 200.0 * time - (time > slo)
    assert total / n <= bound
