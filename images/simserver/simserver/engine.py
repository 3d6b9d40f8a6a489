"""The external engine: a second process that a task asks over a socket and waits for.

It stands for a solver, a renderer or another simulator with its own licence server: it answers
after a while and, while it works, the asking thread can only wait. Protocol: one JSON object a
line, answered by one JSON object a line, in order.

    {"wait_seconds": 0.04, "velocity": [0.1, 0.0, -0.2]}   ->   {"force": [-0.2, 0.0, 0.4]}
    anything else                                          ->   {"error": "what to mend"}
"""

import asyncio
import json
import math
import socket
from collections.abc import Sequence
from typing import Any

__all__ = ["EngineClient", "EngineError", "answer", "parse_request", "serve", "split_address"]

MOST_LINE_BYTES = 4096
MOST_COMPONENTS = 64
LONGEST_WAIT_SECONDS = 5.0
DRAG = 2.0
REPLY_TIMEOUT_SECONDS = 10.0


class EngineError(Exception):
    """The engine refused a request, or it cannot be reached."""


def parse_request(line: bytes) -> tuple[float, list[float]]:
    """(wait_seconds, velocity); EngineError names the field that is wrong."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise EngineError("the line is not JSON; send one object a line") from None
    if not isinstance(request, dict):
        raise EngineError("the line is not an object; send wait_seconds and velocity")
    wait = _number(request.get("wait_seconds"), "wait_seconds")
    if not 0 <= wait <= LONGEST_WAIT_SECONDS:
        raise EngineError(f"wait_seconds must be 0 to {LONGEST_WAIT_SECONDS:g}")
    velocity = request.get("velocity")
    if not isinstance(velocity, list) or len(velocity) > MOST_COMPONENTS:
        raise EngineError(f"velocity must be a list of at most {MOST_COMPONENTS} numbers")
    return wait, [_number(v, "velocity") for v in velocity]


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EngineError(f"{field} must be a finite number")
    return float(value)


def answer(velocity: Sequence[float]) -> bytes:
    """Drag against the motion: the little work that the engine does itself."""
    return json.dumps({"force": [-DRAG * v for v in velocity]}).encode() + b"\n"


async def serve(host: str, port: int) -> asyncio.Server:
    """Listen; the caller keeps the server and closes it. Port 0 takes a free one."""
    return await asyncio.start_server(_session, host, port, limit=MOST_LINE_BYTES)


async def _session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            try:
                wait, velocity = parse_request(line)
            except EngineError as error:
                writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
            else:
                await asyncio.sleep(wait)
                writer.write(answer(velocity))
            await writer.drain()
    except (ValueError, ConnectionError):
        # ValueError: a line beyond the limit, after which the stream has no beginning of a line.
        pass
    except asyncio.CancelledError:
        return  # the engine stops
    finally:
        writer.close()


def split_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:7070` -> ("127.0.0.1", 7070); ValueError says what to write."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"engine address {text[:60]!r} is not HOST:PORT; write 127.0.0.1:7070")
    return host.strip("[]"), int(port)


class EngineClient:
    """One connection, for one thread. Reconnects after any fault; never retries a request."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._stream: Any = None

    def force(self, velocity: Sequence[float], *, wait_seconds: float) -> list[float]:
        """Ask and wait. Raises EngineError; the next call starts with a new connection."""
        line = json.dumps({"wait_seconds": wait_seconds, "velocity": list(velocity)}).encode()
        try:
            self._connect()
            assert self._socket is not None  # noqa: S101 - set by _connect
            self._socket.sendall(line + b"\n")
            reply = self._stream.readline(MOST_LINE_BYTES)
            if not reply.endswith(b"\n"):
                raise ConnectionError("the engine closed the connection")
            body = json.loads(reply)
        except (OSError, ValueError) as error:
            self.close()
            raise EngineError(f"no answer from the engine: {type(error).__name__}") from error
        if "force" not in body:
            raise EngineError(str(body.get("error", "no force in the reply"))[:200])
        return [float(f) for f in body["force"]]

    def _connect(self) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=REPLY_TIMEOUT_SECONDS)
            # Without it the kernel holds small writes back for up to 40 ms: as long as the wait.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        if self._socket is not None:
            self._stream.close()
            self._socket.close()
        self._socket = self._stream = None
