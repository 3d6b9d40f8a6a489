"""A refused spec says which field, which value, and what to write instead."""

from typing import Any

import pytest
from pydantic import ValidationError

from slimscale.api.validation import describe_errors, validate_simworkload


def messages(**spec: Any) -> list[str]:
    body = {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SimWorkload",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"targetRef": {"name": "x"}, **spec},
    }
    with pytest.raises(ValidationError) as caught:
        validate_simworkload(body)
    return describe_errors(caught.value)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ({"threads": {"min": 0}}, ["spec.threads.min", "0", "1", "or more"]),
        ({"threads": {"max": 9999}}, ["spec.threads.max", "9999", "1024"]),
        ({"threads": {"min": 8, "max": 4}}, ["threads.min 8", "threads.max 4", "lower min"]),
        ({"threads": {"mim": 1}}, ["spec.threads.mim", "spelling"]),
        ({"cpu": {"min": "lots"}}, ["spec.cpu.min", "lots", "500m"]),
        ({"cpu": {"min": "3", "max": "2"}}, ["cpu.min 3", "cpu.max 2"]),
        ({"updatePolicy": {"mode": "Always"}}, ["spec.updatePolicy.mode", "Always", "InPlace"]),
        ({"objective": {"type": "TargetThroughput"}}, ["objective.tasksPerSecond", "missing"]),
        ({"targetRef": {}}, ["spec.targetRef.name", "missing"]),
        ({"targetRef": {"name": "x", "namespace": "y"}}, ["spec.targetRef.namespace"]),
        ({"targetRef": {"name": "x", "kind": "Pod"}}, ["spec.targetRef.kind", "Pod", "Deployment"]),
        ({"metrics": {"path": "http://x"}}, ["spec.metrics.path", "http://x"]),
        ({"threads": {"env": ["A B"]}}, ["spec.threads.env[0]", "A B"]),
    ],
)
def test_each_message_names_field_value_and_remedy(spec: dict[str, Any], parts: list[str]) -> None:
    text = "; ".join(messages(**spec))
    for part in parts:
        assert part in text


def test_all_errors_are_told_at_once() -> None:
    assert len(messages(threads={"min": 0, "max": 0}, cpu={"headroomPercent": -1})) == 3


def test_a_huge_value_is_shortened() -> None:
    assert len(messages(containerName="X" * 5000)[0]) < 300


def test_an_odd_status_does_not_make_a_spec_invalid() -> None:
    body = {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"targetRef": {"name": "x"}},
        "status": {"surprise": 1},
    }
    assert validate_simworkload(body).spec.target_ref.name == "x"
