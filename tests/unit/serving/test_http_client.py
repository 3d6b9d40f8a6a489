"""The client pool: reuse, dead connections, deadlines, what is known when no answer came."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slimscale.serving.http import ClientPool, ExchangeFailed, Request, Response
from slimscale.serving.http.client_stream import open_stream
from tests.support.raw_http import echo_body, serving
from tests.support.sidecars import until

HOST = "127.0.0.1"


async def get(pool: ClientPool, port: int, path: bytes = b"/", seconds: float = 5.0) -> bytes:
    return (await pool.request(b"GET", HOST, port, path, timeout_seconds=seconds)).body


@asynccontextmanager
async def answering(
    react: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server that does what `react` does after each head it has read."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await react(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def saying(answer: bytes, *, then_close: bool = False) -> Any:
    async def react(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        if then_close:
            writer.close()

    return react


async def test_one_connection_is_used_again_and_many_requests_share_few() -> None:
    async with serving(echo_body) as server:
        pool = ClientPool(per_host=2)
        for _ in range(3):
            await get(pool, server.port)
        assert server.connections == 1
        bodies = await asyncio.gather(*(get(pool, server.port, b"/%d" % n) for n in range(20)))
        assert bodies == [b"/%d " % n for n in range(20)]
        assert server.connections == 2
        await pool.close()
        await until(lambda: server.connections == 0)


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    async with serving(echo_body) as server:
        pool = ClientPool()
        await get(pool, server.port)
        server.sweep(asyncio.get_running_loop().time() + 1000.0)
        await until(lambda: pool.idle_connections(HOST, server.port) == 0)
        assert await get(pool, server.port) == b"/ "
        await pool.close()


async def test_nothing_was_sent_where_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
    with pytest.raises(ExchangeFailed, match="no connection") as failure:
        await get(ClientPool(), port)
    assert (failure.value.sent, failure.value.late) == (False, False)


async def test_a_connection_that_breaks_before_the_answer_may_have_done_the_work() -> None:
    async with answering(saying(b"", then_close=True)) as port:
        with pytest.raises(ExchangeFailed, match="lost") as failure:
            await get(ClientPool(), port)
    assert (failure.value.sent, failure.value.answered) == (True, False)


async def test_no_answer_by_the_deadline_closes_the_connection() -> None:
    cancelled = asyncio.Event()

    async def never(request: Request) -> Response:
        request.on_cancel(cancelled.set)
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as server:
        pool = ClientPool()
        with pytest.raises(ExchangeFailed, match="deadline") as failure:
            await get(pool, server.port, seconds=0.05)
        assert (failure.value.sent, failure.value.late) == (True, True)
        await cancelled.wait()
        assert pool.idle_connections(HOST, server.port) == 0


async def test_a_caller_that_gives_up_tells_the_server() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def never(request: Request) -> Response:
        request.on_cancel(cancelled.set)
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as server:
        asking = asyncio.create_task(get(ClientPool(), server.port))
        await started.wait()
        asking.cancel()
        await cancelled.wait()
        assert asking.cancelled() or await asyncio.wait({asking})


async def test_a_request_waits_for_a_connection_no_longer_than_its_deadline() -> None:
    gate = asyncio.Event()

    async def slow(_request: Request) -> Response:
        await gate.wait()
        return Response(200, b"ok")

    async with serving(slow) as server:
        pool = ClientPool(per_host=1)
        first = asyncio.create_task(get(pool, server.port))
        await until(lambda: server.connections == 1)
        with pytest.raises(ExchangeFailed, match="busy") as failure:
            await get(pool, server.port, seconds=0.05)
        assert not failure.value.sent
        waiting = asyncio.create_task(get(pool, server.port))
        await asyncio.sleep(0)
        gate.set()
        assert [await first, await waiting] == [b"ok", b"ok"]
        await pool.close()


async def test_redirects_are_handed_back_not_followed() -> None:
    def away(_request: Request) -> Response:
        return Response(302, b"", ((b"location", b"http://192.0.2.1/"),))

    async with serving(away) as server:
        pool = ClientPool()
        assert (
            await pool.request(b"GET", HOST, server.port, b"/", timeout_seconds=5)
        ).status == 302
        await pool.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
    ],
)
async def test_every_way_to_end_a_body_is_understood(answer: bytes, body: bytes) -> None:
    async with answering(saying(answer, then_close=b"until" in answer)) as port:
        pool = ClientPool()
        assert await get(pool, port) == body
        await pool.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + bytes(5000),
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 5000 + b"\r\n\r\n",
    ],
)
async def test_an_answer_that_is_no_http_or_too_large_fails(answer: bytes) -> None:
    async with answering(saying(answer)) as port:
        pool = ClientPool(body_limit_bytes=1000, header_limit_bytes=1000)
        with pytest.raises(ExchangeFailed, match="not valid"):
            await get(pool, port)


async def test_half_an_answer_is_none() -> None:
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"
    async with answering(saying(half, then_close=True)) as port:
        with pytest.raises(ExchangeFailed, match="lost") as failure:
            await get(ClientPool(), port)
    assert failure.value.answered


async def test_what_comes_unasked_never_becomes_the_next_answer() -> None:
    twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" * 2
    async with answering(saying(twice)) as port:
        pool = ClientPool()
        assert await get(pool, port) == b"ok"
        await until(lambda: pool.idle_connections(HOST, port) <= 1)
        assert await get(pool, port) == b"ok"
        await pool.close()


async def test_a_header_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValueError, match="line break"):
        await ClientPool().request(
            b"GET", HOST, 1, b"/", headers=((b"x", b"a\r\ny: b"),), timeout_seconds=1
        )


async def test_a_stream_gives_pieces_as_they_come_and_breaks_on_silence() -> None:
    more = asyncio.Event()

    async def react(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n")
        await reader.read()

    async with answering(react) as port:
        stream = await open_stream(b"GET", HOST, port, b"/", silence_seconds=0.05)
        assert (stream.status, await anext(stream)) == (200, b"one")
        more.set()
        assert await anext(stream) == b"two"
        with pytest.raises(ExchangeFailed, match="nothing came"):
            await anext(stream)


async def test_a_stream_ends_with_its_answer() -> None:
    async with serving(echo_body) as server:
        stream = await open_stream(b"GET", HOST, server.port, b"/x")
        assert [piece async for piece in stream] == [b"/x "]
        stream.close()
