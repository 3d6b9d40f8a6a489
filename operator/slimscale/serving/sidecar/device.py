"""What the model server says of its device, read with care: absent or odd is unknown, never 0."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from slimscale.domain.serving import PodTelemetry

__all__ = ["read_device"]


def read_device(document: Mapping[str, Any]) -> PodTelemetry:
    """`/device` as the fields of telemetry that belong to the device; the other fields are empty."""
    utilisation = _number(document.get("utilisation"))
    name = document.get("device")
    return PodTelemetry(
        widths=(),
        backlog_seconds=0.0,
        utilisation=utilisation if utilisation is None or utilisation <= 1.0 else 1.0,
        memory_free_bytes=_whole(document.get("memory_free_bytes")),
        memory_total_bytes=_whole(document.get("memory_total_bytes")),
        power_watts=_number(document.get("power_watts")),
        device=name if isinstance(name, str) and name else None,
        device_lost=document.get("lost") is True,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
