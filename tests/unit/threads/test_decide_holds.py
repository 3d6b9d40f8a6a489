"""When `decide` holds and when it may write: data, pods, no contract, conflicts."""

import math
from dataclasses import replace

import pytest

from slimscale.domain.decision import Action, Confidence, Decision
from slimscale.domain.observation import (
    ConflictKind,
    ContainerResources,
    Freshness,
    OtherOwner,
)
from slimscale.threads.decide import decide
from slimscale.threads.predictor import floor_of_quota
from tests.support.decide_cases import BLOCKING, LIGHT, SPEC, ask, fresh_decision, settled, workload
from tests.support.observations import (
    SyntheticWorkload,
    drive,
    make_node,
    make_observation,
    make_pod,
    make_sample,
    make_spec,
)

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
