"""What `decide` chooses: CPU policies, bounds, odd predictors, haste, memory, replay."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from slimscale.domain.decision import Action, Decision, PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    LimitRangeBounds,
    QosClass,
)
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.estimate import Estimate
from slimscale.threads.guards import sane_threads
from slimscale.threads.predictor import AnalyticPredictor, Surface
from tests.support.decide_cases import (
    BLOCKING,
    HEAVY,
    LIGHT,
    SPEC,
    ask,
    fresh_decision,
    settled,
    step_outcomes,
    workload,
)
from tests.support.observations import (
    SyntheticWorkload,
    drive,
    make_node,
    make_spec,
)

# --- CPU and QoS --------------------------------------------------------------------------


def test_keep_touches_no_cpu() -> None:
    _, _, last = settled(cpu={"limitPolicy": "Keep"})
    assert last.target is not None
    assert last.target.cpu_limit_millicores is None
    assert last.target.cpu_request_millicores is None


def test_equal_threads_sets_one_cpu_a_thread() -> None:
    _, _, last = settled(HEAVY, cpu={"limitPolicy": "EqualThreads"})
    assert last.target is not None
    assert last.target.cpu_limit_millicores == 1000 * last.target.threads


def test_guaranteed_keeps_request_equal_to_limit() -> None:
    target = _target_of(QosClass.GUARANTEED, ContainerResources(2000, 2000, 1, 1))
    assert target.cpu_request_millicores == target.cpu_limit_millicores


def test_guaranteed_under_limits_only_keeps_its_cpu() -> None:
    target = _target_of(
        QosClass.GUARANTEED,
        ContainerResources(2000, 2000, 1, 1),
        cpu={"controlledValues": "LimitsOnly"},
    )
    assert (target.cpu_request_millicores, target.cpu_limit_millicores) == (None, None)


def test_burstable_never_becomes_equal_in_everything() -> None:
    target = _target_of(
        QosClass.BURSTABLE, ContainerResources(1995, 2000, 1, 1), other_containers_guaranteed=True
    )
    assert target.cpu_request_millicores is not None
    assert target.cpu_limit_millicores is not None
    assert target.cpu_request_millicores < target.cpu_limit_millicores


def test_best_effort_gets_threads_and_no_cpu() -> None:
    target = _target_of(QosClass.BEST_EFFORT, ContainerResources())
    assert (target.cpu_request_millicores, target.cpu_limit_millicores) == (None, None)


def test_limits_only_leaves_the_request_and_never_goes_below_it() -> None:
    target = _target_of(
        QosClass.BURSTABLE,
        ContainerResources(1900, 4000, 1, 2),
        truth=LIGHT,
        cpu={"controlledValues": "LimitsOnly"},
    )
    assert target.cpu_request_millicores is None
    assert target.cpu_limit_millicores == 1900


def _target_of(
    qos: QosClass,
    resources: ContainerResources,
    *,
    truth: NetworkParameters = HEAVY,
    other_containers_guaranteed: bool = False,
    **fields: object,
) -> PodTarget:
    plant = SyntheticWorkload(
        truth, threads=8, limit_millicores=resources.cpu_limit_millicores, node_cores=4
    )
    plant.tick()
    pod = plant.pod(
        qos_class=qos,
        spec_resources=resources,
        other_containers_guaranteed=other_containers_guaranteed,
    )
    decision = fresh_decision(replace(plant.observe(), pods=(pod,)), **fields)
    assert decision.target is not None
    return decision.target


def test_a_throttled_pod_keeps_its_limit() -> None:
    plant = SyntheticWorkload(LIGHT, threads=16)
    plant.tick()
    throttled = replace(
        plant.samples[-1], cpu_throttled_periods_total=30.0, cpu_throttled_seconds_total=2.0
    )
    pod = plant.pod(samples=(*plant.samples[:-1], throttled))
    decision = fresh_decision(replace(plant.observe(), pods=(pod,)))
    assert decision.target is not None
    assert decision.target.threads == 1
    assert decision.target.cpu_limit_millicores == 2000
    assert "KeepCPU" in step_outcomes(decision)


# --- bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "fields", "most"),
    [
        ({}, {"cpu": {"max": "2500m"}}, 2500),
        ({"limit_range": LimitRangeBounds(max_cpu_millicores=2250)}, {}, 2250),
        ({"quota_free_limit_millicores": 300}, {}, 2300),
        ({"quota_free_request_millicores": 100}, {}, 2200),
        ({"nodes": {"node-0": make_node(cores=4, requested=3.9)}}, {}, 2200),
    ],
    ids=["cpu.max", "LimitRange", "quota limits", "quota requests", "node"],
)
def test_cpu_is_clamped_and_the_uncapped_value_still_shown(
    change: dict[str, object], fields: dict[str, object], most: int
) -> None:
    plant = SyntheticWorkload(HEAVY, threads=8)
    plant.tick()
    decision = fresh_decision(plant.observe(**change), **fields)
    assert decision.target is not None
    assert decision.target.cpu_limit_millicores is not None
    assert 2000 <= decision.target.cpu_limit_millicores <= most
    assert decision.uncapped is not None
    assert decision.uncapped.cpu_limit_millicores is not None
    assert decision.uncapped.cpu_limit_millicores > most


def test_the_smallest_node_of_all_pods_bounds_the_cpu() -> None:
    observation = workload(2, broken=0)
    pods = (observation.pods[0], replace(observation.pods[1], node="node-1"))
    small = {"node-0": make_node(cores=64, requested=2), "node-1": make_node("node-1", cores=2.5)}
    decision = fresh_decision(replace(observation, pods=pods, nodes=small))
    assert decision.target is not None
    assert (decision.target.cpu_limit_millicores or 0) <= 2500


def test_threads_stay_within_the_spec_even_for_a_remembered_target() -> None:
    plant, memo, last = settled()
    assert last.target is not None
    assert last.target.threads > 6
    decision = decide(
        observation=plant.observe(),
        spec=make_spec(threads={"min": 2, "max": 6}),
        memo=memo,
        now_seconds=plant.now_seconds,
    )
    assert decision.target is not None
    assert decision.target.threads <= 6
    assert decision.may_write


# --- odd predictors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 7), (-3, 7), (math.nan, 7), (math.inf, 7), (1e9, 7), (2.7, 2), (3, 3), (900, 64)],
)
def test_a_thread_count_that_cannot_be_keeps_the_last_good_one(value: float, expected: int) -> None:
    threads, problem = sane_threads(value, last_good=7, least=1, most=64)
    assert threads == expected
    assert bool(problem) == (expected == 7)


class OddPredictor:
    name = "odd"

    def __init__(self, spoil: Callable[[Surface], Surface]) -> None:
        self._spoil = spoil

    def surface(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> Surface:
        good = AnalyticPredictor().surface(estimate, cpu_cores=cpu_cores, max_threads=max_threads)
        return self._spoil(good)


def _failing(_: Surface) -> Surface:
    raise ValueError("no weights")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: replace(s, tasks_per_second=s.tasks_per_second * np.nan),
        lambda s: replace(s, tasks_per_second=s.tasks_per_second * np.inf),
        lambda s: replace(s, tasks_per_second=-s.tasks_per_second),
        lambda s: replace(s, tasks_per_second=s.tasks_per_second[:, :1]),
        lambda s: replace(s, cpu_seconds_a_task=math.nan),
        _failing,
    ],
    ids=["nan", "inf", "negative", "shape", "cost", "raises"],
)
def test_a_broken_predictor_keeps_the_last_good_target_and_is_counted(
    spoil: Callable[[Surface], Surface],
) -> None:
    plant, memo, last = settled()
    decision = decide(
        observation=plant.observe(),
        spec=SPEC,
        memo=memo,
        now_seconds=plant.now_seconds,
        predictor=OddPredictor(spoil),
    )
    assert decision.target == last.target
    assert decision.action is Action.HOLD
    assert not decision.may_write
    assert decision.memo["invalid_predictions"] == 1


# --- haste, crashes, memory, replay -------------------------------------------------------


def test_two_changes_are_at_least_the_dwell_time_apart_without_a_change_of_load() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=1, noise=0.1, seed=3)
    changes: list[float] = []

    def note(decision: Decision) -> None:
        if decision.action in (Action.SCALE_UP, Action.SCALE_DOWN):
            changes.append(decision.decided_at_seconds)

    drive(plant, make_spec(tuning={"minDwellSeconds": 90}), 60, decide=decide, each=note)
    assert changes
    assert all(b - a >= 90 for a, b in pairwise(changes))


def test_a_crash_loop_after_a_change_takes_it_back() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    plant.tick()
    first = ask(plant, {})
    assert first.target is not None
    assert first.target.threads > 4
    plant.now_seconds += 30
    pod = plant.pod(
        crash_looping=True, ready=False, last_restart_seconds=plant.now_seconds - 5, restart_count=3
    )
    decision = ask(plant, first.memo, pod)
    assert decision.action is Action.REVERT
    assert decision.target is not None
    assert decision.target.threads == 4
    assert decision.may_write
    assert decision.reason == "Reverted"


def test_an_old_crash_loop_is_not_blamed_on_the_change() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    plant.tick()
    first = ask(plant, {})
    plant.now_seconds += 30
    pod = plant.pod(crash_looping=True, ready=False, last_restart_seconds=plant.now_seconds - 900)
    assert ask(plant, first.memo, pod).action is not Action.REVERT


def test_a_crash_loop_is_not_blamed_on_a_change_that_was_only_recommended() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    plant.tick()
    off = make_spec(updatePolicy={"mode": "Off"})
    first = fresh_decision(plant.observe(), updatePolicy={"mode": "Off"})
    plant.now_seconds += 30
    pod = plant.pod(
        crash_looping=True, ready=False, last_restart_seconds=plant.now_seconds - 5, restart_count=3
    )
    decision = decide(
        observation=replace(plant.observe(), pods=(pod,)),
        spec=off,
        memo=first.memo,
        now_seconds=plant.now_seconds,
    )
    assert decision.action is not Action.REVERT
    assert decision.target == first.target


@pytest.mark.parametrize(
    "damaged",
    [
        {"version": 2},
        {"version": 1, "target": {"threads": "many"}},
        {"version": 1, "regime": []},
        {"version": 1, "pending": {"before": None}},
        {"version": 1, "trends": {"cpu": {"mean": "NaN"}}},
        {"something": "else"},
    ],
)
def test_damaged_memory_starts_afresh_and_says_so(damaged: dict[str, object]) -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    plant.tick()
    decision = ask(plant, damaged)
    assert "StartedAfresh" in step_outcomes(decision)
    assert decision.reason == "Predicted"
    assert decision.memo["version"] == 1


def test_memory_is_small_json_and_survives_a_round_trip() -> None:
    plant, memo, _ = settled()
    text = json.dumps(memo, allow_nan=False)
    assert len(text) < 4000
    plant.tick()
    assert ask(plant, memo) == ask(plant, json.loads(text))


def test_a_decision_can_be_replayed_and_its_id_tells_the_inputs_apart() -> None:
    plant, memo, _ = settled()
    first, second = ask(plant, memo), ask(plant, memo)
    assert first == second
    plant.tick()
    assert ask(plant, memo).decision_id != first.decision_id


def test_each_stage_explains_itself_with_numbers_and_units() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    plant.tick()
    decision = ask(plant, {})
    assert [s.stage for s in decision.steps] == ["Observe", "Estimate", "Choose", "Guard"]
    words = " ".join(s.reason for s in decision.steps)
    for expected in ("tasks/s", "ms", "µs", "r = ", "threads"):
        assert expected in words
    assert decision.model.ratio == pytest.approx(22e-3 / 60e-6, rel=0.1)
    assert decision.model.curve[0][0] == 1


def test_bounds_enclose_the_target() -> None:
    _, _, last = settled()
    assert last.lower is not None
    assert last.target is not None
    assert last.upper is not None
    assert last.lower.threads <= last.target.threads <= last.upper.threads
    assert (last.lower.cpu_limit_millicores or 0) <= (last.upper.cpu_limit_millicores or 0)


@pytest.mark.parametrize(
    ("objective", "check"),
    [
        ({"type": "TargetThroughput", "tasksPerSecond": "300"}, lambda r: 291 <= r <= 400),
        ({"type": "Efficiency", "tolerancePercent": 10}, lambda r: r >= 300),
    ],
)
def test_other_objectives_are_met(
    objective: dict[str, object], check: Callable[[float], bool]
) -> None:
    plant = SyntheticWorkload(BLOCKING, threads=32)
    drive(plant, make_spec(objective=objective), 24, decide=decide)
    assert check(plant.rate(plant.threads, plant.limit_millicores)), plant.threads


def test_a_target_rate_out_of_reach_gives_the_best_and_says_so() -> None:
    plant = SyntheticWorkload(HEAVY, threads=2)
    plant.tick()
    decision = fresh_decision(
        plant.observe(), objective={"type": "TargetThroughput", "tasksPerSecond": "1M"}
    )
    assert "OutOfReach" in step_outcomes(decision)
    assert decision.target is not None
    assert decision.target.cpu_limit_millicores == 4000
