"""What is written leaves within the call, in order, and never to somebody else's connection."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from slimscale.serving.http.outlet import Outlet

Body = Callable[[], Coroutine[Any, Any, None]]


def with_asyncio(body: Body) -> None:
    asyncio.run(body())


def with_uvloop(body: Body) -> None:
    uvloop.run(body())


both_loops = pytest.mark.parametrize("run", [with_asyncio, with_uvloop])


async def opened(*, send_buffer_bytes: int = 0) -> tuple[asyncio.Transport, Outlet, socket.socket]:
    """A transport with its outlet, and the other end, which reads without waiting."""
    ours, theirs = socket.socketpair()
    if send_buffer_bytes:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    return transport, Outlet(loop, transport), theirs


async def read_all(end: socket.socket, size: int) -> bytes:
    got = b""
    async with asyncio.timeout(5.0):
        while len(got) < size:
            piece = await asyncio.get_running_loop().sock_recv(end, 2**16)
            assert piece, "the connection has ended"
            got += piece
    return got


@both_loops
def test_the_other_side_can_read_before_the_turn_is_over(run: Callable[[Body], None]) -> None:
    async def body() -> None:
        transport, outlet, end = await opened()
        outlet.write(b"first")
        assert end.recv(100) == b"first"
        outlet.write_parts((b"a", memoryview(b"b" * 70_000)))
        assert end.recv(100_000) == b"a" + b"b" * 70_000
        transport.abort()
        end.close()

    run(body)


@both_loops
def test_nothing_overtakes_what_the_socket_did_not_take(run: Callable[[Body], None]) -> None:
    async def body() -> None:
        transport, outlet, end = await opened(send_buffer_bytes=4096)
        sent = got = b""
        for number in range(200):
            piece = b"%06d" % number * (1 + 37 * (number % 5))
            large = b"%06d" % number * (12_000 if number % 7 == 0 else 1)
            outlet.write(piece)
            outlet.write_parts((piece, memoryview(large)))
            sent += piece + piece + large
            if number % 3 == 0:  # room in the socket, while the transport still holds something
                with suppress(BlockingIOError):
                    got += end.recv(2**16)
            if number % 10 == 9:
                await asyncio.sleep(0)
        got += await read_all(end, len(sent) - len(got))
        assert got == sent
        for number in range(200, 203):  # all has gone out: at once again
            outlet.write(b"%d" % number)
        assert end.recv(100) == b"200201202"
        transport.abort()
        end.close()

    run(body)


@both_loops
def test_a_closed_transport_s_file_number_is_left_alone(run: Callable[[Body], None]) -> None:
    async def body() -> None:
        transport, outlet, end = await opened()
        number = transport.get_extra_info("socket").fileno()
        transport.abort()
        await asyncio.sleep(0)
        heirs = [socket.socketpair() for _ in range(4)]
        assert any(ours.fileno() == number for pair in heirs for ours in pair)
        outlet.write(b"an answer for nobody")
        outlet.write_parts((b"a", b"b" * 100_000))
        everyone = [ours for pair in heirs for ours in pair]
        for ours in everyone:
            ours.setblocking(False)
            with pytest.raises(BlockingIOError):
                ours.recv(100)
        for ours in (*everyone, end):
            ours.close()

    run(body)


@both_loops
def test_a_broken_connection_is_told_to_its_protocol(run: Callable[[Body], None]) -> None:
    async def body() -> None:
        lost = asyncio.Event()

        class Told(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set()

        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Told, sock=ours)
        outlet = Outlet(loop, transport)
        theirs.close()
        outlet.write(b"nobody reads this")
        async with asyncio.timeout(5.0):
            await lost.wait()

    run(body)
