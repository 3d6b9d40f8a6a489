"""Requests, responses and limits of the HTTP server."""

from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from slimscale.serving.http.deferred import Deferred

__all__ = ["Handler", "Limits", "Request", "Response", "head_of", "text_response"]

JSON_TYPE = (b"content-type", b"application/json")
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may cost. Past a limit the client gets a 4xx and the connection closes."""

    body_bytes: int = 16 * 2**20
    header_bytes: int = 16 * 2**10
    """Request line and all headers together."""
    header_count: int = 100
    chunks: int = 8192
    """Of one chunked body: a chunk of one byte costs as much work as one of a thousand."""
    idle_seconds: float = 75.0
    """Between two requests. Longer than a client keeps its idle connections, so that it closes first."""
    receive_seconds: float = 30.0
    """From a request's first byte to its last one."""
    write_seconds: float = 30.0
    """A client that takes no bytes of its answer for so long is cut off."""
    linger_seconds: float = 2.0
    """After an early refusal what the client still sends is thrown away for so long, so that it can
    read the answer instead of meeting a reset."""
    connections: int = 4096
    receiving_bytes: int = 256 * 2**20
    """Of all bodies that are still arriving, over all connections: many large ones at once get a 503."""


class Request:
    """One whole request.

    `headers` has names in lower case; of a repeated header the last one counts. `received_at` is the
    loop's time at which the last byte came. `cancelled` turns true when the client has gone.
    """

    __slots__ = (
        "_callbacks",
        "body",
        "cancelled",
        "headers",
        "keep_alive",
        "method",
        "path",
        "query",
        "received_at",
    )

    def __init__(
        self,
        method: bytes,
        path: str,
        headers: dict[bytes, bytes],
        body: bytes = b"",
        *,
        query: str = "",
        keep_alive: bool = True,
        received_at: float = 0.0,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive
        self.received_at = received_at
        self.cancelled = False
        self._callbacks: list[Callable[[], None]] | None = None

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the client goes away before its answer; at once if it has."""
        if self.cancelled:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancel(self) -> None:
        """The client has gone. Called by the server."""
        if not self.cancelled:
            self.cancelled = True
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks or ():
                callback()


class Response:
    """Status, headers (names in lower case) and body; the server adds `content-length`."""

    __slots__ = ("body", "close", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes | Sequence[bytes | memoryview] = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        close: bool = False,
    ) -> None:
        """`body` may be parts, written as they are. `close` ends the connection after it."""
        self.status = status
        self.body = body
        self.headers = headers
        self.close = close


Answer = Response | Deferred[Response] | Future[Response] | Coroutine[Any, Any, Response]
Handler = Callable[[Request], Answer]
"""An `async def`, or a plain function that gives the response, or what will have it, at once.

The plain forms save a task per request, and Deferred a turn of the loop. When the client goes away
all of them are cancelled, after `Request.on_cancel`'s callbacks. A handler that raises gives a 500
without details.
"""


def text_response(status: int, text: str, *, close: bool = False) -> Response:
    return Response(status, text.encode(), (TEXT_TYPE,), close=close)


_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def head_of(response: Response, body_bytes: int, *, close: bool) -> bytes:
    """Status line and headers, up to and with the empty line."""
    parts = [_STATUS_LINES.get(response.status) or b"HTTP/1.1 %d \r\n" % response.status]
    for name, value in response.headers:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"content-length: %d\r\n" % body_bytes)
    parts.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(parts)
