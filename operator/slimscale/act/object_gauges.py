"""Gauges of one object each: what is unknown has no series, and a condition becomes a number."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import Gauge

__all__ = ["condition_value", "set_or_remove"]

_VALUES = {"True": 1.0, "False": 0.0}


def set_or_remove(gauge: Gauge, labels: tuple[str, ...], value: float | None) -> None:
    """What is unknown (None) has no series; it is never 0."""
    if value is not None:
        gauge.labels(*labels).set(value)
    else:
        with suppress(KeyError):  # never set, or removed before
            gauge.remove(*labels)


def condition_value(status: Mapping[str, Any], kind: str) -> float | None:
    """1 for a condition that is True, 0 for one that is False; None: Unknown, or not told."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == kind:
            return _VALUES.get(str(condition.get("status")))
    return None
