"""Closed and open loops over a set of connections."""

import asyncio
import time
from collections import deque
from typing import Final

from slimscale.bench.serving.loadgen.alarm import Alarm
from slimscale.bench.serving.loadgen.check import Checker
from slimscale.bench.serving.loadgen.connection import Connection
from slimscale.bench.serving.loadgen.job import Answered, Job

__all__ = ["ClosedLoop", "OpenLoop"]

_REFUSED: Final = (429, 503)
_MICROS: Final = 1e6
IN_TIME_SECONDS: Final = 1.0
"""Of an open loop's answers only these count as throughput: what comes later helps nobody."""


class _Loop:
    """Counts answers. `window` is [begin, end): what is timed."""

    def __init__(self, job: Job, checker: Checker) -> None:
        self._job = job
        self._checker = checker
        self._loop = asyncio.get_running_loop()
        self.answered = Answered(window_seconds=job.seconds)
        self._number = 0
        self._outstanding = 0
        self._busy: set[Connection] = set()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._connections: set[Connection] = set()
        self._begin = self._end = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def _connect(self) -> Connection:
        _, connection = await self._loop.create_connection(
            lambda: Connection(self), self._job.host, self._job.port
        )
        return connection

    def _send(self, connection: Connection, due: float, now: float) -> None:
        number, self._number = self._number, self._number + 1
        connection.number, connection.due, connection.sent = number, due, now
        self._outstanding += 1
        self._busy.add(connection)
        connection.send(self._checker.request(number))

    def done(self, connection: Connection, *, status: int, body: bytes, json_bytes: int) -> None:
        raise NotImplementedError

    def gone(self, connection: Connection, *, busy: bool) -> None:
        raise NotImplementedError

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.answered.connections += 1

    def _count(self, connection: Connection, status: int, body: bytes, json_bytes: int) -> None:
        now = time.monotonic()
        self._outstanding -= 1
        self._busy.discard(connection)
        answered = self.answered
        micros = int((now - connection.due) * _MICROS)
        timed = self._begin <= connection.due < self._end
        if status == 200:
            fault = self._checker.fault(connection.number, body, json_bytes)
            if fault:
                answered.wrong += 1
                answered.first_wrong = answered.first_wrong or fault
                return
            answered.right += 1
            answered.in_window += self._begin <= now < self._end
            answered.in_time += timed and micros <= IN_TIME_SECONDS * _MICROS
            if timed:
                answered.latencies_micros.append(micros)
        elif status in _REFUSED:
            answered.refused += 1
            if timed:
                answered.refused_micros.append(int((now - connection.sent) * _MICROS))
        else:
            answered.failed += 1
            answered.first_wrong = answered.first_wrong or f"{status}: {body[:200]!r}"

    def _count_lost(self, connection: Connection) -> None:
        self._outstanding -= 1
        self._busy.discard(connection)
        self.answered.lost += 1

    def _end_unanswered(self) -> None:
        now = time.monotonic()
        for connection in self._busy:
            self._unanswered(connection.due, now)
            connection.busy = False
        for connection in list(self._connections):
            connection.close()

    def _unanswered(self, due: float, now: float) -> None:
        self.answered.unanswered += 1
        if self._begin <= due < self._end:
            self.answered.latencies_micros.append(int((now - due) * _MICROS))

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)


class ClosedLoop(_Loop):
    """Each of `job.clients` connections sends its next request when it has its answer."""

    async def run(self) -> Answered:
        connections = [await self._connect() for _ in range(self._job.clients)]
        now = time.monotonic()
        self._begin = now + self._job.warm_seconds
        self._end = self._begin + self._job.seconds
        for connection in connections:
            self._send(connection, now, now)
        self._loop.call_later(
            self._job.warm_seconds + self._job.seconds + self._job.grace_seconds, self._finish
        )
        await self._finished
        self._end_unanswered()
        return self.answered

    def done(self, connection: Connection, *, status: int, body: bytes, json_bytes: int) -> None:
        self._count(connection, status, body, json_bytes)
        self._go_on(connection)

    def gone(self, connection: Connection, *, busy: bool) -> None:
        self._connections.discard(connection)
        if busy:
            self._count_lost(connection)
        self._replace()

    def _go_on(self, connection: Connection) -> None:
        now = time.monotonic()
        if now >= self._end:
            if not self._outstanding:
                self._finish()
        elif connection.closing:
            connection.close()
        else:
            self._send(connection, now, now)

    def _replace(self) -> None:
        if time.monotonic() < self._end and not self._finished.done():
            task = self._loop.create_task(self._reconnect())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not self._outstanding:
            self._finish()

    async def _reconnect(self) -> None:
        try:
            connection = await self._connect()
        except OSError:
            await asyncio.sleep(0.05)
            self._replace()
            return
        self._go_on(connection)


class OpenLoop(_Loop):
    """Requests leave at their times whatever has come back. Latency counts from the intended time.

    A request for which no connection is free gets a new one, up to `most_connections`; past that it
    waits here, and its wait counts.
    """

    def __init__(self, job: Job, checker: Checker) -> None:
        super().__init__(job, checker)
        self._idle: list[Connection] = []
        self._waiting: deque[float] = deque()
        self._opening = 0
        self._next = 0
        self._start = 0.0

    async def run(self) -> Answered:
        for _ in range(min(8, self._job.most_connections)):
            self._idle.append(await self._connect())
        self._alarm = Alarm(self._loop, self._due)
        self._start = time.monotonic() + 0.01
        self._begin = self._start + self._job.warm_seconds
        self._end = self._begin + self._job.seconds
        try:
            self._due()
            self._loop.call_later(
                self._job.warm_seconds + self._job.seconds + self._job.grace_seconds, self._finish
            )
            await self._finished
        finally:
            self._alarm.close()
        now = time.monotonic()
        for due in self._waiting:
            self._unanswered(due, now)
        self._waiting.clear()
        self._end_unanswered()
        return self.answered

    def _due(self) -> None:
        arrivals = self._job.arrivals_seconds
        now = time.monotonic()
        while self._next < len(arrivals):
            due = self._start + arrivals[self._next]
            if due > now:
                self._alarm.set(due)
                return
            self._next += 1
            self.answered.late_start_micros.append(int((now - due) * _MICROS))
            self._start_one(due, now)
        if not self._outstanding and not self._waiting:
            self._finish()

    def _start_one(self, due: float, now: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closing:
                self._send(connection, due, now)
                return
        self._waiting.append(due)
        if len(self._connections) + self._opening < self._job.most_connections:
            self._opening += 1
            task = self._loop.create_task(self._open_more())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open_more(self) -> None:
        try:
            connection = await self._connect()
        except OSError:
            await asyncio.sleep(0.05)
            connection = None
        finally:
            self._opening -= 1
        if connection is not None:
            self._free(connection)
        elif self._waiting:
            self._start_one(self._waiting.popleft(), time.monotonic())

    def _free(self, connection: Connection) -> None:
        if connection.closing:
            connection.close()
        elif self._waiting:
            self._send(connection, self._waiting.popleft(), time.monotonic())
        else:
            self._idle.append(connection)
            if self._next >= len(self._job.arrivals_seconds) and not self._outstanding:
                self._finish()

    def done(self, connection: Connection, *, status: int, body: bytes, json_bytes: int) -> None:
        self._count(connection, status, body, json_bytes)
        self._free(connection)

    def gone(self, connection: Connection, *, busy: bool) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if busy:
            self._count_lost(connection)
        if self._waiting and not self._finished.done():
            self._start_one(self._waiting.popleft(), time.monotonic())
