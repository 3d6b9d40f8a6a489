"""The rules of `decide` one by one: holds, conflicts, bounds, CPU policies, memory, replay."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from slimscale.domain.decision import Action, Confidence, Decision, PodTarget
from slimscale.domain.observation import (
    ConflictKind,
    ContainerResources,
    Freshness,
    LimitRangeBounds,
    Observation,
    OtherOwner,
    PodObservation,
    QosClass,
)
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.estimate import Estimate
from slimscale.threads.guards import sane_threads
from slimscale.threads.predictor import AnalyticPredictor, Surface, floor_of_quota
from tests.support.observations import (
    SyntheticWorkload,
    drive,
    make_node,
    make_observation,
    make_pod,
    make_sample,
    make_spec,
)

HEAVY = NetworkParameters(0.0, 20e-3, 60e-6, 2.0, contention_linear=0.7)
BLOCKING = NetworkParameters(20e-3, 2e-3, 60e-6, 2.0, contention_linear=0.7)
LIGHT = NetworkParameters(0.0, 20e-6, 60e-6, 2.0, contention_linear=0.7)
SPEC = make_spec()


def settled(
    truth: NetworkParameters = BLOCKING, **fields: object
) -> tuple[SyntheticWorkload, dict[str, object], Decision]:
    """A plant after two minutes, its memo and last decision."""
    plant = SyntheticWorkload(truth, threads=8, noise=0.02)
    seen: list[Decision] = []
    memo = drive(plant, make_spec(**fields), 24, decide=decide, each=seen.append)
    return plant, memo, seen[-1]


def ask(
    plant: SyntheticWorkload, memo: dict[str, object], pod: PodObservation | None = None
) -> Decision:
    observation = plant.observe()
    if pod is not None:
        observation = replace(observation, pods=(pod,))
    return decide(observation=observation, spec=SPEC, memo=memo, now_seconds=plant.now_seconds)


def fresh_decision(observation: Observation, **fields: object) -> Decision:
    return decide(
        observation=observation,
        spec=make_spec(**fields),
        memo={},
        now_seconds=observation.sampled_at_seconds,
    )


def step_outcomes(decision: Decision) -> set[str]:
    return {step.outcome for step in decision.steps}


# --- data that cannot be used -------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples": (), "freshness": Freshness.MISSING}, "MetricsMissing"),
        ({"freshness": Freshness.STALE}, "MetricsStale"),
        ({"freshness": Freshness.INVALID}, "MetricsInvalid"),
    ],
)
def test_an_outage_holds_the_last_target_and_writes_nothing(
    change: dict[str, object], reason: str
) -> None:
    plant, memo, last = settled()
    decision = ask(plant, memo, plant.pod(**change))
    assert decision.action is Action.HOLD
    assert decision.target == last.target
    assert not decision.may_write
    assert decision.metrics_reason == reason
    assert decision.memo["target"] == memo["target"]


def test_old_samples_are_stale_even_when_they_are_called_fresh() -> None:
    plant, memo, last = settled()
    decision = decide(
        observation=plant.observe(), spec=SPEC, memo=memo, now_seconds=plant.now_seconds + 61
    )
    assert (decision.action, decision.metrics_reason) == (Action.HOLD, "MetricsStale")
    assert decision.target == last.target


@pytest.mark.parametrize("field", ["tasks_total", "task_cpu_seconds_total", "cpu_quota_cores"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -5.0])
def test_numbers_that_cannot_be_hold(field: str, value: float) -> None:
    plant, memo, last = settled()
    broken = replace(plant.samples[-1], **{field: value})  # type: ignore[arg-type]
    decision = ask(plant, memo, plant.pod(samples=(*plant.samples[:-1], broken)))
    assert decision.action is Action.HOLD
    assert decision.metrics_reason == "MetricsInvalid"
    assert decision.target == last.target
    assert not decision.may_write


def test_a_source_that_fails_as_a_whole_is_named() -> None:
    plant, memo, last = settled()
    observation = plant.observe(metrics_problem="Prometheus answered 503")
    decision = decide(
        observation=observation,
        spec=make_spec(metrics={"source": "Prometheus"}),
        memo=memo,
        now_seconds=plant.now_seconds,
    )
    assert decision.metrics_reason == "PrometheusError"
    assert decision.target == last.target
    assert not decision.may_write


def test_idle_is_not_missing_and_never_scales_down() -> None:
    plant, memo, last = settled()
    plant.saturated = False
    for _ in range(6):
        plant.tick()
        plant.samples[-1] = replace(plant.samples[-1], tasks_outstanding=0.0)
    decision = ask(plant, memo)
    assert decision.metrics_reason == "Idle"
    assert decision.action is Action.HOLD
    assert decision.target == last.target


def test_a_restarted_process_gives_no_negative_work() -> None:
    plant, memo, last = settled()
    fresh = make_sample(
        plant.now_seconds + 5, tasks=3, threads=plant.threads, process_start_seconds=9e5
    )
    plant.now_seconds += 5
    decision = ask(plant, memo, plant.pod(samples=(*plant.samples, fresh)))
    assert decision.target == last.target
    assert decision.model.measured_tasks_per_second is None


def test_a_clock_set_back_neither_raises_nor_blocks() -> None:
    plant, memo, _ = settled()
    plant.now_seconds -= 86400
    plant.samples = [
        replace(s, sampled_at_seconds=s.sampled_at_seconds - 86400) for s in plant.samples
    ]
    memo = ask(plant, memo).memo
    plant.truth = LIGHT
    drive(plant, SPEC, 12, memo=memo, decide=decide)
    assert plant.threads == 1


# --- several pods -------------------------------------------------------------------------


def workload(count: int, *, broken: int) -> Observation:
    pods = []
    for index in range(count):
        uid = f"uid-{index}"
        samples = tuple(
            make_sample(1000.0 + 5 * i, tasks=100.0 * i, pod_uid=uid, threads=2) for i in range(5)
        )
        pod = make_pod(index, samples=samples)
        if index < broken:
            pod = replace(pod, samples=(), freshness=Freshness.MISSING)
        pods.append(pod)
    return make_observation(tuple(pods), 1020.0)


def test_one_failed_scrape_does_not_stop_the_others() -> None:
    decision = fresh_decision(workload(4, broken=1))
    assert decision.metrics_reason == "MetricsPartial"
    assert decision.reason == "Predicted"


def test_less_than_half_of_the_pods_is_no_quorum() -> None:
    decision = fresh_decision(workload(4, broken=3))
    assert decision.metrics_reason in ("MetricsMissing", "WarmingUp")
    assert decision.target is None
    assert not decision.may_write


@pytest.mark.parametrize(
    "change",
    [{"ready": False}, {"terminating": True}, {"phase": "Pending"}, {"crash_looping": True}],
)
def test_pods_that_start_stop_or_crash_do_not_count(change: dict[str, object]) -> None:
    observation = workload(2, broken=0)
    odd = replace(observation.pods[0], **change, samples=())  # type: ignore[arg-type]
    decision = fresh_decision(replace(observation, pods=(odd, observation.pods[1])))
    assert decision.metrics_reason == "MetricsFound"


def test_samples_of_a_dead_pod_are_nobodys() -> None:
    observation = workload(1, broken=0)
    reborn = replace(observation.pods[0], uid="uid-new")
    decision = fresh_decision(replace(observation, pods=(reborn,)))
    assert decision.model.measured_tasks_per_second is None


def test_before_and_after_a_change_of_threads_are_not_mixed() -> None:
    samples = [make_sample(1000.0 + 5 * i, tasks=1000.0 * i, threads=8) for i in range(4)]
    samples += [make_sample(1020.0 + 5 * i, tasks=4000.0 + 100.0 * i, threads=2) for i in range(3)]
    decision = fresh_decision(make_observation((make_pod(samples=tuple(samples)),), 1030.0))
    assert decision.model.measured_tasks_per_second == pytest.approx(20.0)


# --- no contract --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "threads"),
    [(1, 1), (100, 1), (500, 1), (999, 1), (1000, 1), (1500, 1), (1999, 1), (7650, 7), (64000, 64)],
)
def test_without_metrics_threads_are_the_floor_of_the_quota(limit: int, threads: int) -> None:
    resources = ContainerResources(1, limit, 1, 2)
    pod = make_pod(spec_resources=resources, freshness=Freshness.MISSING)
    observation = make_observation((pod,), 1000.0, nodes={"node-0": make_node(cores=96)})
    decision = fresh_decision(observation)
    assert decision.target is not None
    assert decision.target.threads == threads == floor_of_quota(limit / 1000)
    assert (decision.target.cpu_limit_millicores, decision.confidence) == (None, Confidence.LOW)
    assert (decision.reason, decision.metrics_reason) == ("FloorOfQuota", "NoContract")


def test_a_pod_that_served_metrics_once_does_not_fall_back_to_floor_of_quota() -> None:
    plant, memo, last = settled()
    plant.now_seconds += 3600
    decision = ask(plant, memo, plant.pod(samples=(), freshness=Freshness.MISSING))
    assert decision.target == last.target
    assert decision.reason == "Held"


def test_a_young_pod_is_waited_for() -> None:
    pod = make_pod(created_at_seconds=990.0)
    decision = fresh_decision(make_observation((pod,), 1000.0))
    assert (decision.metrics_reason, decision.target) == ("WarmingUp", None)


# --- who may write ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"updatePolicy": {"mode": "Off"}}, {"suspend": True}], ids=["off", "suspend"]
)
def test_off_and_suspend_recommend_and_do_not_write(fields: dict[str, object]) -> None:
    plant = SyntheticWorkload(BLOCKING, threads=4)
    seen: list[Decision] = []
    drive(plant, make_spec(**fields), 4, decide=decide, each=seen.append)
    assert plant.threads == 4
    assert seen[-1].target is not None
    assert seen[-1].target.threads > 10
    assert not any(d.may_write for d in seen)


@pytest.mark.parametrize(
    ("kind", "values", "writes"),
    [
        (ConflictKind.HPA_ON_CPU, "RequestsAndLimits", False),
        (ConflictKind.HPA_ON_CPU, "LimitsOnly", True),
        (ConflictKind.VPA_ON_TARGET, "RequestsAndLimits", False),
        (ConflictKind.VPA_ON_TARGET, "LimitsOnly", True),
        (ConflictKind.SECOND_SIMWORKLOAD, "LimitsOnly", False),
    ],
)
def test_another_owner_of_the_cpu_forbids_writing(
    kind: ConflictKind, values: str, writes: bool
) -> None:
    observation = replace(workload(1, broken=0), other_owners=(OtherOwner(kind, "other"),))
    decision = fresh_decision(observation, cpu={"controlledValues": values})
    assert decision.may_write is writes
    assert decision.target is not None
    if not writes:
        assert any("other" in step.reason for step in decision.steps)


def test_a_target_that_is_not_there_holds_with_its_reason() -> None:
    observation = replace(
        workload(1, broken=0), target=None, target_message="Deployment sim was not found"
    )
    decision = fresh_decision(observation)
    assert decision.action is Action.HOLD
    assert "not found" in decision.message
    assert not decision.may_write


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
