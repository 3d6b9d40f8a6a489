"""Runs in a pod, from a ConfigMap: `python driver.py PLAN` sends and checks; one line a request.

An open loop: a request leaves at its time whatever has come back, and its latency counts from that
time. Nothing is tried again, unless the plan says so for connections that broke without an answer;
a connection that could not be made has carried nothing, so another one is opened until the deadline.

Lines are JSON: `[number, due, milliseconds, outcome, model, pod, detail, resent]`, due in seconds
from the start. The first line has the start (`{"start": Unix seconds}`), the last one the totals.
"""

import asyncio
import base64
import json
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import httptools

MOST_CONNECTIONS = 512
CONNECT_SECONDS = 2.0
CONNECT_AGAIN_SECONDS = 0.05
FLUSH_SECONDS = 1.0
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 2e-3, 2e-3
"""One row's logits differ a little with the batch it was in; other rows and widths differ far more."""
REFUSED = (429, 503)


class Payloads:
    """Bodies by request number, and what is right to answer."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._inputs = [base64.b64decode(one["row"]) for one in plan["inputs"]]
        self._logits: list[dict[str, list[float]]] = [one["logits"] for one in plan["inputs"]]

    def request(self, number: int, *, left_seconds: float) -> bytes:
        plan = self._plan
        places = self._places(number)
        raw = b"".join(self._inputs[place] for place in places)
        binary = number % plan["json_every"] != 0
        shape = [len(places), *plan["row_shape"]]
        tensor: dict[str, Any] = {"name": plan["input"], "datatype": "FP32", "shape": shape}
        output: dict[str, Any] = {"name": plan["output"]}
        if binary:
            tensor["parameters"] = {"binary_data_size": len(raw)}
            output["parameters"] = {"binary_data": True}
        else:
            tensor["data"] = struct.unpack(f"<{len(raw) // 4}f", raw)
        document = {"id": self.identity(number), "inputs": [tensor], "outputs": [output]}
        text = json.dumps(document).encode()
        body = text + raw if binary else text
        kind = (
            f"application/octet-stream\r\ninference-header-content-length: {len(text)}"
            if binary
            else "application/json"
        )
        head = (
            f"POST {plan['path']} HTTP/1.1\r\nhost: {plan['host']}\r\ncontent-type: {kind}\r\n"
            f"slimscale-deadline-ms: {max(1, int(left_seconds * 1000))}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def identity(self, number: int) -> str:
        return f"{self._plan['name']}-{number}"

    def fault(self, number: int, body: bytes, headers: dict[bytes, bytes]) -> str:
        """Empty when this is the answer to that request from the width that it names."""
        json_bytes = int(headers.get(b"inference-header-content-length", 0))
        try:
            answer = json.loads(body[:json_bytes] if json_bytes else body)
            if answer["id"] != self.identity(number):
                return f"answer of {answer['id']!r}"
            if json_bytes:
                values = struct.unpack(f"<{(len(body) - json_bytes) // 4}f", body[json_bytes:])
            else:
                values = answer["outputs"][0]["data"]
            model = headers.get(b"slimscale-model", b"").decode()
            rows = (self._logits[place][model] for place in self._places(number))
            expected = [value for row in rows for value in row]
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            return f"{type(error).__name__}: {error}"
        if len(values) != len(expected):
            return f"{len(values)} logits"
        for value, wanted in zip(values, expected, strict=True):
            if not abs(value - wanted) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(wanted):
                return f"logit {value}, expected {wanted}"
        return ""

    def _places(self, number: int) -> list[int]:
        """Of its rows among the inputs. Neighbours in a batch carry unlike rows."""
        return [(number + row) % len(self._inputs) for row in range(self._plan["rows"])]


class Sent:
    """A request on its way."""

    __slots__ = ("deadline", "due", "ended", "number", "resent", "timer")

    def __init__(self, number: int, due: float, deadline: float) -> None:
        self.number = number
        self.due = due
        self.deadline = deadline
        self.ended = False
        self.resent = 0
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.Protocol):
    """At most one request at a time."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.sent: Sent | None = None
        self.closing = False
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # always a stream here

    def send(self, sent: Sent, data: bytes) -> None:
        assert self._transport is not None
        self.sent = sent
        self._transport.write(data)

    def close(self) -> None:
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._driver.gone(self)

    def data_received(self, data: bytes) -> None:
        if self.sent is None:
            self._driver.unasked += 1  # an answer that nobody waits for
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_message_begin(self) -> None:
        self.headers, self.body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.closing = True
        if self.sent is None:
            self._driver.unasked += 1
            self.close()
        else:
            self._driver.answered(self, self._parser.get_status_code())


class Driver:
    """Sends what the plan says; `run` returns when each request has its end."""

    def __init__(self, plan: dict[str, Any], write: Any) -> None:
        self._plan = plan
        self._write = write
        self._payloads = Payloads(plan)
        self._loop = asyncio.get_running_loop()
        self._idle: deque[Connection] = deque()
        self._waiting: deque[Sent] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._open = 0
        self._left = len(plan["arrivals"])
        self._finished = asyncio.Event()
        self._lines: list[str] = []
        self._start = 0.0
        self.unasked = 0
        self.connections = 0
        self.not_connected = 0

    async def run(self) -> None:
        self._start = self._loop.time() + 0.5
        self._say({"start": time.time() + 0.5})
        flushing = self._loop.create_task(self._flush_often())
        for number, at in enumerate(self._plan["arrivals"]):
            due = self._start + at
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            self._begin(number, due)
        if self._left:
            await self._finished.wait()
        await asyncio.sleep(FLUSH_SECONDS)  # a second answer would still be seen
        flushing.cancel()
        totals = {
            "sent": len(self._plan["arrivals"]),
            "unasked": self.unasked,
            "connections": self.connections,
            "not_connected": self.not_connected,
        }
        self._say({"done": totals})
        self._flush()

    def _begin(self, number: int, due: float) -> None:
        sent = Sent(number, due, due + self._plan["deadline_seconds"])
        sent.timer = self._loop.call_at(sent.deadline, self._late, sent)
        self._go(sent)

    def _go(self, sent: Sent) -> None:
        while self._idle:
            connection = self._idle.popleft()
            if not connection.closing:
                self._send(connection, sent)
                return
        self._waiting.append(sent)
        self._open_one()

    def _open_one(self) -> None:
        if self._open + len(self._opening) < MOST_CONNECTIONS:
            task = self._loop.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _connect(self) -> None:
        while self._waiting:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, connection = await self._loop.create_connection(
                        lambda: Connection(self), self._plan["host"], self._plan["port"]
                    )
            except (OSError, TimeoutError):
                self.not_connected += 1
                await asyncio.sleep(CONNECT_AGAIN_SECONDS)
                continue
            self._open += 1
            self.connections += 1
            self._free(connection)
            return

    def _free(self, connection: Connection) -> None:
        connection.sent = None
        while self._waiting:
            sent = self._waiting.popleft()
            if not sent.ended:
                self._send(connection, sent)
                return
        self._idle.append(connection)

    def _send(self, connection: Connection, sent: Sent) -> None:
        left = sent.deadline - self._loop.time()
        connection.send(sent, self._payloads.request(sent.number, left_seconds=left))

    # ---- ends

    def answered(self, connection: Connection, status: int) -> None:
        sent, headers = connection.sent, connection.headers
        assert sent is not None
        if 200 <= status < 300:
            fault = self._payloads.fault(sent.number, connection.body, headers)
            self._end(sent, "wrong" if fault else "right", headers, fault)
        else:
            outcome = "refused" if status in REFUSED else "lost"
            self._end(sent, outcome, headers, f"{status}: {connection.body[:120]!r}")
        if connection.closing:
            connection.sent = None
            connection.close()
        else:
            self._free(connection)

    def gone(self, connection: Connection) -> None:
        self._open -= 1
        sent, connection.sent = connection.sent, None
        if sent is None or sent.ended:
            return
        if self._plan["resend_cut"]:
            sent.resent += 1
            self._go(sent)
        else:
            self._end(sent, "lost", {}, "the connection broke without an answer")

    def _late(self, sent: Sent) -> None:
        if not sent.ended:
            self._end(sent, "lost", {}, "no answer within the deadline")

    def _end(self, sent: Sent, outcome: str, headers: dict[bytes, bytes], detail: str) -> None:
        if sent.ended:  # too late for its deadline, which has been written down
            return
        sent.ended = True
        if sent.timer is not None:
            sent.timer.cancel()
        self._say(
            [
                sent.number,
                round(sent.due - self._start, 3),
                round(1000.0 * (self._loop.time() - sent.due), 2),
                outcome,
                headers.get(b"slimscale-model", b"").decode(),
                headers.get(b"slimscale-pod", b"").decode(),
                detail,
                sent.resent,
            ]
        )
        self._left -= 1
        if not self._left:
            self._finished.set()

    # ---- output

    def _say(self, line: Any) -> None:
        self._lines.append(json.dumps(line, separators=(",", ":")))

    def _flush(self) -> None:
        if self._lines:
            self._write("\n".join(self._lines) + "\n")
            self._lines.clear()

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._flush()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _main(plan: dict[str, Any]) -> None:
    await Driver(plan, _write).run()


if __name__ == "__main__":
    asyncio.run(_main(json.loads(Path(sys.argv[1]).read_text())))
