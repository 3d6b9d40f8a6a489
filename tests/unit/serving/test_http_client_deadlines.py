"""A connection's one timer serves each of its exchanges, and no other one's deadline cuts it short."""

import asyncio
from collections.abc import Callable
from typing import Any

from slimscale.serving.http.client_connection import (
    ClientConnection,
    ClientResponse,
    ExchangeFailed,
)
from slimscale.serving.http.deferred import Deferred

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na"


class Handle:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback, self.cancelled = at, callback, False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The part of an event loop that tells and keeps time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(Handle(at, callback))
        return self.handles[-1]

    def waiting(self) -> list[Handle]:
        return [handle for handle in self.handles if not handle.cancelled]

    def go_to(self, now: float) -> None:
        self.now = now
        for handle in [handle for handle in self.waiting() if handle.at <= now]:
            handle.cancelled = True
            handle.callback()


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


class Line:
    """A connection on a clock of its own."""

    def __init__(self) -> None:
        self.clock, self.wire = Clock(), Wire()
        loop: Any = self.clock
        self.connection = ClientConnection(loop, body_limit=100, header_limit=100)
        self.connection.connection_made(self.wire)

    def ask(self, deadline: float) -> Deferred[ClientResponse]:
        answer: Deferred[ClientResponse] = Deferred()
        self.connection.send([b"GET / HTTP/1.1\r\n\r\n"], deadline, answer)
        return answer


def is_late(answer: Deferred[ClientResponse]) -> bool:
    error = answer.exception()
    return isinstance(error, ExchangeFailed) and error.late


def test_an_earlier_exchanges_deadline_does_not_end_a_later_one() -> None:
    line = Line()
    first = line.ask(1.0)
    line.connection.data_received(ANSWER)
    assert first.result().body == b"a"
    second = line.ask(30.0)
    line.clock.go_to(2.0)
    assert not second.done()
    line.clock.go_to(30.0)
    assert is_late(second)
    assert line.wire.closed


def test_a_later_exchange_with_an_earlier_deadline_ends_by_its_own() -> None:
    line = Line()
    line.ask(30.0)
    line.connection.data_received(ANSWER)
    second = line.ask(1.0)
    assert len(line.clock.waiting()) == 1
    line.clock.go_to(1.0)
    assert is_late(second)


def test_an_idle_connection_outlives_its_last_deadline_and_a_lost_one_leaves_no_timer() -> None:
    line = Line()
    line.ask(1.0)
    line.connection.data_received(ANSWER)
    line.clock.go_to(1.0)
    assert line.connection.usable
    assert not line.clock.waiting()
    line.ask(3.0)
    line.connection.connection_lost(None)
    assert not line.clock.waiting()
