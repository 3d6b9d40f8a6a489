"""From an HTTP answer of the API server to the error that the rest of the package knows."""

import json
from collections.abc import Mapping
from typing import Any

from slimscale.exceptions import Conflict, NotPermitted, SlimError, Unavailable
from slimscale.kubeapi.ports import Refused, WatchExpired

__all__ = ["error_of", "parse_retry_after", "status_message"]

_MESSAGE_LIMIT = 512


def status_message(body: bytes) -> tuple[str, tuple[str, ...]]:
    """Message and causes of a `Status` object. Anything else is not quoted: it may be a proxy's."""
    try:
        status = json.loads(body)
    except ValueError:
        return "", ()
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return "", ()
    details = status.get("details") or {}
    causes = details.get("causes") or [] if isinstance(details, dict) else []
    return str(status.get("message", ""))[:_MESSAGE_LIMIT], tuple(
        _cause(cause) for cause in causes[:8] if isinstance(cause, dict)
    )


def _cause(cause: Mapping[str, Any]) -> str:
    field = str(cause.get("field", ""))
    message = str(cause.get("message", ""))
    return (f"{field}: {message}" if field else message)[:_MESSAGE_LIMIT]


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait; the form with a date is not used by API servers and is ignored."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < 3600 else None


def error_of(*, status: int, headers: Mapping[str, str], body: bytes, request: str) -> SlimError:
    """The error for an answer that is no success.

    request is verb and path, which hold names of objects and nothing secret.
    """
    message, causes = status_message(body)
    text = f"{request}: {status} {message}".rstrip()
    match status:
        case 401 | 403:
            return NotPermitted(text)
        case 404 | 409:
            return Conflict(text)
        case 410:
            return WatchExpired(text)
        case _ if status >= 500 or status in (408, 425, 429):
            return Unavailable(text, parse_retry_after(headers))
        case _:
            return Refused(text, status=status, causes=causes)
