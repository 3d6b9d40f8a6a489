"""Writes to a connection now, not at the end of the event loop's turn.

uvloop keeps a small write until the turn has ended, so that the other side wakes up only when all work
of this turn is done, also what it does not wait for. A write of one's own costs less, too.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

__all__ = ["Outlet"]

_JOIN_BYTES = 64 * 2**10
"""Up to here one copy into one write is cheaper than a vector of buffers."""
_MOST_PARTS = 512
"""Fewer than the 1024 buffers that Linux takes in one call (IOV_MAX)."""
_EVEN: Final = 0
_BEHIND: Final = 1
_LOOK: Final = 2


class Outlet:
    """All writes of one connection go through it, since it must not overtake what the transport holds.

    What the socket does not take at once is left to the transport, with all that comes after it until
    that has gone out; so are writes that fail, which the transport tells its protocol of.
    """

    __slots__ = ("_file", "_loop", "_state", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        socket = transport.get_extra_info("socket")
        encrypted = transport.get_extra_info("sslcontext") is not None
        self._file = -1 if socket is None or encrypted else socket.fileno()
        self._state = _EVEN

    def write(self, data: bytes) -> None:
        """Nothing is written to a transport that is closed."""
        transport = self._transport
        if transport.is_closing():  # the file's number may be another connection's already
            return
        if self._file < 0 or (self._state and self._late()):
            transport.write(data)
            return
        try:
            sent = os.write(self._file, data)
        except OSError:  # full, or broken: either is the transport's business
            sent = 0
        if sent != len(data):
            self._fall_behind(data[sent:])

    def write_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """As `write`, one after another; large ones are not copied."""
        if sum(map(len, parts)) <= _JOIN_BYTES:
            self.write(b"".join(parts))
            return
        transport = self._transport
        if transport.is_closing():
            return
        if self._file < 0 or (self._state and self._late()):
            transport.writelines(parts)
            return
        try:
            sent = os.writev(self._file, parts[:_MOST_PARTS])
        except OSError:
            sent = 0
        rest = []
        for part in parts:
            if sent < len(part):
                rest.append(part[sent:])
            sent = max(0, sent - len(part))
        if rest:
            self._fall_behind(b"".join(rest))

    def _fall_behind(self, rest: bytes) -> None:
        self._state = _BEHIND
        self._loop.call_soon(self._turn_over)
        self._transport.write(rest)

    def _turn_over(self) -> None:
        self._state = _LOOK

    def _late(self) -> bool:
        """Whether the transport still holds something. Within a turn uvloop does not tell."""
        if self._state == _LOOK and not self._transport.get_write_buffer_size():
            self._state = _EVEN
        return self._state != _EVEN
