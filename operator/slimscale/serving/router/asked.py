"""What a client asks for: deadline, SLO, accuracy, rows and an id, from headers and little else.

Of the body only the first shape is looked for; it goes on unchanged.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from slimscale.api.serving_config import RouterConfig
from slimscale.serving.headers import DEADLINE_MILLISECONDS, MIN_ACCURACY, REQUEST_ID, SLO
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.protocol.requests import peek_rows

__all__ = ["Asked", "read_asked"]

_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_BODY_ID = re.compile(rb'"id"\s*:\s*"([A-Za-z0-9._:/+=-]{1,128})"')
_HEAD_BYTES = 512
"""Clients write the id in front; further in it is not looked for."""
_MOST_MILLISECONDS = 86_400_000.0
_MOST_ROWS = 2**20

DEFAULT_CLASS = "default"
OWN_CLASS = "own"


@dataclass(frozen=True, slots=True)
class Asked:
    rows: int
    deadline_seconds: float
    """From the request's arrival."""
    slo_seconds: float
    slo_class: str
    """A name of router.json, `default`, or `own` for a number: a bounded label."""
    min_accuracy: float
    request_id: bytes
    """Empty where the client names none that is short and plain."""


def read_asked(headers: Mapping[bytes, bytes], body: bytes, config: RouterConfig) -> Asked:
    """InvalidRequest (400) names the header and what would be right."""
    deadline = config.timeout_milliseconds / 1000.0
    value = headers.get(DEADLINE_MILLISECONDS)
    if value is not None:
        milliseconds = _number(value, "Slimscale-Deadline-Ms", 0.0, _MOST_MILLISECONDS)
        deadline = min(milliseconds / 1000.0, _MOST_MILLISECONDS)
    slo, slo_class = config.slo_milliseconds / 1000.0, DEFAULT_CLASS
    value = headers.get(SLO)
    if value is not None:
        slo, slo_class = _slo(value, config)
    accuracy = config.min_accuracy
    value = headers.get(MIN_ACCURACY)
    if value is not None:
        accuracy = _number(value, "Slimscale-Min-Accuracy", 0.0, 1.0)
        best = max(width.accuracy for width in config.widths)
        if accuracy > best:
            raise InvalidRequest(
                f"header Slimscale-Min-Accuracy: {accuracy:g}; the most accurate width has {best:g}"
            )
    rows = min(peek_rows(body) or 1, _MOST_ROWS)
    return Asked(
        rows, deadline, slo, slo_class, accuracy, _request_id(headers.get(REQUEST_ID), body)
    )


def _slo(value: bytes, config: RouterConfig) -> tuple[float, str]:
    name = value.decode("latin-1")
    milliseconds = config.slo_classes.get(name)
    if milliseconds is not None:
        return milliseconds / 1000.0, name
    if not name[:1].isdigit():
        known = ", ".join(config.slo_classes) or "none is set up"
        raise InvalidRequest(
            f"header Slimscale-Slo: {name[:40]!r} is no class; send milliseconds or a class of"
            f" this service ({known})"
        )
    return _number(value, "Slimscale-Slo", 1.0, _MOST_MILLISECONDS) / 1000.0, OWN_CLASS


def _number(value: bytes, header: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (isfinite(number) and least <= number <= most):
        raise InvalidRequest(
            f"header {header}: {value[:40].decode('latin-1')!r}; send a number from {least:g} to"
            f" {most:g}"
        )
    return number


def _request_id(header: bytes | None, body: bytes) -> bytes:
    if header is not None:
        return header if _ID.fullmatch(header) else b""
    found = _BODY_ID.search(body, 0, _HEAD_BYTES)
    return found[1] if found else b""
