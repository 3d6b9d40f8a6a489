"""Two devices, exactly: known queues, the LP above, every rule below, and a simulation beside."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from scipy import integrate, stats

from slimscale.simulate.bounds.fleet import RequestClass
from slimscale.simulate.bounds.planning import ObjectiveWeights, capacity, planning_lp
from slimscale.simulate.bounds.routing_mdp import (
    LOST,
    TwoDevices,
    evaluate_routing,
    shortest_expected_delay,
    solve_routing,
)


def _system(load: float, *, queue_cap: int = 8) -> TwoDevices:
    """A fast device that draws much and a slow one that draws little; slim takes 1 phase, wide 3."""
    system = TwoDevices(
        phase_seconds=(0.004, 0.010),
        phases=(1, 3),
        accuracy=(0.703, 0.765),
        dynamic_watts=(40.0, 12.0),
        classes=(RequestClass(0.1, 0.3), RequestClass(0.3, 0.7)),
        requests_per_second=1.0,
        queue_cap=queue_cap,
    )
    return replace(system, requests_per_second=load * capacity(system.fleet()))


def test_one_device_and_width_is_the_mm1_queue() -> None:
    """Its mean time in the system is 1/(μ - λ)."""
    latency_alone = ObjectiveWeights(
        accuracy=0.0, latency=1.0, latency_cap=50.0, per_joule=0.0, miss=0.0
    )
    system = TwoDevices(
        phase_seconds=(0.01, 0.01),
        phases=(1,),
        accuracy=(0.7,),
        dynamic_watts=(1.0, 1.0),
        classes=(RequestClass(1.0),),
        requests_per_second=50.0,
        weights=latency_alone,
        queue_cap=60,
    )
    first_alone = np.zeros((1, 61, 61), dtype=np.int64)
    first_alone[:, 60] = LOST
    assert -evaluate_routing(system, first_alone).mean_objective == pytest.approx(
        1 / (100 - 50), rel=1e-6
    )


@pytest.mark.parametrize(("device", "width"), [(0, 0), (0, 1), (1, 1)])
def test_without_a_queue_a_request_is_worth_the_mean_over_its_erlang_time(
    device: int, width: int
) -> None:
    system = replace(_system(0.5), requests_per_second=1e-6)
    always = np.full((2, system.limit + 1, system.limit + 1), system.actions.index((device, width)))
    always[:, system.limit - 2 :] = LOST
    always[:, :, system.limit - 2 :] = LOST
    phases, phase = system.phases[width], system.phase_seconds[device]
    time = stats.gamma(phases, scale=phase)
    worth = 12 * (system.accuracy[width] - 0.703)
    worth -= 0.3 * system.dynamic_watts[device] * phases * phase
    for one in system.classes:
        slo = one.slo_seconds
        capped, _ = integrate.quad(lambda t: time.pdf(t) * t, 0.0, 2 * slo)
        worth -= one.share * (capped / slo + 2.0 * time.sf(2 * slo) + time.sf(slo))
    assert evaluate_routing(system, always).mean_objective == pytest.approx(worth, abs=1e-5)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_the_optimum_lies_between_the_best_rule_and_the_planning_bound(load: float) -> None:
    system = _system(load)
    best = solve_routing(system).mean_objective
    plan = planning_lp(
        system.fleet(), rows_per_second=system.requests_per_second, classes=system.classes
    )
    rules = [
        shortest_expected_delay(system),
        shortest_expected_delay(system, widths=[1]),
        shortest_expected_delay(system, widest_within=0.4),
        shortest_expected_delay(system, support=plan.support),
    ]
    values = [evaluate_routing(system, rule).mean_objective for rule in rules]
    assert max(values) < best - 0.01  # no rule of the list is optimal here
    assert best < plan.value


def test_the_optimum_is_what_its_choices_come_to() -> None:
    system = _system(0.5)
    best = solve_routing(system)
    assert evaluate_routing(system, best.choices).mean_objective == pytest.approx(
        best.mean_objective, abs=2e-5
    )


def test_the_optimum_grows_slimmer_as_both_queues_grow() -> None:
    """And it knows the classes: the strict one turns slim before the lax one."""
    system = _system(0.5)
    choices = solve_routing(system).choices
    wide = np.asarray([width == 1 for _, width in system.actions])
    strict, lax = (wide[np.maximum(one, 0)] for one in choices)
    assert lax[0, 0]
    assert not lax[12, 12]
    assert lax.sum() > strict.sum()


def test_a_policys_value_is_what_a_simulation_measures() -> None:
    system = _system(0.5)
    choices = shortest_expected_delay(system, widest_within=0.4)
    exact = evaluate_routing(system, choices).mean_objective
    rng = Random(3)
    phases = [0, 0]
    weights, total, count = system.weights, 0.0, 60_000
    speeds = [1.0 / seconds for seconds in system.phase_seconds]
    for _ in range(count):
        gap = rng.expovariate(system.requests_per_second)
        for device in (0, 1):
            left = gap
            while phases[device] and (left := left - rng.expovariate(speeds[device])) > 0.0:
                phases[device] -= 1
        number = 0 if rng.random() < system.classes[0].share else 1
        chosen = int(choices[number, phases[0], phases[1]])
        if chosen == LOST:
            total += system.lost_gain
            continue
        device, width = system.actions[chosen]
        phases[device] += system.phases[width]
        time = rng.gammavariate(phases[device], system.phase_seconds[device])
        slo = system.classes[number].slo_seconds
        joules = system.phases[width] * system.phase_seconds[device] * system.dynamic_watts[device]
        total += 12 * (system.accuracy[width] - 0.703) - min(time / slo, 2.0) - (time > slo)
        total -= weights.per_joule * joules
    assert total / count == pytest.approx(exact, abs=0.03)


def test_there_is_no_choice_where_no_queue_has_room() -> None:
    system = _system(0.5, queue_cap=4)
    full = system.limit
    for choices in (solve_routing(system).choices, shortest_expected_delay(system)):
        assert (choices[:, full, full] == LOST).all()
        assert (choices[:, 0, full] >= 0).all()
