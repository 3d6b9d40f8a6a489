"""One keep-alive connection of the client: one exchange at a time, and what is known when it fails."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httptools

from slimscale.exceptions import SlimError
from slimscale.serving.http.deferred import Deferred

__all__ = ["ClientConnection", "ClientResponse", "ExchangeFailed"]

_JOIN_BYTES = 64 * 2**10


class ExchangeFailed(SlimError):
    """No whole answer came.

    `sent` False: not one byte of the request has left, so that sending it elsewhere can't double it.
    `late` True: the deadline passed. `answered` True: the head of an answer had come.
    """

    def __init__(
        self, message: str, *, sent: bool, late: bool = False, answered: bool = False
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.late = late
        self.answered = answered


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """`headers` has names in lower case; of a repeated header the last one counts."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class ClientConnection(asyncio.Protocol):
    """Made by ClientPool. `exchange` writes a whole request and gives a future of its answer."""

    __slots__ = (
        "_answer", "_body", "_body_bytes", "_body_limit", "_deadline", "_header_limit", "_headers",
        "_headers_done", "_loop", "_over", "_parser", "_raw_headers", "_timer", "_transport",
        "_unfinished_bytes", "_until_close", "_whole", "idle_since", "on_header", "reused",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, body_limit: int, header_limit: int
    ) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._raw_headers: dict[bytes, bytes] = {}
        self.on_header = self._raw_headers.__setitem__
        """Called for each header: no function of Python's on this way."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[ClientResponse] | Deferred[ClientResponse] | None = None
        self._whole: ClientResponse | None = None
        """The answer has come in whole; it is handed over once the parser is done with it."""
        self._over = False
        """Nothing more may come or go on this connection."""
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Outlives its exchange: a timer for each would cost more than one look for nothing."""
        self._body_limit = body_limit
        self._header_limit = header_limit
        self.idle_since = 0.0
        self.reused = False
        self.on_message_begin()

    # ---- for the pool

    @property
    def usable(self) -> bool:
        """Open, and with no exchange on it."""
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and self._answer is None
        )

    def exchange(
        self, parts: Sequence[bytes | memoryview], deadline: float
    ) -> asyncio.Future[ClientResponse]:
        """Send a request, head first; the answer, or ExchangeFailed, by `deadline` (loop's time).

        Cancelling the future closes the connection, which tells the other side.
        """
        answer: asyncio.Future[ClientResponse] = self._loop.create_future()
        answer.add_done_callback(self._settled)
        self.send(parts, deadline, answer)
        return answer

    def send(
        self,
        parts: Sequence[bytes | memoryview],
        deadline: float,
        answer: asyncio.Future[ClientResponse] | Deferred[ClientResponse],
    ) -> None:
        """As `exchange`, into a future or a Deferred of the caller's. `abort` gives it up."""
        transport = self._transport
        if transport is None or transport.is_closing():
            answer.set_exception(ExchangeFailed("the connection was closed", sent=False))
            return
        self._answer = answer
        if sum(map(len, parts)) <= _JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
        self._deadline = deadline
        timer = self._timer
        if timer is None or timer.when() > deadline:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _settled(self, answer: "asyncio.Future[ClientResponse]") -> None:
        if answer.cancelled() and answer is self._answer:
            self._answer = None
            self.abort()

    def _expire(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        if self._deadline > self._loop.time():  # of a later exchange
            self._timer = self._loop.call_at(self._deadline, self._expire)
            return
        self._fail("no answer by the deadline", late=True)
        self.abort()  # its answer may still come, and must not meet the next request

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, message: str, *, late: bool = False) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(
                ExchangeFailed(message, sent=True, late=late, answered=self._headers_done)
            )

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._fail(f"the connection was lost: {exc or 'closed by the other side'}")

    def eof_received(self) -> bool:
        if self._headers_done and self._until_close:
            self.on_message_complete()
            self._over = True
            if self._whole is not None:
                self._complete(self._whole)
        return False  # the transport closes itself

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # Nothing was asked: a late 408, or garbage. Either way not a connection to use again.
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not valid HTTP/1.1: {error}")
            self.abort()
        else:
            if self._whole is not None:
                self._complete(self._whole)
            elif self._endless(len(data)):
                self._fail(f"headers of more than {self._header_limit} bytes")
                self.abort()

    def _endless(self, size: int) -> bool:
        """Headers, or trailers, that do not end: the parser itself would collect them all."""
        if not self._headers_done:
            self._unfinished_bytes += size
            return self._unfinished_bytes > self._header_limit
        return bool(self._raw_headers) and self._size(self._raw_headers) > self._header_limit

    @staticmethod
    def _size(raw: dict[bytes, bytes]) -> int:
        return sum(map(len, raw)) + sum(map(len, raw.values()))

    # ---- httptools

    def on_message_begin(self) -> None:
        self._raw_headers.clear()
        self._headers: dict[bytes, bytes] = {}
        self._headers_done = False
        self._unfinished_bytes = 0
        self._until_close = False
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_headers_complete(self) -> None:
        self._headers_done = True
        raw = self._raw_headers
        if self._size(raw) > self._header_limit:
            raise ValueError(f"headers of more than {self._header_limit} bytes")
        self._headers = {name.lower(): value for name, value in raw.items()}
        raw.clear()  # what comes now are trailers, which change nothing
        self._until_close = not (
            b"content-length" in self._headers or b"transfer-encoding" in self._headers
        )

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._body_limit:
            raise ValueError(f"an answer of more than {self._body_limit} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # a `100 Continue` before the answer
            return
        if self._whole is not None:  # an answer to nothing: it must not become the next one's
            self._over = True
            return
        body, self._body = self._body, []
        self._whole = ClientResponse(
            status, self._headers, body[0] if len(body) == 1 else b"".join(body)
        )
        self._over = not self._parser.should_keep_alive()

    def _complete(self, response: ClientResponse) -> None:
        answer, self._answer = self._answer, None
        self._whole = None
        if self._over:
            self.abort()
        if answer is not None and not answer.done():
            answer.set_result(response)
