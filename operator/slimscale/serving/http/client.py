"""A pool of keep-alive connections. Follows no redirects, and says whether anything was sent."""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Sequence

from slimscale.serving.http.client_connection import (
    ClientConnection,
    ClientResponse,
    ExchangeFailed,
)

__all__ = ["ClientPool", "ClientResponse", "ExchangeFailed", "request_head"]

Headers = Iterable[tuple[bytes, bytes]]
_FRESH_SECONDS = 1.0
"""Idle for longer: let the loop see first whether the other side has closed it."""


def request_head(
    method: bytes, host: str, port: int, target: bytes, *, headers: Headers, body_bytes: int
) -> bytes:
    """Request line and headers. ValueError for a header that would break its line."""
    name = host if ":" not in host else f"[{host}]"
    parts = [method, b" ", target, b" HTTP/1.1\r\nhost: ", f"{name}:{port}\r\n".encode()]
    for key, value in headers:
        if b"\n" in value or b"\r" in value:
            raise ValueError(f"a line break in the value of header {key.decode('latin-1')}")
        parts += (key, b": ", value, b"\r\n")
    if body_bytes or method not in (b"GET", b"HEAD"):
        parts.append(b"content-length: %d\r\n" % body_bytes)
    parts.append(b"\r\n")
    return b"".join(parts)


class _Host:
    """Connections to one address."""

    __slots__ = ("forgotten", "idle", "opened", "waiting")

    def __init__(self) -> None:
        self.forgotten = False
        self.idle: list[ClientConnection] = []
        self.opened = 0
        self.waiting: deque[asyncio.Future[ClientConnection | None]] = deque()


class ClientPool:
    """Requests to any number of hosts, with at most `per_host` connections to each.

    `tls`: every connection of the pool uses it. Close it with `close`.
    """

    def __init__(
        self,
        *,
        per_host: int = 64,
        idle_seconds: float = 60.0,
        connect_seconds: float = 1.0,
        body_limit_bytes: int = 64 * 2**20,
        header_limit_bytes: int = 64 * 2**10,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._per_host = per_host
        self._idle_seconds = idle_seconds
        self._connect_seconds = connect_seconds
        self._body_limit = body_limit_bytes
        self._header_limit = header_limit_bytes
        self._tls = tls
        self._hosts: dict[tuple[str, int], _Host] = {}

    async def request(
        self,
        method: bytes,
        host: str,
        port: int,
        target: bytes,
        *,
        headers: Headers = (),
        body: bytes | Sequence[bytes | memoryview] = b"",
        timeout_seconds: float,
    ) -> ClientResponse:
        """One exchange: waiting for a connection, connecting and the answer all within the time-out.

        Raises ExchangeFailed; its `sent` tells whether a second try could double the work. When the
        caller is cancelled the connection is closed, so that the other side can stop as well.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        parts = (body,) if isinstance(body, bytes) else body
        head = request_head(
            method, host, port, target, headers=headers, body_bytes=sum(map(len, parts))
        )
        pool = self._hosts.get((host, port))
        if pool is None:
            pool = self._hosts[host, port] = _Host()
        connection = await self._acquire(pool, host, port, deadline)
        try:
            return await connection.exchange((head, *parts), deadline)
        finally:
            self._release(pool, connection)

    def idle_now(self, host: str, port: int) -> ClientConnection | None:
        """A connection that can be used this instant, or None. For callers that write the request
        with `ClientConnection.send` themselves and then `give_back` the connection."""
        pool = self._hosts.get((host, port))
        if pool is None or not pool.idle:
            return None
        connection = pool.idle[-1]
        now = asyncio.get_running_loop().time()
        if not connection.usable or now - connection.idle_since > _FRESH_SECONDS:
            return None  # `request` looks closer
        return pool.idle.pop()

    def give_back(self, host: str, port: int, connection: ClientConnection) -> None:
        """After `idle_now`, once the answer has come or the exchange has failed."""
        pool = self._hosts.get((host, port))
        if pool is None:
            connection.abort()
        else:
            self._release(pool, connection)

    def idle_connections(self, host: str, port: int) -> int:
        pool = self._hosts.get((host, port))
        return sum(connection.usable for connection in pool.idle) if pool else 0

    def forget(self, host: str, port: int) -> None:
        """Close the idle connections to an address that is not coming back."""
        pool = self._hosts.pop((host, port), None)
        if pool is not None:
            pool.forgotten = True  # what is in use closes when its answer has come
            for connection in pool.idle:
                connection.close()

    async def close(self) -> None:
        for host, port in tuple(self._hosts):
            self.forget(host, port)
        await asyncio.sleep(0)

    # ---- connections

    async def _acquire(
        self, pool: _Host, host: str, port: int, deadline: float
    ) -> ClientConnection:
        loop = asyncio.get_running_loop()
        while True:
            while pool.idle:
                connection = pool.idle.pop()
                idle_seconds = loop.time() - connection.idle_since
                if idle_seconds > _FRESH_SECONDS and connection.usable:
                    await asyncio.sleep(0)
                if connection.usable and idle_seconds < self._idle_seconds:
                    return connection
                connection.close()
                pool.opened -= 1
            if pool.opened < self._per_host:
                return await self._connect(pool, host, port, deadline)
            turn: asyncio.Future[ClientConnection | None] = loop.create_future()
            pool.waiting.append(turn)
            timer = loop.call_at(deadline, self._give_up, turn)
            try:
                given = await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self._pass_on(pool, turn.result())
                raise
            finally:
                timer.cancel()
            if given is not None and given.usable:
                return given
            if given is not None:
                pool.opened -= 1

    def _give_up(self, turn: asyncio.Future[ClientConnection | None]) -> None:
        if not turn.done():
            turn.set_exception(
                ExchangeFailed(
                    f"all {self._per_host} connections stayed busy", sent=False, late=True
                )
            )

    async def _connect(
        self, pool: _Host, host: str, port: int, deadline: float
    ) -> ClientConnection:
        loop = asyncio.get_running_loop()
        pool.opened += 1
        seconds = min(self._connect_seconds, deadline - loop.time())
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(
                        loop, body_limit=self._body_limit, header_limit=self._header_limit
                    ),
                    host,
                    port,
                    ssl=self._tls,
                )
        except BaseException as error:
            pool.opened -= 1
            self._pass_on(pool, None)
            if isinstance(error, TimeoutError):
                late = loop.time() >= deadline
                raise ExchangeFailed(
                    f"no connection within {seconds:.3g} s", sent=False, late=late
                ) from error
            if isinstance(error, OSError):
                raise ExchangeFailed(f"no connection: {error}", sent=False) from error
            raise
        return connection

    def _release(self, pool: _Host, connection: ClientConnection) -> None:
        if not connection.usable or pool.forgotten:
            connection.abort()
            pool.opened -= 1
            self._pass_on(pool, None)
            return
        connection.idle_since = asyncio.get_running_loop().time()
        connection.reused = True
        self._pass_on(pool, connection)

    def _pass_on(self, pool: _Host, connection: ClientConnection | None) -> None:
        """Give a connection, or the right to open one (None), to whoever waits longest."""
        while pool.waiting:
            turn = pool.waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is not None:
            pool.idle.append(connection)
