"""Speaks HTTP by the byte, to say what no client library would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from slimscale.serving.http import Handler, HttpServer, Limits, Request, Response

__all__ = ["RawConnection", "echo_body", "serving"]


def echo_body(request: Request) -> Response:
    return Response(200, request.path.encode() + b" " + request.body)


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "RawConnection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return status, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        return await self.reader.read()

    async def vanish(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def serving(handler: Handler, limits: Limits | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(handler, limits=limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
