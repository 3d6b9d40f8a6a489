"""An answer that goes on for long, such as a watch: read piece by piece, with a limit on silence."""

import asyncio
import ssl
from typing import Any

import httptools

from slimscale.serving.http.client import Headers, request_head
from slimscale.serving.http.client_connection import ExchangeFailed

__all__ = ["ClientStream", "open_stream"]

_PAUSE_PIECES = 256
"""So many unread pieces, and reading stops until the reader has caught up."""


class ClientStream(asyncio.Protocol):
    """An asynchronous iterator of the body's pieces, on a connection of its own.

    Ends when the answer does; raises ExchangeFailed when the connection breaks before that or says
    nothing for `silence_seconds`. `status` and `headers` are set once `open_stream` has returned.
    """

    def __init__(self, silence_seconds: float) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._silence_seconds = silence_seconds
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._pieces: list[bytes] = []
        self._changed = asyncio.Event()
        self._begun = False
        self._ended = False
        self._error: ExchangeFailed | None = None

    async def head(self) -> None:
        """Wait for the status and the headers."""
        while not self._begun:
            self._raise_if_over()
            await self._wait()

    def __aiter__(self) -> "ClientStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._ended:
                raise StopAsyncIteration
            self._raise_if_over()
            await self._wait()
        pieces, self._pieces = self._pieces, []
        self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, head: bytes) -> None:
        self._transport.write(head)

    def close(self) -> None:
        self._transport.abort()

    async def _wait(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._silence_seconds):
                await self._changed.wait()
        except TimeoutError:
            self._fail(f"nothing came for {self._silence_seconds:g} s")
            self.close()

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error

    def _fail(self, message: str) -> None:
        if self._error is None and not self._ended:
            self._error = ExchangeFailed(message, sent=True, answered=self._begun)
        self._changed.set()

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was lost: {exc or 'closed by the other side'}")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not valid HTTP/1.1: {error}")
            self.close()
        if len(self._pieces) > _PAUSE_PIECES:
            self._transport.pause_reading()
        self._changed.set()

    # ---- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._begun = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._ended = True


async def open_stream(
    method: bytes,
    host: str,
    port: int,
    target: bytes,
    *,
    headers: Headers = (),
    connect_seconds: float = 5.0,
    silence_seconds: float = 60.0,
    tls: ssl.SSLContext | None = None,
) -> ClientStream:
    """Send a request without a body and wait for the head of its answer. Raises ExchangeFailed."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_seconds):
            _, stream = await loop.create_connection(
                lambda: ClientStream(silence_seconds), host, port, ssl=tls
            )
    except OSError as error:  # TimeoutError is one of them
        raise ExchangeFailed(f"no connection: {error or 'time-out'}", sent=False) from error
    stream.send(request_head(method, host, port, target, headers=headers, body_bytes=0))
    try:
        await stream.head()
    except BaseException:
        stream.close()
        raise
    return stream
