"""The load generator against a small server: what it counts, and from when it counts latency."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from slimscale.bench.serving.loadgen.check import Checker, Image
from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.loadgen.loops import ClosedLoop, OpenLoop
from slimscale.serving.http import HttpServer, Request, Response

LOGITS = (1.0, 2.0)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def right(request: Request) -> Response:
    name = json.loads(request.body)["id"]
    return Response(200, json.dumps({"id": name, "outputs": [{"data": LOGITS}]}).encode())


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    server = HttpServer(handler)
    await server.start("127.0.0.1", 0)
    try:
        yield server.port
    finally:
        await server.close()


def job(port: int, **changes: Any) -> Job:
    usual: dict[str, Any] = {"seconds": 0.2, "warm_seconds": 0.0, "grace_seconds": 0.3}
    return Job(host="127.0.0.1", port=port, path="/infer", payload="", **{**usual, **changes})


async def answered(asked: Job) -> Answered:
    images = [Image(before=b'{"id":"', after=b'"}', logits=LOGITS, json_bytes=0, with_id=True)]
    checker = Checker(images, path=asked.path, host="h", headers=[], seed=0)
    loop = ClosedLoop(asked, checker) if asked.clients else OpenLoop(asked, checker)
    return await loop.run()


async def test_closed_loop_clients_never_have_more_than_one_request_each() -> None:
    most = running = 0

    async def handle(request: Request) -> Response:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return right(request)

    async with serving(handle) as port:
        found = await answered(job(port, clients=3))
    assert 1 <= most <= 3
    assert found.right == len(found.latencies_micros) > 10
    assert found.wrong == found.lost == found.unanswered == 0


async def test_a_stalled_server_is_seen_in_the_latency_of_what_was_due_meanwhile() -> None:
    """No coordinated omission: requests go on being due while the first one is stuck."""
    stuck = asyncio.Event()

    async def handle(request: Request) -> Response:
        if not stuck.is_set():  # from the first request on, however late a busy machine sends it
            asyncio.get_running_loop().call_later(0.2, stuck.set)
        await stuck.wait()
        return right(request)

    times = [0.0, 0.05, 0.1, 0.15]
    async with serving(handle) as port:
        found = await answered(job(port, arrivals_seconds=times, most_connections=1, seconds=0.2))
    waited = sorted(found.latencies_micros)
    assert found.right == 4
    # All four were due before the server woke up, although only one could be sent.
    assert waited[0] >= 0.04e6
    assert waited[-1] >= 0.19e6


async def test_what_is_never_answered_counts_with_what_it_waited() -> None:
    async def handle(request: Request) -> Response:
        await asyncio.sleep(60)
        return right(request)

    async with serving(handle) as port:
        found = await answered(job(port, arrivals_seconds=[0.0, 0.1], most_connections=1))
    assert found.unanswered == 2
    assert found.right == 0
    assert len(found.latencies_micros) == 2
    assert min(found.latencies_micros) >= 0.3e6


async def test_refusals_failures_and_wrong_answers_are_counted_apart() -> None:
    statuses = iter([429, 503, 500, 200, 200])

    async def handle(request: Request) -> Response:
        status = next(statuses)
        if status == 200:
            return Response(200, b'{"id":"999999999","outputs":[{"data":[1.0,2.0]}]}')
        return Response(status, b"no")

    async with serving(handle) as port:
        found = await answered(job(port, arrivals_seconds=[0.0, 0.02, 0.04, 0.06, 0.08]))
    assert (found.refused, found.failed, found.wrong, found.right) == (2, 1, 2, 0)
    assert not found.latencies_micros


async def test_connections_that_break_lose_their_requests_and_the_client_goes_on() -> None:
    class Breaking(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.close()

    server = await asyncio.get_running_loop().create_server(Breaking, "127.0.0.1", 0)
    found = await answered(job(server.sockets[0].getsockname()[1], clients=1, seconds=0.1))
    server.close()
    assert found.lost > 1
    assert found.right == 0
