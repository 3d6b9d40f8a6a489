"""Events on transitions, bounded; metrics that end with their object; logs without secrets."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slimscale.act.decision_log import decision_record, log_decision
from slimscale.act.events import EventNote, EventWriter, events_for
from slimscale.act.metrics import OperatorMetrics
from slimscale.domain.decision import Action, DecisionStep, ModelView, PodTarget
from slimscale.domain.plan import ApplyResult, OperationResult, PatchTemplate, Plan, ResizePod
from slimscale.exceptions import NotPermitted
from tests.support.decisions import make_decision, pod_with
from tests.support.fake_kube import FakeKube
from tests.support.observations import make_observation, make_target

THING = {"metadata": {"name": "sim", "namespace": "team", "uid": "uid-cr"}}
TARGET = PodTarget(4, 1000, 2000)


def _status(*conditions: tuple[str, str, str], threads: int = 4) -> dict[str, Any]:
    return {
        "target": {"threads": threads, "cpuLimit": "2"},
        "history": [{"reason": "as predicted"}],
        "conditions": [
            {"type": t, "status": s, "reason": r, "message": "words"} for t, s, r in conditions
        ],
    }


GOOD = _status(("MetricsAvailable", "True", "MetricsFound"), ("NoConflict", "True", "NoOtherOwner"))
STALE = _status(
    ("MetricsAvailable", "False", "MetricsStale"), ("NoConflict", "True", "NoOtherOwner")
)


def test_a_state_that_lasts_is_told_once() -> None:
    assert [n.reason for n in events_for(GOOD, STALE)] == ["MetricsStale"]
    assert events_for(STALE, STALE) == []
    assert [(n.kind, n.reason) for n in events_for(STALE, GOOD)] == [("Normal", "MetricsFound")]


def test_a_new_target_is_told_with_its_reason() -> None:
    (note,) = events_for(GOOD, {**GOOD, "target": {"threads": 6, "cpuLimit": "3"}})
    assert (note.kind, note.reason) == ("Normal", "TargetChanged")
    assert note.message == "6 threads on 3 CPU: as predicted"


@pytest.mark.parametrize("reason", ["WarmingUp", "AwaitingAcknowledgement", "ResizeInProgress"])
def test_the_usual_way_to_a_target_is_no_news(reason: str) -> None:
    assert events_for(GOOD, _status(("MetricsAvailable", "False", reason))) == []


def test_what_the_plan_takes_back_is_a_warning() -> None:
    revert = ResizePod("sim-0", "u", "sim", None, 2000, "ResizeInfeasible", reverts=True)
    (note,) = events_for(GOOD, GOOD, Plan((revert,)))
    assert (note.kind, note.reason) == ("Warning", "ResizeReverted")


async def test_equal_events_are_counted_in_one_object() -> None:
    kube = FakeKube()
    writer = EventWriter(kube, reporter="operator-0")
    for second in range(5):
        note = EventNote("Warning", "MetricsStale", "words")
        await writer.write(THING, [note], now_seconds=1000.0 + second)
    events = (await kube.list("/api/v1/namespaces/team/events")).items
    assert [event["count"] for event in events] == [5]
    assert events[0]["involvedObject"]["uid"] == "uid-cr"
    assert events[0]["metadata"]["namespace"] == "team"


async def test_a_flood_of_events_is_cut_off() -> None:
    kube = FakeKube()
    writer = EventWriter(kube, reporter="operator-0")
    for index in range(500):
        await writer.write(THING, [EventNote("Warning", "R", f"{index}")], now_seconds=1000.0)
    assert len(kube.writes) == 25


async def test_a_forbidden_event_fails_nothing() -> None:
    kube = FakeKube()
    kube.before = lambda call: NotPermitted("events is forbidden")
    await EventWriter(kube, reporter="o").write(
        THING, [EventNote("Warning", "R", "m")], now_seconds=1000.0
    )


# Metrics


def _metrics() -> tuple[CollectorRegistry, OperatorMetrics]:
    registry = CollectorRegistry()
    return registry, OperatorMetrics(registry)


def _report(metrics: OperatorMetrics, **decided: object) -> None:
    observation = make_observation((pod_with(),), 1000.0)
    decision = make_decision(TARGET, **decided)
    metrics.report(
        ("team", "sim"), observation=observation, decision=decision, status=GOOD, now_seconds=1007.0
    )


def test_an_objects_series_end_with_it() -> None:
    registry, metrics = _metrics()
    _report(metrics)
    assert b'slimscale_target_threads{name="sim",namespace="team"} 4.0' in generate_latest(registry)
    metrics.forget(("team", "sim"))
    assert b'name="sim"' not in generate_latest(registry)
    metrics.forget(("team", "sim"))


def test_what_is_unknown_has_no_series_rather_than_zero() -> None:
    registry, metrics = _metrics()
    labels = {"namespace": "team", "name": "sim"}
    _report(metrics)
    assert registry.get_sample_value("slimscale_measured_tasks_per_second", labels) == 100.0
    _report(metrics, model=ModelView(predictor="none"))
    assert registry.get_sample_value("slimscale_measured_tasks_per_second", labels) is None
    assert registry.get_sample_value("slimscale_observation_age_seconds", labels) == 7.0


def test_a_prediction_is_judged_once_by_the_first_measurement_after_its_change() -> None:
    registry, metrics = _metrics()
    predicted = ModelView("analytic", predicted_tasks_per_second=200.0, measured_tasks_per_second=1)
    measured = replace(predicted, measured_tasks_per_second=190.0)
    _report(metrics, action=Action.SCALE_UP, model=predicted)
    name = "slimscale_prediction_measured_over_predicted_ratio"
    assert registry.get_sample_value(f"{name}_count") == 0
    _report(metrics, model=measured)
    _report(metrics, model=measured)
    assert registry.get_sample_value(f"{name}_count") == 1
    assert registry.get_sample_value(f"{name}_sum") == pytest.approx(0.95)


def test_writes_and_decisions_are_counted() -> None:
    registry, metrics = _metrics()
    metrics.wrote("pods/resize", "Refused")
    _report(metrics)
    labels = {"resource": "pods/resize", "result": "Refused"}
    assert registry.get_sample_value("slimscale_api_writes_total", labels) == 1
    labels = {"action": "NoChange", "reason": "Predicted"}
    assert registry.get_sample_value("slimscale_decisions_total", labels) == 1


# Decision log


def test_the_log_holds_no_value_of_a_variable(caplog: pytest.LogCaptureFixture) -> None:
    patch = PatchTemplate(
        "Deployment", "sim", "u", "sim", (("TOKEN", "S3CR3T"),), None, None, 4, "Target"
    )
    observation = make_observation(
        (pod_with(),), 1000.0, target=make_target(template_env={"TOKEN": "S3CR3T"})
    )
    with caplog.at_level(logging.DEBUG):
        log_decision(
            observation=observation,
            decision=make_decision(TARGET),
            plan=Plan((patch,)),
            result=ApplyResult((OperationResult(patch, ok=True, changed=True),)),
            memo={"version": 1},
        )
    (record,) = caplog.records
    text = str(record.__dict__)
    assert "S3CR3T" not in text
    assert "TOKEN" in text


def test_a_line_is_json_with_what_went_in_what_came_out_and_what_was_written() -> None:
    resize = ResizePod("sim-0", "uid-0", "sim", None, 3000, "Target")
    record = decision_record(
        observation=make_observation((pod_with(),), 1000.0),
        decision=make_decision(TARGET),
        plan=Plan((resize,)),
        result=ApplyResult((OperationResult(resize, False, False, "Refused", "words"),)),
        memo={"version": 1},
    )
    line = json.loads(json.dumps(record, allow_nan=False))
    assert line["target"]["threads"] == 4
    assert line["inputs"]["ratio"] == 200.0
    assert line["pods"][0]["cpu"] == [1000, 2000]
    assert line["writes"] == [
        {
            "kind": "ResizePod",
            "object": "sim-0",
            "reason": "Target",
            "ok": False,
            "result": "Refused",
        }
    ]


def test_a_quiet_look_is_not_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_decision(
            observation=make_observation((pod_with(),), 1000.0),
            decision=make_decision(TARGET),
            plan=Plan(),
            result=ApplyResult(),
            memo={},
        )
    assert caplog.records == []


def test_an_event_that_names_the_new_count_does_not_say_it_twice() -> None:
    changed = {**GOOD, "target": {"threads": 1}, "history": [{"reason": "1 thread: predicted 9"}]}
    (note,) = events_for(GOOD, changed)
    assert note.message == "1 thread: predicted 9"


def test_probes_and_their_judgement_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)
    steps = tuple(
        DecisionStep(stage, outcome, "why")
        for stage, outcome in (
            ("Probe", "Search"), ("Verify", "ProbeTakenBack"), ("Verify", "Waiting"),
            ("Estimate", "ConfidenceHigh"),
        )
    )  # fmt: skip
    metrics.report(
        ("team", "sim"), observation=make_observation((pod_with(),), 1000.0), status={}, now_seconds=1000.0,
        decision=make_decision(TARGET, steps=steps),
    )  # fmt: skip
    text = generate_latest(registry).decode()
    counted = [x for x in text.splitlines() if x.startswith("slimscale_tuning_steps_total{")]
    assert counted == [
        'slimscale_tuning_steps_total{outcome="Search",stage="Probe"} 1.0',
        'slimscale_tuning_steps_total{outcome="ProbeTakenBack",stage="Verify"} 1.0',
    ]
