"""Bounds, steps, cooldowns, panic, unlike pools, and replicas that another manager owns."""

from dataclasses import replace

import pytest

from slimscale.domain.decision import Action
from slimscale.domain.scaling import PoolSpec, ScalingOwner, ServiceTime
from tests.support.scaling_cases import (
    MODEL,
    SPEC,
    TIMES,
    Cluster,
    ask,
    make_demand,
    make_pool,
    make_telemetry,
    of_pool,
    outcomes,
    ready_pool,
    watched,
)


def bounded(least: int, most: int):  # type: ignore[no-untyped-def]
    return replace(SPEC, pools=(PoolSpec("cpu", least, most),))


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [(5, 2, 5), (-3, -1, 0), (0, 2**40, 2), (2**40, 2**41, 1000), (-1, 4, 2)],
)
def test_bounds_that_cannot_be_kept_are_cut_and_named(least: int, most: int, expected: int) -> None:
    decision = ask(make_demand(5.0), ready_pool(2), spec=bounded(least, most))
    assert of_pool(decision).replicas == expected
    assert ("Bounds", "Clamped") in outcomes(decision)
    assert any("minReplicas" in step.reason for step in decision.steps)


def test_a_lowered_maximum_is_kept_at_once_even_without_figures() -> None:
    assert ask(None, ready_pool(8), spec=bounded(1, 5)).replicas() == {"cpu": 5}


def test_a_demand_within_the_tolerance_of_the_capacity_changes_nothing() -> None:
    capacity = ask(make_demand(1.0), ready_pool(4)).capacity_rows_per_second
    fits = capacity / (1 + SPEC.headroom)
    assert ask(make_demand(1.05 * fits), ready_pool(4)).replicas() == {"cpu": 4}
    assert ask(make_demand(1.15 * fits), ready_pool(4)).replicas() == {"cpu": 5}


def test_a_demand_beyond_all_pools_is_said() -> None:
    decision = ask(make_demand(5000.0), ready_pool(4), spec=bounded(1, 5))
    assert decision.replicas() == {"cpu": 5}
    assert ("Mix", "Exhausted") in outcomes(decision)


def test_one_step_up_is_limited() -> None:
    decision = ask(make_demand(500.0), ready_pool(2))
    assert of_pool(decision).replicas == 2 + SPEC.up_pods
    assert ("StepLimit", "Limited") in outcomes(decision)


def test_a_cooldown_holds_growth_but_not_in_a_panic() -> None:
    spec = replace(SPEC, up_cooldown_seconds=60.0)
    first = ask(make_demand(60.0), ready_pool(2), spec=spec)
    count = of_pool(first).replicas
    more = make_demand(95.0, at=1010.0)
    held = ask(more, ready_pool(count), spec=spec, memo=first.memo, at=1010.0)
    assert held.replicas() == {"cpu": count}
    assert ("Cooldown", "Held") in outcomes(held)
    burst = make_demand(60.0, 300.0, at=1010.0)
    assert (
        of_pool(ask(burst, ready_pool(count), spec=spec, memo=first.memo, at=1010.0)).replicas
        > count
    )


def test_a_burst_in_the_panic_window_is_answered_before_the_stable_mean_has_risen() -> None:
    decision = ask(make_demand(10.0, 100.0), ready_pool(1))
    assert decision.panicking
    assert of_pool(decision).replicas >= 4


def test_a_sudden_rise_that_the_pods_can_take_is_not_shrunk_away_from() -> None:
    memo = watched(make_demand(1.0), ready_pool(6))
    decision = ask(make_demand(10.0, 100.0), ready_pool(6), memo=memo)
    assert not decision.panicking
    assert of_pool(decision).replicas >= 5


def test_nothing_shrinks_until_a_stable_window_after_a_panic() -> None:
    memo = watched(make_demand(1.0), ready_pool(6))
    burst = ask(make_demand(10.0, 300.0), ready_pool(6), memo=memo)
    after = make_demand(10.0, at=1050.0)
    assert ask(after, ready_pool(6), memo=burst.memo, at=1050.0).panicking
    assert not ask(replace(after, sampled_at_seconds=1061.0), ready_pool(6), memo=burst.memo, at=1061.0).panicking  # fmt: skip


def test_two_arrivals_in_six_seconds_are_chance_and_no_panic() -> None:
    slow = ready_pool(1, telemetry=make_telemetry(times=(3.0, 3.0)))
    spec = replace(SPEC, slo_seconds=30.0)
    decision = ask(make_demand(0.1, 2 / 6), slow, spec=spec)
    assert decision.capacity_rows_per_second < 2 / 6
    assert not decision.panicking


def test_rejected_and_buffered_rows_are_demand() -> None:
    # The sidecar lets through 8 rows at a time: what runs can never show the load.
    capped = ready_pool(2, telemetry=make_telemetry(running=8, queued=400, backlog=20.0))
    decision = ask(make_demand(40.0, buffered=600), capped)
    assert of_pool(decision).replicas > 2


def test_unlike_pools_take_the_demand_at_the_least_cost() -> None:
    spec = replace(
        SPEC,
        pools=(PoolSpec("gpu", 0, 4, cost_per_hour=6.0), PoolSpec("cpu", 1, 9, cost_per_hour=1.0)),
    )
    fast = (ServiceTime(MODEL, 0.01, 0.001),)
    gpu = replace(make_pool("gpu", replicas=0), prior_service_times=fast)
    cpu = replace(ready_pool(1), prior_service_times=(ServiceTime(MODEL, *TIMES),))
    little = ask(make_demand(60.0), gpu, cpu, spec=spec)
    assert little.replicas()["gpu"] == 0
    assert little.replicas()["cpu"] > 1
    much = ask(make_demand(500.0), gpu, cpu, spec=spec)
    assert much.replicas()["gpu"] >= 1


def test_dear_pods_are_exchanged_for_cheap_ones_only_once_those_are_ready() -> None:
    spec = replace(
        SPEC,
        pools=(
            PoolSpec("dear", 0, 9, cost_per_hour=5.0),
            PoolSpec("cheap", 0, 9, cost_per_hour=1.0),
        ),
    )
    cluster = Cluster(spec, start_seconds=30.0, replicas={"dear": 4, "cheap": 1})
    cluster.run(lambda now: make_demand(60.0, at=now), 1500.0)
    assert cluster.replicas["dear"] == 0
    for (_, before), (_, after) in zip(cluster.history, cluster.history[1:], strict=False):
        assert not (after["cheap"] > before["cheap"] and after["dear"] < before["dear"])


def test_a_pool_that_cannot_meet_the_slo_gets_nothing_while_another_can() -> None:
    spec = replace(SPEC, pools=(PoolSpec("slow", 0, 9), PoolSpec("cpu", 0, 9, cost_per_hour=50.0)))
    slow = replace(
        make_pool("slow", replicas=0), prior_service_times=(ServiceTime(MODEL, 0.6, 0.001),)
    )
    decision = ask(make_demand(60.0), slow, ready_pool(1), spec=spec)
    assert decision.replicas()["slow"] == 0
    assert ("Sizing", "OutOfReach") in outcomes(decision)


def test_late_answers_are_better_than_none_where_no_pool_meets_the_slo() -> None:
    slow = ready_pool(1, telemetry=make_telemetry(times=(2.0, 1.0)))
    assert of_pool(ask(make_demand(5.0), slow)).replicas > 1


def test_without_any_service_time_rows_that_wait_make_a_pool_grow_step_by_step() -> None:
    unknown = ready_pool(2, telemetry=make_telemetry(times=None, queued=50, backlog=3.0))
    decision = ask(make_demand(50.0), unknown)
    assert decision.replicas() == {"cpu": 3}
    idle = ready_pool(2, telemetry=make_telemetry(times=None))
    quiet = make_demand(1.0)
    assert ask(quiet, idle, memo=watched(quiet, idle)).replicas() == {"cpu": 2}


def test_another_owner_gets_the_count_as_a_figure_and_our_field_keeps_the_live_value() -> None:
    spec = replace(SPEC, owner=ScalingOwner.EXTERNAL)
    pool = ready_pool(3)
    before = ask(make_demand(300.0), pool, spec=spec)
    assert of_pool(before).replicas > 3
    assert of_pool(before).field_value == 3, "dropping it before would mean 1"
    owned = replace(pool, replicas_managers=("kube-controller-manager",))
    after = ask(make_demand(300.0), owned, spec=spec)
    assert of_pool(after).field_value is None


def test_a_restart_with_an_external_owner_sends_what_is_there() -> None:
    spec = replace(SPEC, owner=ScalingOwner.EXTERNAL)
    for live in (1, 4, 17):
        assert of_pool(ask(None, ready_pool(live), spec=spec)).field_value == live


def test_our_own_field_follows_the_decision() -> None:
    decision = ask(make_demand(300.0), ready_pool(3))
    assert of_pool(decision).field_value == of_pool(decision).replicas
    assert decision.action is Action.SCALE_UP
