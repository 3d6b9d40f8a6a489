"""One keep-alive connection with at most one request on it."""

import asyncio
from typing import Any, Protocol

import httptools

__all__ = ["Connection", "Owner"]


class Owner(Protocol):
    """Who is told how a request ended. Called once for each `send`, and `opened` once."""

    def opened(self, connection: "Connection") -> None: ...

    def done(
        self, connection: "Connection", *, status: int, body: bytes, json_bytes: int
    ) -> None: ...

    def gone(self, connection: "Connection", *, busy: bool) -> None: ...


class Connection(asyncio.Protocol):
    """`number`, `due` and `sent` belong to the owner: they say what is on the way."""

    __slots__ = (
        "_body", "_json_bytes", "_keep", "_owner", "_parser", "_transport", "busy", "closing",
        "due", "number", "sent", "status",
    )  # fmt: skip

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []
        self._json_bytes = 0
        self.busy = False
        self.closing = False
        self.number = -1
        self.due = 0.0
        self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # always a stream here
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.closing = True
        busy, self.busy = self.busy, False
        self._owner.gone(self, busy=busy)

    def send(self, data: bytes) -> None:
        if self._transport is None:
            raise RuntimeError("not connected yet; wait for `opened`")
        self.busy = True
        self._body = []
        self._json_bytes = 0
        self._transport.write(data)

    def close(self) -> None:
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 31 and name.lower() == b"inference-header-content-length":
            self._json_bytes = int(value)

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        if not self.busy:
            self.close()  # an answer nobody asked for
            return
        self.busy = False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if not self._parser.should_keep_alive():
            self.closing = True
        self._owner.done(
            self, status=self._parser.get_status_code(), body=body, json_bytes=self._json_bytes
        )
