"""The one place where text becomes part of a PromQL query."""

import re
from collections.abc import Iterable, Mapping

__all__ = ["any_of", "equals", "range_query"]

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REGEX_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$\-])")


def equals(label: str, value: str) -> str:
    """A matcher for exactly this value, whatever it holds."""
    return f"{_name(label)}={_quoted(value)}"


def any_of(label: str, values: Iterable[str]) -> str:
    """A matcher for any of these values; nothing in them acts as a regular expression."""
    alternatives = "|".join(_REGEX_SPECIAL.sub(r"\\\1", value) for value in values)
    return f"{_name(label)}=~{_quoted(alternatives)}"


def range_query(
    *,
    prefix: str,
    names: Iterable[str],
    namespace_label: str,
    namespace: str,
    pod_label: str,
    pods: Iterable[str],
    matchers: Mapping[str, str],
    seconds: int,
) -> str:
    """All raw samples of the contract's series of some pods in the last seconds.

    The namespace is always matched, beside whatever the user's matchers say: they can narrow the
    answer, never widen it.
    """
    terms = [
        any_of("__name__", [f"{prefix}_{name}" for name in names]),
        equals(namespace_label, namespace),
        any_of(pod_label, pods),
        *(equals(label, value) for label, value in sorted(matchers.items())),
    ]
    return f"{{{','.join(terms)}}}[{int(seconds)}s]"


def _name(label: str) -> str:
    if _LABEL_NAME.fullmatch(label) is None:
        raise ValueError("a label's name may hold letters, digits and underscores only")
    return label


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
