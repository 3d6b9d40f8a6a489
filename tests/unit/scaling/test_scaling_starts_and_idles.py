"""Cold starts, pods that never come, rollouts, and the way to zero and back."""

from dataclasses import replace

from slimscale.domain.scaling import PoolObservation, PoolSpec, ScalingSpec, ServiceTime
from tests.support.scaling_cases import (
    MODEL,
    SPEC,
    TIMES,
    Cluster,
    ask,
    make_demand,
    make_pod,
    make_pool,
    make_telemetry,
    of_pool,
    outcomes,
    ready_pool,
    watched,
)

TO_ZERO = replace(
    SPEC, pools=(PoolSpec("cpu", 0, 20, cost_per_hour=1.0),), idle_to_zero_seconds=60.0
)
TWO_POOLS = replace(
    SPEC, pools=(PoolSpec("gpu", 0, 5, cost_per_hour=1.0), PoolSpec("cpu", 0, 9, cost_per_hour=3.0))
)


def test_pods_that_are_starting_count_so_nothing_is_ordered_twice() -> None:
    cluster = Cluster(SPEC, start_seconds=110.0)
    cluster.run(lambda now: make_demand(100.0, at=now), 100.0)
    counts = [replicas["cpu"] for _, replicas in cluster.history]
    final = Cluster(SPEC, start_seconds=0.0)
    final.run(lambda now: make_demand(100.0, at=now), 100.0)
    assert counts[-1] == final.total


def test_pods_that_deployments_have_not_created_yet_count_too() -> None:
    asked = ask(make_demand(100.0), ready_pool(1))
    count = of_pool(asked).replicas
    none_yet = make_pool("cpu", make_pod("cpu-0"), replicas=count)
    later = ask(make_demand(100.0, at=1010.0), none_yet, memo=asked.memo, at=1010.0)
    assert of_pool(later).replicas == count


def test_a_slow_pod_is_not_taken_away_before_it_was_ready() -> None:
    # One request at t = 0, the model loads for 120 s, pools are idle after 60 s.
    cluster = Cluster(TO_ZERO, start_seconds=119.0)
    cluster.tick(make_demand(0.0, 1.0, at=0.0, buffered=1, idle=0.0))
    assert cluster.total == 1

    def waiting(now: float):  # type: ignore[no-untyped-def]
        served = now > 120.0
        return make_demand(0.0, at=now, buffered=0 if served else 1, idle=now)

    cluster.run(waiting, 175.0)
    assert cluster.total == 1, "the idle clock starts with the first ready pod"
    cluster.run(waiting, 200.0)
    assert cluster.total == 0


def test_from_zero_goes_at_once_on_buffered_rows_even_in_a_cooldown() -> None:
    spec = replace(TO_ZERO, up_cooldown_seconds=600.0)
    down = ask(make_demand(0.0, idle=500.0), ready_pool(2), spec=spec, at=1000.0)
    assert down.replicas() == {"cpu": 0}
    up = make_demand(0.0, 0.5, at=1001.0, buffered=3, idle=0.1)
    decision = ask(up, make_pool("cpu", replicas=0), spec=spec, memo=down.memo, at=1001.0)
    assert of_pool(decision).replicas >= 1


def test_the_stable_window_s_memory_does_not_wake_an_idle_pool() -> None:
    # Arrivals of a minute ago are still in the mean: 0 to 1 to 0 would follow for ever.
    spec = replace(TO_ZERO, idle_to_zero_seconds=10.0)
    cluster = Cluster(spec, start_seconds=2.0, replicas={"cpu": 1})

    def ending(now: float):  # type: ignore[no-untyped-def]
        return make_demand(max(0.0, 5.0 - now / 12.0), 0.0, at=now, idle=now)

    cluster.run(ending, 120.0)
    assert [replicas["cpu"] for _, replicas in cluster.history] in ([1, 0], [0])


def test_a_silent_router_does_not_wake_an_empty_pool() -> None:
    empty = make_pool("cpu", replicas=0)
    partial = make_demand(0.0, routers=2, answering=1, idle=900.0)
    assert ask(partial, empty, spec=TO_ZERO).replicas() == {"cpu": 0}
    assert ask(None, empty, spec=TO_ZERO).replicas() == {"cpu": 0}
    arrival = make_demand(0.1, 1.0, routers=2, answering=1, idle=0.5)
    assert of_pool(ask(arrival, empty, spec=TO_ZERO)).replicas >= 1


def test_pods_that_a_quota_keeps_away_are_not_waited_for_for_ever() -> None:
    prior = (ServiceTime(MODEL, *TIMES),)
    refused = replace(make_pool("gpu", replicas=2), prior_service_times=prior)
    cpu = replace(make_pool("cpu", replicas=0), prior_service_times=prior)
    memo = ask(make_demand(20.0, at=800.0), refused, cpu, spec=TWO_POOLS, at=800.0).memo
    decision = ask(make_demand(20.0), refused, cpu, spec=TWO_POOLS, memo=memo)
    assert of_pool(decision, "gpu").stuck == 2
    assert of_pool(decision, "cpu").replicas > 0


def test_idleness_that_is_not_known_keeps_the_last_pod() -> None:
    assert ask(make_demand(0.0, idle=None), ready_pool(1), spec=TO_ZERO).replicas() == {"cpu": 1}
    assert ask(None, ready_pool(1), spec=TO_ZERO).replicas() == {"cpu": 1}
    busy = ready_pool(1, telemetry=make_telemetry(running=1))
    assert ask(make_demand(0.0, idle=500.0), busy, spec=TO_ZERO).replicas() == {"cpu": 1}
    silent = ready_pool(1, silent=True)
    assert ask(make_demand(0.0, idle=500.0), silent, spec=TO_ZERO).replicas() == {"cpu": 1}


def test_without_scale_to_zero_one_pod_is_always_there() -> None:
    spec = replace(TO_ZERO, idle_to_zero_seconds=None)
    memo = watched(make_demand(0.0, idle=900.0), ready_pool(2), spec=spec)
    decision = ask(make_demand(0.0, idle=900.0), ready_pool(2), spec=spec, memo=memo)
    assert decision.replicas() == {"cpu": 1}
    assert ask(make_demand(0.0), make_pool("cpu", replicas=0), spec=spec).replicas() == {"cpu": 1}


def test_service_times_are_remembered_for_the_start_from_zero() -> None:
    demand = make_demand(100.0)
    seen = ask(demand, ready_pool(10, telemetry=make_telemetry(times=(0.1, 0.1))))
    spec = replace(TO_ZERO, up_pods=50)
    again = ask(demand, make_pool("cpu", replicas=0), spec=spec, memo=seen.memo)
    assert of_pool(again).pod_rows_per_second == of_pool(seen).pod_rows_per_second


def test_a_pool_that_never_starts_is_reported_and_another_one_takes_its_place() -> None:
    prior = (ServiceTime(MODEL, *TIMES),)
    pending = [
        make_pod(f"gpu-{i}", created=0.0, ready_since=None, unschedulable=True) for i in (0, 1)
    ]
    gpu = replace(make_pool("gpu", *pending), prior_service_times=prior)
    cpu = replace(make_pool("cpu", replicas=0), prior_service_times=prior)
    patient = ask(make_demand(20.0, at=60.0), gpu, cpu, spec=TWO_POOLS, at=60.0)
    assert of_pool(patient, "cpu").replicas == 0, "a pod on its way is waited for"
    decision = ask(make_demand(20.0), gpu, cpu, spec=TWO_POOLS)
    assert of_pool(decision, "cpu").replicas > 0
    assert of_pool(decision, "gpu").replicas == 2, "nodes may still come for them"
    assert of_pool(decision, "gpu").stuck == 2
    assert ("Pending", "Stuck") in outcomes(decision)
    assert "gpu-0" in next(s.reason for s in decision.steps if s.stage == "Pending")


def test_a_pool_that_failed_to_start_is_left_alone_for_a_while() -> None:
    prior = (ServiceTime(MODEL, *TIMES),)
    stuck = make_pool("gpu", make_pod("gpu-0", created=0.0, ready_since=None))
    cpu = replace(ready_pool(1, "cpu"), prior_service_times=prior)
    memo = ask(
        make_demand(10.0), replace(stuck, prior_service_times=prior), cpu, spec=TWO_POOLS
    ).memo
    gone = PoolObservation("gpu", 0, (), prior_service_times=prior)
    soon = ask(make_demand(90.0, at=1100.0), gone, cpu, spec=TWO_POOLS, memo=memo, at=1100.0)
    assert of_pool(soon, "gpu").replicas == 0
    later = ask(make_demand(90.0, at=1500.0), gone, cpu, spec=TWO_POOLS, memo=memo, at=1500.0)
    assert of_pool(later, "gpu").replicas > 0


def test_a_stuck_pod_does_not_hold_savings_up_for_ever() -> None:
    pods = [make_pod(f"cpu-{i}") for i in range(6)]
    crashing = make_pod("cpu-x", created=0.0, ready_since=None)
    pool = make_pool("cpu", *pods, crashing)
    quiet = make_demand(1.0)
    assert of_pool(ask(quiet, pool, memo=watched(quiet, pool))).replicas < 7


def test_a_pod_that_turned_unready_just_now_is_waited_for() -> None:
    pods = [make_pod(f"cpu-{i}") for i in range(3)]
    blip = replace(pods[0], ready=False, unready_since_seconds=990.0, telemetry=None)
    decision = ask(make_demand(30.0), make_pool("cpu", blip, *pods[1:]))
    assert of_pool(decision).replicas == 3


def test_a_rollout_s_surge_changes_nothing() -> None:
    # 25 % surge, old and new pods ready together: 383 to 479 to 589 elsewhere.
    demand = make_demand(40.0)
    steady = Cluster(SPEC, start_seconds=0.0)
    steady.run(lambda now: make_demand(40.0, at=now), 900.0)
    count = steady.total
    memo = steady.memo
    at = steady.now
    for surge in range(1, 5):
        old = [make_pod(f"old-{i}") for i in range(count)]
        new = [
            make_pod(f"new-{i}", created=at - 5, ready_since=at - 1 if i % 2 else None)
            for i in range(surge)
        ]
        pool = replace(make_pool("cpu", *old, *new, replicas=count), rollout_in_progress=True)
        decision = ask(replace(demand, sampled_at_seconds=at), pool, memo=memo, at=at)
        assert decision.replicas() == {"cpu": count}
        memo, at = decision.memo, at + 5.0


def test_surge_pods_do_not_pass_for_spare_capacity() -> None:
    # They go when the rollout ends; what was asked for is what stays.
    pool = make_pool("cpu", *(make_pod(f"cpu-{i}") for i in range(6)), replicas=3)
    decision = ask(make_demand(115.0), pool)
    alone = ask(make_demand(115.0), ready_pool(3))
    assert of_pool(alone).replicas > 3
    assert decision.replicas() == alone.replicas()


def test_pools_in_the_spec_without_a_deployment_yet_begin_at_their_least() -> None:
    spec = ScalingSpec((PoolSpec("cpu", 2, 5),), MODEL, 0.5)
    assert ask(make_demand(0.0), spec=spec).replicas() == {"cpu": 2}
