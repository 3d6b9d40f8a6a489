"""The HTTP server: framing, order, limits, slow and vanished clients, drain."""

import asyncio

import pytest

from slimscale.serving.http import HttpServer, Limits, Request, Response
from tests.support.raw_http import RawConnection, echo_body, serving
from tests.support.sidecars import until

_HEADERS = b"".join(b"x%d: y\r\n" % number for number in range(30))
GET = b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n"


async def ask(server: HttpServer, data: bytes) -> tuple[int, bytes]:
    connection = await RawConnection.open(server.port)
    await connection.send(data)
    answer = await connection.answer()
    await connection.close()
    return answer


def post(body: bytes, *headers: bytes) -> bytes:
    lines = (b"POST / HTTP/1.1", b"host: a", b"content-length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def test_a_connection_serves_one_request_after_another() -> None:
    async with serving(echo_body) as server:
        connection = await RawConnection.open(server.port)
        for number in range(3):
            await connection.send(GET % number)
            assert await connection.answer() == (200, b"/%d " % number)
        await connection.close()


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    running: list[str] = []
    gate = asyncio.Event()

    async def handler(request: Request) -> Response:
        running.append(request.path)
        if request.path == "/1":
            await gate.wait()
        return echo_body(request)

    async with serving(handler) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(b"".join(GET % number for number in (1, 2)))
        await until(lambda: running == ["/1"])
        await connection.send(GET % 3)
        await asyncio.sleep(0)
        assert running == ["/1"]
        gate.set()
        assert [await connection.answer() for _ in range(3)] == [
            (200, b"/1 "), (200, b"/2 "), (200, b"/3 ")
        ]  # fmt: skip
        await connection.close()


async def test_bodies_come_whole_in_pieces_and_in_chunks() -> None:
    async with serving(echo_body) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(post(b"abcdef")[:-3])
        await asyncio.sleep(0)
        await connection.send(b"def")
        assert await connection.answer() == (200, b"/ abcdef")
        await connection.send(
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"
        )
        assert await connection.answer() == (200, b"/ abcde")
        await connection.close()


async def test_expect_continue_is_answered_before_the_body() -> None:
    async with serving(echo_body) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(post(b"abc", b"expect: 100-continue")[:-3])
        assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send(b"abc")
        assert await connection.answer() == (200, b"/ abc")
        await connection.close()


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"nonsense\r\n\r\n", 400, b"not valid HTTP/1.1"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"Host"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000\r\n\r\n", 413, b"at most 1000"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400, b"not valid"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9" + b"9" * 40 + b"\r\n\r\n", 400, b"not valid"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400, b""),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
         400, b""),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400, b""),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000,
         413, b"at most 1000"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50,
         413, b"chunks"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 600 + b"\r\n\r\n", 431, b"512 bytes"),
        (b"GET /" + b"y" * 600 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431, b"512 bytes"),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + _HEADERS + b"\r\n", 431, b"20 headers"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + _HEADERS,
         431, b"20 headers"),
    ],
)  # fmt: skip
async def test_what_passes_a_limit_is_refused_by_name_and_closed(
    data: bytes, status: int, words: bytes
) -> None:
    limits = Limits(body_bytes=1000, header_bytes=512, header_count=20, chunks=10)
    async with serving(echo_body, limits) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(data)
        found, body = await connection.answer()
        assert (found, words in body) == (status, True), body
        assert await connection.rest() == b""
        await connection.close()


async def test_a_header_without_an_end_is_refused_before_it_fills_memory() -> None:
    async with serving(echo_body, Limits(header_bytes=512)) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 600)
        assert (await connection.answer())[0] == 431
        await connection.close()


async def test_a_client_that_sends_too_much_can_still_read_why() -> None:
    async with serving(echo_body, Limits(body_bytes=1000)) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20000000\r\n\r\n")
        for _ in range(20):
            await connection.send(b"x" * 1_000_000)
        assert (await connection.answer())[0] == 413
        await connection.close()


async def test_a_slow_request_gets_408_and_an_idle_connection_is_closed() -> None:
    async with serving(echo_body, Limits(receive_seconds=5.0, idle_seconds=60.0)) as server:
        slow = await RawConnection.open(server.port)
        await slow.send(post(b"abcdef")[:-1])
        idle = await RawConnection.open(server.port)
        await until(lambda: server.connections == 2)
        await slow.send(b"")
        now = asyncio.get_running_loop().time()
        server.sweep(now + 4.0)
        await idle.send(GET % 1)
        assert (await idle.answer())[0] == 200
        server.sweep(now + 10.0)
        assert (await slow.answer())[0] == 408
        server.sweep(now + 100.0)
        assert await idle.rest() == b""
        await until(lambda: server.connections == 0)
        await slow.close()
        await idle.close()


async def test_a_header_trickled_by_the_byte_gains_no_time() -> None:
    async with serving(echo_body, Limits(receive_seconds=500.0, idle_seconds=9000.0)) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(b"G")
        await until(lambda: server.first_deadline() < asyncio.get_running_loop().time() + 500.0)
        first = server.first_deadline()
        for byte in b"ET / HT":
            await connection.send(bytes([byte]))
            await asyncio.sleep(0.001)
        server.sweep(first)
        assert (await connection.answer())[0] == 408
        await connection.close()


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    def much(_request: Request) -> Response:
        return Response(200, bytes(32 * 2**20))

    async with serving(much) as server:
        connection = await RawConnection.open(server.port)
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.send(GET % 1)
        await until(lambda: server.connections == 1)
        await asyncio.sleep(0.01)
        server.sweep(asyncio.get_running_loop().time() + 100.0)
        await until(lambda: server.connections == 0)
        await connection.close()


async def test_a_handler_is_told_when_its_client_has_gone() -> None:
    told: list[str] = []
    waiting = asyncio.Event()

    async def handler(request: Request) -> Response:
        request.on_cancel(lambda: told.append("callback"))
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        raise AssertionError

    async with serving(handler) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(GET % 1)
        await waiting.wait()
        await connection.vanish()
        await until(lambda: told == ["callback", "cancelled"])


async def test_a_client_that_vanishes_before_its_body_calls_no_handler() -> None:
    calls: list[Request] = []

    def handler(request: Request) -> Response:
        calls.append(request)
        return Response(200)

    async with serving(handler) as server:
        connection = await RawConnection.open(server.port)
        await connection.send(post(b"abcdef")[:-1])
        await until(lambda: server.connections == 1)
        await connection.vanish()
        await until(lambda: server.connections == 0)
        assert calls == []


async def test_a_failing_handler_gives_a_500_without_details_and_the_server_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def plain(request: Request) -> Response:
        raise RuntimeError("secret")

    async def coroutine(request: Request) -> Response:
        raise RuntimeError("secret")

    for handler in (plain, coroutine):
        async with serving(handler) as server:
            for _ in range(2):
                status, body = await ask(server, GET % 1)
                assert (status, b"secret" in body) == (500, False)
    assert "secret" in caplog.text


async def test_draining_answers_what_runs_says_close_and_refuses_new_connections() -> None:
    gate = asyncio.Event()
    started = asyncio.Event()

    async def handler(request: Request) -> Response:
        started.set()
        await gate.wait()
        return Response(200, b"late")

    server = HttpServer(handler)
    await server.start("127.0.0.1", 0)
    port = server.port
    busy, idle = await RawConnection.open(port), await RawConnection.open(port)
    await busy.send(GET % 1)
    await started.wait()
    await until(lambda: server.connections == 2)
    closing = asyncio.create_task(server.close(grace_seconds=30.0))
    assert await idle.rest() == b""
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await RawConnection.open(port)
    gate.set()
    answer = await busy.rest()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    await closing
    assert server.connections == 0
    await busy.close()
    await idle.close()


async def test_one_connection_too_many_gets_503() -> None:
    async with serving(echo_body, Limits(connections=1)) as server:
        first = await RawConnection.open(server.port)
        await until(lambda: server.connections == 1)
        second = await RawConnection.open(server.port)
        assert (await second.answer())[0] == 503
        await first.send(GET % 1)
        assert (await first.answer())[0] == 200
        await first.close()
        await second.close()


async def test_many_large_bodies_at_once_are_bounded_together() -> None:
    limits = Limits(body_bytes=1000, receiving_bytes=1500)
    async with serving(echo_body, limits) as server:
        first, second = await RawConnection.open(server.port), await RawConnection.open(server.port)
        await first.send(post(bytes(1000))[:-1])
        await until(lambda: server.receiving_bytes == 999)
        await second.send(post(bytes(1000)))
        assert (await second.answer())[0] == 503
        await first.send(b"x")
        assert (await first.answer())[0] == 200
        assert server.receiving_bytes == 0
        third = await RawConnection.open(server.port)
        await third.send(post(bytes(1000))[:-1])
        await until(lambda: server.receiving_bytes == 999)
        await third.vanish()
        await until(lambda: server.receiving_bytes == 0)
        for connection in (first, second):
            await connection.close()


async def test_an_offer_to_upgrade_is_ignored_and_head_sends_no_body() -> None:
    async with serving(echo_body) as server:
        status, _ = await ask(
            server, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
        )
        assert status == 200
        connection = await RawConnection.open(server.port)
        await connection.send(b"HEAD /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert (await connection.rest()).endswith(b"\r\n\r\n")
        await connection.close()
