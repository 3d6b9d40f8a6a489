"""One connection of the server: parse, hand over one request at a time, write its answer."""

import asyncio
import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import httptools

from slimscale.serving.http.deferred import Deferred
from slimscale.serving.http.messages import Request, Response, head_of

if TYPE_CHECKING:
    from slimscale.serving.http.server import HttpServer

__all__ = ["ServerConnection"]

_log = logging.getLogger(__name__)

_AHEAD_BYTES = 64 * 2**10
"""What a client may send ahead while its earlier request is being answered."""
_JOIN_BYTES = 64 * 2**10
"""Up to here one copy into one write is cheaper than a vector of buffers."""


class _Refused(Exception):
    """A limit was passed while parsing; `_refusal` keeps what to answer."""


class ServerConnection(asyncio.Protocol):
    """Holds one body at a time, plus what one read brought. `HttpServer.sweep` looks at `deadline`."""

    __slots__ = (
        "_ahead", "_ahead_bytes", "_body", "_body_bytes", "_chunks", "_current", "_dead",
        "_headers", "_headers_done", "_in_message", "_loop", "_parser", "_raw_headers", "_ready",
        "_refusal", "_server", "_target", "_transport", "_unfinished_bytes", "_work", "_writable",
        "deadline", "on_header",
    )  # fmt: skip

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._loop = server.loop
        self._transport: asyncio.Transport
        self._raw_headers: dict[bytes, bytes] = {}
        self.on_header = self._raw_headers.__setitem__
        """Called for each header: no function of Python's on this way."""
        self._parser: Any = httptools.HttpRequestParser(self)
        self._ready: deque[Request] = deque()
        self._ahead: list[bytes] = []
        self._ahead_bytes = 0
        self._current: Request | None = None
        self._work: asyncio.Future[Response] | Deferred[Response] | None = None
        self._refusal: Response | None = None
        self._writable = True
        self._dead = False
        """Closed, or only waiting to be: nothing is parsed any more."""
        self._unfinished_bytes = 0
        self._body_bytes = 0
        self.on_message_begin()
        self._in_message = False
        self.deadline = self._loop.time() + server.limits.idle_seconds

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport
        if not self._server.opened(self):
            self._write(self._server.refusal(503, "too many connections; try again soon"), True)
            self._transport.close()
            self._dead = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.closed(self)
        self._server.receiving_bytes -= self._body_bytes
        self._body_bytes = 0
        self._dead = True
        self._ready.clear()
        self._ahead.clear()
        current, self._current = self._current, None
        work, self._work = self._work, None
        if current is not None:
            current.cancel()
        if work is not None:
            work.cancel()

    def eof_received(self) -> bool:
        # A client that has shut down its side counts as gone: nobody asks an inference server
        # through a half-closed socket, and the answer would take rows of a batch for no one.
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self.deadline = self._loop.time() + self._server.limits.write_seconds

    def resume_writing(self) -> None:
        self._writable = True
        if self._current is None:
            self._proceed()

    def data_received(self, data: bytes) -> None:
        if self._dead:
            return
        if self._current is None and self._writable:
            self._parse(data)
            self._proceed()
            return
        self._ahead.append(data)
        self._ahead_bytes += len(data)
        if self._ahead_bytes > _AHEAD_BYTES:
            self._transport.pause_reading()

    @property
    def idle(self) -> bool:
        """Between two requests: closing now loses nothing."""
        return self._current is None and not (self._in_message or self._ready or self._ahead)

    def close_if_idle(self) -> None:
        if self.idle:
            self._dead = True
            self._transport.close()

    def expire(self) -> None:
        """`deadline` has passed."""
        if self._in_message and self._current is None and self._writable and not self._dead:
            seconds = self._server.limits.receive_seconds
            self._refusal = self._server.refusal(
                408, f"the request took more than {seconds:g} s to arrive"
            )
            self._proceed()
        elif self._dead or not self._writable:
            self._transport.abort()
        else:
            self.close_if_idle()

    def abort(self) -> None:
        self._transport.abort()

    # ---- parsing

    def _parse(self, data: bytes) -> None:
        was_in_message = self._in_message
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # An offer such as `Upgrade: h2c` may be ignored; what follows it is no HTTP/1.1.
            if self._ready:
                self._ready[-1].keep_alive = False
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = self._server.refusal(400, f"not valid HTTP/1.1: {error}")
            self._in_message = False
            return
        if self._in_message:
            if not was_in_message:
                self.deadline = self._loop.time() + self._server.limits.receive_seconds
            if not self._headers_done:  # the parser itself would collect one endless header
                self._unfinished_bytes += len(data)
                if self._unfinished_bytes > self._server.limits.header_bytes:
                    self._refusal = self._headers_too_large()
            elif self._raw_headers and self._too_many(self._raw_headers):  # endless trailers
                self._refusal = self._headers_too_large()

    def on_message_begin(self) -> None:
        self._in_message = True
        self._target = b""
        self._raw_headers.clear()
        self._headers: dict[bytes, bytes] = {}
        self._headers_done = False
        self._unfinished_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._chunks = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_headers_complete(self) -> None:
        self._headers_done = True
        raw = self._raw_headers
        if self._too_many(raw):
            self._refuse(self._headers_too_large())
        self._headers = headers = {name.lower(): value for name, value in raw.items()}
        raw.clear()  # what comes now are trailers, which change nothing
        if b"host" not in headers and self._parser.get_http_version() == "1.1":
            self._refuse(self._server.refusal(400, "header Host is missing; HTTP/1.1 asks for it"))
        length = int(headers.get(b"content-length", b"0"))
        if length > self._server.limits.body_bytes:
            self._refuse(self._too_large(length))
        if b"expect" in headers and (length or b"transfer-encoding" in headers):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        size = len(data)
        self._body_bytes += size
        self._server.receiving_bytes += size
        if self._body_bytes > self._server.limits.body_bytes:
            self._refuse(self._too_large(self._body_bytes))
        if self._server.receiving_bytes > self._server.limits.receiving_bytes:
            self._refuse(self._server.refusal(503, "too many large bodies at once; try again"))
        self._body.append(data)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        limit = self._server.limits.chunks
        if self._chunks > limit:
            self._refuse(
                self._server.refusal(413, f"body in more than {limit} chunks; send larger ones")
            )

    def on_message_complete(self) -> None:
        body = self._body
        path, _, query = self._target.decode("latin-1").partition("?")
        self._ready.append(
            Request(
                self._parser.get_method(),
                path,
                self._headers,
                body[0] if len(body) == 1 else b"".join(body),
                query=query,
                keep_alive=self._parser.should_keep_alive(),
                received_at=self._loop.time(),
            )
        )
        self._body = []
        self._server.receiving_bytes -= self._body_bytes
        self._body_bytes = 0
        self._in_message = False

    def _too_large(self, length: int) -> Response:
        limit = self._server.limits.body_bytes
        return self._server.refusal(
            413, f"body of {length} bytes or more; at most {limit} are taken: send fewer rows"
        )

    def _too_many(self, raw: dict[bytes, bytes]) -> bool:
        limits = self._server.limits
        size = len(self._target) + sum(map(len, raw)) + sum(map(len, raw.values()))
        return size > limits.header_bytes or len(raw) > limits.header_count

    def _headers_too_large(self) -> Response:
        limits = self._server.limits
        return self._server.refusal(
            431,
            f"request line and headers pass {limits.header_bytes} bytes or {limits.header_count}"
            " headers; send fewer",
        )

    def _refuse(self, response: Response) -> None:
        self._refusal = response
        raise _Refused

    # ---- answering

    def _proceed(self) -> None:
        """Answer what has come in whole, one at a time and in order; refuse, or read on."""
        while self._current is None and self._writable and not self._dead:
            if self._ready:
                self._handle(self._ready.popleft())
            elif self._refusal is not None:
                self._end_after(self._refusal)
            elif self._ahead:
                ahead, self._ahead = b"".join(self._ahead), []
                if self._ahead_bytes > _AHEAD_BYTES:
                    self._transport.resume_reading()
                self._ahead_bytes = 0
                self._parse(ahead)
            else:
                return

    def _handle(self, request: Request) -> None:
        self._current = request
        self.deadline = inf  # the handler keeps its own time
        try:
            answer = self._server.handler(request)
            if isinstance(answer, Response):
                self._finish(answer)
                return
            if isinstance(answer, Deferred):
                self._work = answer
                answer.then(self._settled)
                return
            work: asyncio.Future[Response]
            work = answer if isinstance(answer, asyncio.Future) else self._loop.create_task(answer)
        except Exception:
            _log.exception("%s failed", self._server.name)
            self._finish(self._server.refusal(500, "internal error; see the server's log"))
            return
        self._work = work
        work.add_done_callback(self._done)

    def _settled(self, work: Deferred[Response]) -> None:
        if work is not self._work:  # the client has gone
            return
        self._work = None
        error = work.exception()
        if error is not None:
            _log.error("%s failed", self._server.name, exc_info=error)
            self._finish(self._server.refusal(500, "internal error; see the server's log"))
        else:
            self._finish(work.result())
        self._proceed()

    def _done(self, work: asyncio.Future[Response]) -> None:
        error = None if work.cancelled() else work.exception()
        if work is not self._work:  # the client has gone
            return
        self._work = None
        if error is not None:
            _log.error("%s failed", self._server.name, exc_info=error)
        if error is not None or work.cancelled():
            response = self._server.refusal(500, "internal error; see the server's log")
        else:
            response = work.result()
        self._finish(response)
        self._proceed()

    def _finish(self, response: Response) -> None:
        request, self._current = self._current, None
        if request is None:  # the connection went away while a plain handler ran
            return
        close = response.close or not request.keep_alive or self._server.draining
        self._write(response, close, head_only=request.method == b"HEAD")
        if close:
            self._dead = True
            self._transport.close()
            return
        limits = self._server.limits
        seconds = limits.receive_seconds if self._in_message else limits.idle_seconds
        if self._writable:  # else pause_writing has set it
            self.deadline = self._loop.time() + seconds

    def _end_after(self, response: Response) -> None:
        """Refuse and close, but let the client read why: what it still sends is thrown away."""
        self._dead = True
        self._body = []
        self._server.receiving_bytes -= self._body_bytes
        self._body_bytes = 0
        self._server.refused(response.status)
        self._write(response, True)
        self.deadline = self._loop.time() + self._server.limits.linger_seconds
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _write(self, response: Response, close: bool, head_only: bool = False) -> None:
        body = response.body
        parts = (body,) if isinstance(body, bytes) else body
        size = sum(map(len, parts))
        head = head_of(response, size, close=close)
        if head_only:
            self._transport.write(head)
        elif size <= _JOIN_BYTES:
            self._transport.write(b"".join((head, *parts)))
        else:
            self._transport.writelines((head, *parts))
