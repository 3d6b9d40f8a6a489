"""Whoever sees a condition finds its type and its reason in the runbook."""

from pathlib import Path

import pytest

from slimscale.api.conditions import ConditionType, Reason

RUNBOOK = (Path(__file__).parents[2] / "docs/runbook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.value)
def test_the_runbook_has_every_reason(reason: Reason) -> None:
    assert f"`{reason.value}`" in RUNBOOK


@pytest.mark.parametrize("kind", list(ConditionType), ids=lambda kind: kind.value)
def test_the_runbook_has_every_condition(kind: ConditionType) -> None:
    assert kind.value in RUNBOOK
