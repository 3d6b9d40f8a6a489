"""The API server as the router's watch meets it: EndpointSlices over plain HTTP, faults to order."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["FakeSlices", "fake_slices", "slice_of"]


def slice_of(
    name: str, *pods: tuple[str, str] | tuple[str, str, dict[str, Any]], version: int = 1
) -> dict[str, Any]:
    """An EndpointSlice of (pod, address) or (pod, address, conditions)."""
    endpoints = [
        {
            "addresses": [pod[1]],
            "conditions": pod[2] if len(pod) > 2 else {"ready": True, "serving": True},
            "targetRef": {"kind": "Pod", "name": pod[0]},
        }
        for pod in pods
    ]
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080}],
    }


class FakeSlices:
    """`slices` is what a list gives; `send` adds an event to the open watch."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.version = 1
        self.list_status = 200
        self.watch_status = 200
        self.asked: list[str] = []
        """Targets of all requests."""
        self.tokens: list[str] = []
        self.watching = asyncio.Event()
        """A watch is open."""
        self._watches: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def lists(self) -> int:
        return sum("watch=true" not in target for target in self.asked)

    @property
    def watches(self) -> int:
        return len(self.asked) - self.lists

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Gone, with all watches."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break the open watches without a goodbye."""
        for writer in self._watches:
            writer.transport.abort()
        self._watches.clear()
        self.watching.clear()

    def send(self, kind: str, item: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        for writer in self._watches:
            half = len(line) // 2  # an event may come in pieces
            for piece in (line[:half], line[half:]):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end_watches(self) -> None:
        """As the server does it after its own time-out."""
        for writer in self._watches:
            writer.write(b"0\r\n\r\n")
        self._watches.clear()
        self.watching.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            target = head.split(" ")[1]
            self.asked.append(target)
            self.tokens += [
                line.partition(" ")[2]
                for line in head.split("\r\n")
                if line.lower().startswith("authorization:")
            ]
            if "watch=true" in target:
                await self._watch(writer)
            else:
                document = {"metadata": {"resourceVersion": str(self.version)}}
                if self.list_status == 200:  # else a Status, which has no items
                    document["items"] = self.slices  # type: ignore[assignment]
                body = json.dumps(document).encode()
                self._head(writer, self.list_status, f"content-length: {len(body)}")
                writer.write(body)
            await reader.read()  # until the other side is through
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        if self.watch_status != 200:
            self._head(writer, self.watch_status, "content-length: 0")
            return
        self._head(writer, 200, "transfer-encoding: chunked")
        await writer.drain()
        self._watches.add(writer)
        self.watching.set()

    @staticmethod
    def _head(writer: asyncio.StreamWriter, status: int, header: str) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\n{header}\r\n\r\n".encode())


@asynccontextmanager
async def fake_slices() -> AsyncIterator[FakeSlices]:
    server = FakeSlices()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
