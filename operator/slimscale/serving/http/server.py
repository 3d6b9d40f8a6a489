"""The HTTP/1.1 server: listens, bounds connections, sweeps slow ones, drains."""

import asyncio
import logging
import socket
from collections.abc import Callable
from math import inf

from slimscale.serving.http.messages import Handler, Limits, Response, text_response
from slimscale.serving.http.server_connection import ServerConnection

__all__ = ["HttpServer"]

_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 0.5


class HttpServer:
    """Serves `handler` until closed.

    `refusal(status, text)` builds the answer to what never reaches the handler (a body that is too
    large, no HTTP, too slow); `refused(status)` is told of each, for a metric.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limits: Limits | None = None,
        name: str = "server",
        refusal: Callable[[int, str], Response] = text_response,
        refused: Callable[[int], None] = lambda _status: None,
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        """May be replaced while running: connections read it anew."""
        self.name = name
        self.refusal = refusal
        self.refused = refused
        self.draining = False
        """True: every answer says `connection: close`."""
        self.receiving_bytes = 0
        """Of bodies that have not come in whole; kept by the connections."""
        self.loop: asyncio.AbstractEventLoop
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event

    async def start(
        self, host: str | None = None, port: int = 0, *, sock: socket.socket | None = None
    ) -> None:
        """Listen on `host` (None: every address, IPv4 and IPv6) or on a socket that is bound already."""
        self.loop = asyncio.get_running_loop()
        self._emptied = asyncio.Event()
        if sock is not None:
            self._server = await self.loop.create_server(lambda: ServerConnection(self), sock=sock)
        else:
            self._server = await self.loop.create_server(
                lambda: ServerConnection(self), host, port, backlog=1024
            )
        self._schedule_sweep()

    @property
    def port(self) -> int:
        """The port it listens on; with `port=0` the kernel has chosen it."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("the server is not listening")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def listening(self) -> bool:
        return self._server is not None

    @property
    def connections(self) -> int:
        return len(self._connections)

    def drain(self) -> None:
        """From now on every answer closes its connection, so that clients go to another pod."""
        self.draining = True

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stop listening, close idle connections, wait for the others up to `grace_seconds`."""
        self.draining = True
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._connections):
            connection.close_if_idle()
        if self._connections and grace_seconds > 0:
            self._emptied.clear()
            try:
                await asyncio.wait_for(self._emptied.wait(), grace_seconds)
            except TimeoutError:
                _log.warning("%s: %d connections cut off", self.name, len(self._connections))
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # lets the transports tell their connections

    def sweep(self, now: float) -> None:
        """Look at every connection's deadline; `now` on the loop's clock."""
        for connection in tuple(self._connections):
            if connection.deadline <= now:
                connection.expire()

    def first_deadline(self) -> float:
        """When the first connection will have been slow for too long; infinite where none can be."""
        return min((connection.deadline for connection in self._connections), default=inf)

    def _schedule_sweep(self) -> None:
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._swept)

    def _swept(self) -> None:
        self.sweep(self.loop.time())
        self._schedule_sweep()

    # ---- told by connections

    def opened(self, connection: ServerConnection) -> bool:
        """False: one connection too many."""
        self._connections.add(connection)
        return len(self._connections) <= self.limits.connections

    def closed(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()
