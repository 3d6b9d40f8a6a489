"""What both loops share: sending, and counting what comes back."""

import asyncio
import time
from typing import Final

from slimscale.bench.serving.loadgen.check import Checker
from slimscale.bench.serving.loadgen.connection import Connection
from slimscale.bench.serving.loadgen.job import Answered, Job

__all__ = ["MICROS", "Loop"]

_REFUSED: Final = (429, 503)
_EXPIRED: Final = 504
MICROS: Final = 1e6
IN_TIME_SECONDS: Final = 1.0
"""Of an open loop's answers only these count as throughput: what comes later helps nobody."""


class Loop:
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
        micros = int((now - connection.due) * MICROS)
        timed = self._begin <= connection.due < self._end
        if status == 200:
            fault = self._checker.fault(connection.number, body, json_bytes)
            if fault:
                answered.wrong += 1
                answered.first_wrong = answered.first_wrong or fault
                return
            answered.right += 1
            answered.in_window += self._begin <= now < self._end
            answered.in_time += timed and micros <= IN_TIME_SECONDS * MICROS
            if timed:
                answered.latencies_micros.append(micros)
                answered.answer_micros.append(int((now - connection.sent) * MICROS))
        elif status in _REFUSED:
            answered.refused += 1
            if timed:
                answered.refused_micros.append(int((now - connection.sent) * MICROS))
        else:
            answered.failed += 1
            answered.expired += status == _EXPIRED
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
            self.answered.latencies_micros.append(int((now - due) * MICROS))

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)
