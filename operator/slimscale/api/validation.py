"""What is wrong with a spec, in words that name the field, the value and the remedy."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from slimscale.api.simworkload import SimWorkload
from slimscale.api.sliminference import SlimInference

__all__ = ["describe_errors", "describe_never_namespace", "describe_never_serving"]
__all__ += ["validate_simworkload", "validate_sliminference"]

_MAX_MESSAGES = 8
_MAX_SHOWN_VALUE = 60

_REMEDIES = {
    "missing": "is missing; add it",
    "extra_forbidden": "is not a field of {kind}; check its spelling (kubectl explain {lower}.spec)",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a string",
    "model_type": "must be a mapping of fields",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
}


def validate_simworkload(body: Mapping[str, Any]) -> SimWorkload:
    """Parse a custom resource as the API server holds it; its status is not judged.

    Raises:
        ValidationError: give it to `describe_errors`.
    """
    return SimWorkload.model_validate({key: body[key] for key in body if key != "status"})


def validate_sliminference(body: Mapping[str, Any]) -> SlimInference:
    """Parse a custom resource as the API server holds it; its status is not judged.

    Raises:
        ValidationError: give it to `describe_errors`.
    """
    return SlimInference.model_validate({key: body[key] for key in body if key != "status"})


def describe_errors(error: ValidationError) -> list[str]:
    """One line an error, the field first: `spec.threads.min 0: ... ; write ...`."""
    lines = [_line(dict(entry), error.title) for entry in error.errors(include_url=False)]
    if len(lines) > _MAX_MESSAGES:
        lines = [*lines[:_MAX_MESSAGES], f"and {len(lines) - _MAX_MESSAGES} more"]
    return lines


def describe_never_namespace(namespace: str) -> str:
    """Why a SimWorkload in a namespace of the system or of the operator is refused."""
    return (
        f"metadata.namespace {namespace}: workloads there are never changed; create the"
        " SimWorkload beside its target in another namespace"
    )


def describe_never_serving(namespace: str) -> str:
    """Why a SlimInference in a namespace of the system or of the operator is refused."""
    return (
        f"metadata.namespace {namespace}: nothing is served from there; create the SlimInference in"
        " another namespace"
    )


def _line(entry: dict[str, Any], resource: str) -> str:
    where = _path(entry["loc"])
    kind = entry["type"]
    context = entry.get("ctx") or {}
    value = entry.get("input")
    shown = "" if isinstance(value, dict | list) or kind == "missing" else f" {_short(value)}"
    if kind == "value_error":
        # our own validators name field, value and remedy themselves
        return f"{where}: {context.get('error', entry['msg'])}"
    if kind in _REMEDIES:
        remedy = _REMEDIES[kind].format(kind=resource, lower=resource.lower())
        return f"{where}{shown} {remedy}"
    bounds = {
        "greater_than_equal": ("is below the least", "ge", "write that or more"),
        "less_than_equal": ("is above the most", "le", "write that or less"),
        "greater_than": ("must be above", "gt", "raise it"),
        "string_too_long": ("is longer than", "max_length", "shorten it"),
        "string_too_short": ("is shorter than", "min_length", "write more"),
        "too_long": ("has more entries than", "max_length", "remove some"),
    }
    if kind in bounds:
        words, key, remedy = bounds[kind]
        return f"{where}{shown} {words}, {context.get(key)}; {remedy}"
    if kind in {"enum", "literal_error"}:
        return f"{where}{shown} is unknown; write one of {context.get('expected')}"
    if kind == "string_pattern_mismatch":
        return f"{where}{shown} does not match {context.get('pattern')}; rewrite it so that it does"
    return f"{where}{shown}: {entry['msg']}"


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "spec"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_VALUE else text[: _MAX_SHOWN_VALUE - 1] + "…"
