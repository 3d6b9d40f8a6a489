"""What the status says, and when it is worth a write."""

import json
from dataclasses import replace
from typing import Any

import pytest

from slimscale.act.builders import merge_diff
from slimscale.act.plan import plan
from slimscale.act.status import render_invalid_spec_status, render_status, status_needs_write
from slimscale.api.simworkload import SimWorkloadSpec, SimWorkloadStatus
from slimscale.domain.decision import Confidence, DecisionStep, ModelView, PodTarget
from slimscale.domain.observation import ConflictKind, Observation, OtherOwner
from slimscale.domain.plan import ApplyResult, OperationResult, Plan, ResizePod
from tests.support.decisions import make_decision, pod_with
from tests.support.observations import make_observation, make_spec

TARGET = PodTarget(4, 1000, 2000)
MODEL = ModelView(
    predictor="analytic",
    task_seconds=0.0123456,
    task_cpu_seconds=0.0098765,
    ratio=245.678,
    predicted_tasks_per_second=412.3456,
    measured_tasks_per_second=398.7654,
    curve=tuple((k, 100.0 * k) for k in range(1, 200)),
)


def _render(
    observation: Observation | None = None,
    *,
    previous: dict[str, Any] | None = None,
    now: float = 1000.0,
    spec: SimWorkloadSpec | None = None,
    made: Plan | None = None,
    result: ApplyResult | None = None,
    **decided: object,
) -> dict[str, Any]:
    observation = observation or make_observation((pod_with(),), now)
    target = decided.pop("target", TARGET)
    assert target is None or isinstance(target, PodTarget)
    decision = make_decision(target, **({"model": MODEL} | decided))
    spec = spec or make_spec()
    made = made or plan(
        observation=observation, decision=decision, spec=spec, memo={}, now_seconds=now
    )
    status = render_status(
        observation=observation, decision=decision, plan=made,
        result=result or ApplyResult(), spec=spec, previous=previous, now_seconds=now,
    )  # fmt: skip
    # What is written must be what the CRD takes, after a journey through JSON.
    SimWorkloadStatus.model_validate(json.loads(json.dumps(status, allow_nan=False)))
    return status


def _condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    found = next(c for c in status["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


def test_a_workload_that_stands_as_decided_is_ready_and_says_why() -> None:
    status = _render(steps=(DecisionStep("Predict", "Chosen", "4 threads reach the objective"),))
    assert _condition(status, "Ready") == ("True", "UpToDate")
    assert _condition(status, "Applied") == ("True", "AllAcknowledged")
    assert status["current"] == {"threads": 4, "cpuRequest": "1", "cpuLimit": "2"}
    assert status["target"] == {"threads": 4, "cpuRequest": "1", "cpuLimit": "2"}
    assert status["steps"][0]["reason"] == "4 threads reach the objective"
    assert status["acknowledgedPods"] == 1


def test_figures_have_three_significant_digits_and_nothing_that_is_not_finite() -> None:
    odd = replace(MODEL, ratio=float("inf"), task_blocked_seconds=float("nan"))
    status = _render(model=odd)
    assert status["predictedTasksPerSecond"] == 412.0
    assert status["inputs"]["taskSeconds"] == 0.0123
    assert "ratio" not in status
    assert "taskBlockedSeconds" not in status["inputs"]


def test_current_is_what_pods_acknowledge_not_what_they_were_asked_for() -> None:
    pod = pod_with(threads=4, desired_threads=8)
    status = _render(make_observation((pod,), 1000.0), target=PodTarget(8, 1000, 2000))
    assert status["current"]["threads"] == 4
    assert status["pods"][0]["threads"] == 4
    assert status["pods"][0]["desiredThreads"] == 8
    assert status["acknowledgedPods"] == 0
    assert _condition(status, "Ready") == ("False", "Progressing")


def test_transition_times_move_only_when_a_status_does() -> None:
    first = _render(now=1000.0)
    second = _render(
        previous=first, now=2000.0, metrics_reason="MetricsStale", metrics_message="too old"
    )
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times["SpecValid"] == "1970-01-01T00:16:40Z"
    assert times["MetricsAvailable"] == "1970-01-01T00:33:20Z"
    assert all(c["observedGeneration"] == 1 for c in second["conditions"])


def test_the_history_grows_with_changes_only_and_keeps_five() -> None:
    status: dict[str, Any] | None = None
    for index in range(20):
        threads = 2 + index // 2
        status = _render(previous=status, now=1000.0 + index, target=PodTarget(threads, 1000, 2000))
    assert status is not None
    history = status["history"]
    assert [entry["toThreads"] for entry in history] == [7, 8, 9, 10, 11]
    assert [entry["fromThreads"] for entry in history] == [6, 7, 8, 9, 10]
    assert status["lastChanged"] == history[-1]["time"]


def test_a_fault_is_never_hidden_behind_the_bound_of_fifty_pods() -> None:
    pods = tuple(pod_with(index=i) for i in range(60))
    pods = (*pods, pod_with(index=999, has_live_channel=False, threads=2))
    status = _render(make_observation(pods, 1000.0))
    assert len(status["pods"]) == 50
    assert any(row["state"] == "NoLiveChannel" for row in status["pods"])
    assert status["replicas"] == 61


def test_long_texts_are_cut_to_what_the_crd_takes() -> None:
    status = _render(
        message="m" * 5000,
        steps=tuple(DecisionStep("s" * 99, "o" * 99, "r" * 999) for _ in range(40)),
    )
    assert len(status["curve"]) == 64
    assert max(len(c["message"]) for c in status["conditions"]) == 1024


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (make_spec(updatePolicy={"mode": "Off"}), ("True", "RecommendationOnly")),
        (make_spec(suspend=True), ("False", "Suspended")),
    ],
)
def test_ready_says_when_nothing_is_meant_to_be_written(
    spec: SimWorkloadSpec, expected: tuple[str, str]
) -> None:
    assert _condition(_render(spec=spec), "Ready") == expected


def test_another_owner_is_named_in_no_conflict_and_ready() -> None:
    observation = make_observation(
        (pod_with(),), 1000.0, other_owners=(OtherOwner(ConflictKind.HPA_ON_CPU, "web-hpa"),)
    )
    status = _render(observation, may_write=False)
    assert _condition(status, "NoConflict") == ("False", "HorizontalPodAutoscalerOnCPU")
    assert _condition(status, "Ready") == ("False", "HorizontalPodAutoscalerOnCPU")
    message = next(c["message"] for c in status["conditions"] if c["type"] == "NoConflict")
    assert "web-hpa" in message


def test_a_manager_that_reverts_us_is_a_conflict() -> None:
    status = _render(made=Plan(reason="OtherManagerReverts", message="3 times"))
    assert _condition(status, "NoConflict") == ("False", "OtherManagerReverts")


def test_a_missing_target_is_said_and_takes_away_no_history() -> None:
    before = _render()
    lost = make_observation(
        (), 1100.0, target=None, target_problem="TargetNotFound", target_message="no such thing"
    )
    status = _render(lost, previous=before, now=1100.0, target=None)
    assert _condition(status, "TargetResolved") == ("False", "TargetNotFound")
    assert _condition(status, "Ready") == ("False", "TargetNotFound")
    assert status["target"] == before["target"]
    assert status["history"] == before["history"]


def test_the_words_of_a_refused_write_reach_the_user() -> None:
    operation = ResizePod("sim-0", "uid-0", "sim", None, 4000, "Target")
    result = ApplyResult((OperationResult(operation, False, False, "Refused", "exceeds the max"),))
    status = _render(result=result)
    assert _condition(status, "Applied") == ("False", "ResizeRefused")
    assert "exceeds the max" in json.dumps(status["conditions"])


def test_pods_without_metrics_are_ready_on_the_floor_of_their_quota() -> None:
    status = _render(reason="FloorOfQuota", metrics_reason="NoContract")
    assert _condition(status, "MetricsAvailable") == ("False", "NoContract")
    assert _condition(status, "Ready") == ("True", "UpToDate")


def test_a_look_without_a_prediction_keeps_the_figures_that_explain_the_target() -> None:
    before = _render()
    status = _render(previous=before, model=ModelView(predictor="none"))
    assert status["predictor"] == "analytic"
    assert status["inputs"] == before["inputs"]


def test_an_invalid_spec_keeps_what_was_known_and_names_the_problems() -> None:
    before = _render()
    status = render_invalid_spec_status(
        problems=["threads.min: 9 is above max 4; lower min"],
        generation=7,
        previous=before,
        now_seconds=2000.0,
    )
    SimWorkloadStatus.model_validate(status)
    assert _condition(status, "SpecValid") == ("False", "Invalid")
    assert _condition(status, "Ready") == ("False", "Invalid")
    assert status["target"] == before["target"]
    assert status["observedGeneration"] == 7
    assert status_needs_write(before, status, last_written_seconds=1999.0, now_seconds=2000.0)
    again = render_invalid_spec_status(
        problems=["threads.min: 9 is above max 4; lower min"],
        generation=7,
        previous=status,
        now_seconds=3000.0,
    )
    assert again == status


# Writes


def test_a_noisy_steady_state_is_never_written_again() -> None:
    published = _render()
    for index in range(200):
        noise = 1.0 + 0.08 * (-1) ** index
        model = replace(
            MODEL,
            measured_tasks_per_second=398.0 * noise,
            task_seconds=0.0123 / noise,
            ratio=245.0 * noise,
        )
        now = 1000.0 + 15 * (index + 1)
        status = _render(
            previous=published,
            now=now,
            model=model,
            confidence=Confidence.MEDIUM if index % 3 else Confidence.HIGH,
            message=f"{398 * noise} tasks/s",
            steps=(DecisionStep("Observe", "Found", f"{398 * noise} tasks/s"),),
        )
        assert not status_needs_write(
            published, status, last_written_seconds=1000.0, now_seconds=now
        )


def test_a_figure_that_moved_is_written_but_not_twice_in_thirty_seconds() -> None:
    published = _render()
    moved = _render(previous=published, model=replace(MODEL, measured_tasks_per_second=200.0))
    assert not status_needs_write(published, moved, last_written_seconds=990.0, now_seconds=1000.0)
    assert status_needs_write(published, moved, last_written_seconds=990.0, now_seconds=1020.0)
    assert status_needs_write(published, moved, last_written_seconds=None, now_seconds=1000.0)


@pytest.mark.parametrize(
    "change",
    [
        {"target": PodTarget(5, 1000, 2000)},
        {"metrics_reason": "MetricsStale"},
        {"observation": make_observation((pod_with(threads=3),), 1000.0)},
        {"observation": make_observation((pod_with(),), 1000.0, generation=2)},
        {"observation": make_observation((pod_with(kept_env=("OMP_NUM_THREADS",)),), 1000.0)},
    ],
    ids=["target", "condition", "acknowledgement", "generation", "kept variables"],
)
def test_what_matters_is_written_at_once(change: dict[str, Any]) -> None:
    published = _render()
    status = _render(previous=published, **change)
    assert status_needs_write(published, status, last_written_seconds=999.9, now_seconds=1000.0)


def test_the_first_status_is_written() -> None:
    assert status_needs_write(None, _render(), last_written_seconds=None, now_seconds=1000.0)


def test_a_merge_patch_removes_what_is_gone_and_is_empty_when_nothing_differs() -> None:
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1]}
    new = {"b": {"c": 1}, "e": [1, 2]}
    assert merge_diff(old, new) == {"a": None, "b": {"d": None}, "e": [1, 2]}
    assert merge_diff(new, new) == {}
