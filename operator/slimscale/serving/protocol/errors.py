"""Refusals: `{"error": "..."}` with a status, as the protocol has it."""

from pydantic_core import to_json

from slimscale.exceptions import SlimError
from slimscale.serving.headers import RETRY_AFTER
from slimscale.serving.http.messages import JSON_TYPE, Response

__all__ = ["InvalidRequest", "error_response"]


class InvalidRequest(SlimError):
    """The client's fault. The message names the field, what is wrong and what would be right."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def error_response(
    status: int,
    message: str,
    *,
    retry_after_seconds: float | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Response:
    """`retry_after_seconds` is rounded up: the header takes whole seconds, and 0 would mean at once."""
    if retry_after_seconds is not None:
        whole = max(1, -int(-retry_after_seconds // 1))
        headers = (*headers, (RETRY_AFTER, b"%d" % whole))
    return Response(status, to_json({"error": message}), (JSON_TYPE, *headers))
