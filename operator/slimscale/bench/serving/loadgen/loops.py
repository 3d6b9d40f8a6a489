"""Closed and open loops over a set of connections."""

import asyncio
import time
from collections import deque

from slimscale.bench.serving.loadgen.alarm import Alarm
from slimscale.bench.serving.loadgen.check import Checker
from slimscale.bench.serving.loadgen.connection import Connection
from slimscale.bench.serving.loadgen.counting import MICROS, Loop
from slimscale.bench.serving.loadgen.job import Answered, Job

__all__ = ["ClosedLoop", "OpenLoop"]


class ClosedLoop(Loop):
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


class OpenLoop(Loop):
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
            self.answered.late_start_micros.append(int((now - due) * MICROS))
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
