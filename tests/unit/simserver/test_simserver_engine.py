"""The external engine's protocol: one JSON object a line, in both directions."""

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from simserver.engine import EngineClient, EngineError, parse_request, serve, split_address


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"\n", "JSON"),
        (b"wait\n", "JSON"),
        (b"[1, 2]\n", "object"),
        (b'{"velocity": []}\n', "wait_seconds"),
        (b'{"wait_seconds": true, "velocity": []}\n', "wait_seconds"),
        (b'{"wait_seconds": NaN, "velocity": []}\n', "wait_seconds"),
        (b'{"wait_seconds": -1, "velocity": []}\n', "wait_seconds"),
        (b'{"wait_seconds": 60, "velocity": []}\n', "wait_seconds"),
        (b'{"wait_seconds": 0}\n', "velocity"),
        (b'{"wait_seconds": 0, "velocity": ["1"]}\n', "velocity"),
        (json.dumps({"wait_seconds": 0, "velocity": [0] * 65}).encode(), "at most 64"),
    ],
)
def test_a_bad_request_is_answered_with_the_field_to_mend(line: bytes, named: str) -> None:
    with pytest.raises(EngineError, match=named):
        parse_request(line)


@pytest.mark.parametrize("text", ["7070", ":7070", "host:", "host:0", "host:99999", "host:x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(text)


@pytest.fixture
def port() -> Iterator[int]:
    """An engine in a thread of its own, as the client blocks."""
    started: list[int] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def engine() -> None:
        async with await serve("127.0.0.1", 0) as server:
            started.append(server.sockets[0].getsockname()[1])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(engine(),))
    thread.start()
    assert ready.wait(5)
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(5)
    loop.close()


def test_the_engine_answers_with_a_force_against_the_motion(port: int) -> None:
    client = EngineClient("127.0.0.1", port)
    assert client.force([1.0, -0.5, 0.0], wait_seconds=0.0) == [-2.0, 1.0, 0.0]
    client.close()


def test_a_refused_request_says_why_and_the_connection_goes_on(port: int) -> None:
    client = EngineClient("127.0.0.1", port)
    with pytest.raises(EngineError, match="wait_seconds"):
        client.force([0.0], wait_seconds=99.0)
    assert client.force([1.0], wait_seconds=0.0) == [-2.0]
    client.close()


def test_a_line_that_never_ends_costs_only_its_own_connection(port: int) -> None:
    flood, client = EngineClient("127.0.0.1", port), EngineClient("127.0.0.1", port)
    with pytest.raises(EngineError, match="no answer"):
        flood.force([0.123456789] * 2000, wait_seconds=0.0)
    assert client.force([1.0], wait_seconds=0.0) == [-2.0]
    assert flood.force([1.0], wait_seconds=0.0) == [-2.0]  # with a new connection
    flood.close()
    client.close()


def test_an_engine_that_is_not_there_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="ConnectionRefusedError"):
        EngineClient("127.0.0.1", 1).force([0.0], wait_seconds=0.0)
