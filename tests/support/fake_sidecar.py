"""A pod's batching sidecar as the router meets it: the same wire, behaviour to order.

It answers with the sum of the numbers it was sent, so that a test can check each answer against its
own input.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from slimscale.domain.serving import PodTelemetry
from slimscale.serving import headers as names
from slimscale.serving.http import HttpServer, Request, Response
from slimscale.serving.http.messages import JSON_TYPE
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.router.endpoints import Endpoint
from slimscale.serving.telemetry import encode_telemetry
from tests.support.routing_cases import telemetry

__all__ = ["FakeSidecar", "body_of", "fake_sidecar", "number_in"]


def body_of(number: int, *, rows: int = 1, request_id: str = "") -> bytes:
    """A request that carries a number of its own."""
    document: dict[str, object] = {"id": request_id} if request_id else {}
    document["inputs"] = [
        {"name": "image", "datatype": "FP32", "shape": [rows, 1], "data": [number] * rows}
    ]
    return json.dumps(document).encode()


def number_in(body: bytes) -> int:
    """The number that an answer gives back."""
    return int(json.loads(body)["outputs"][0]["data"][0])


class FakeSidecar:
    def __init__(self, name: str, pool: str = "cpu") -> None:
        self.name = name
        self.pool = pool
        self.server = HttpServer(self._handle, name=name)
        self.telemetry: PodTelemetry | None = telemetry()
        """None: sends none at all."""
        self.answer_with: Callable[[Request], Response | None] = lambda _request: None
        """A refusal or fault instead of the answer."""
        self.open = asyncio.Event()
        """Answers wait for it; open at first."""
        self.open.set()
        self.queue_limit: int | None = None
        """With one: serves one request at a time, and refuses what does not fit its queue."""
        self.refusals = 0
        self.got: asyncio.Queue[Request] = asyncio.Queue()
        self.bodies: list[bytes] = []
        self.models: Counter[str] = Counter()
        self.ran: Counter[bytes] = Counter()
        """Executions by request id."""
        self.cancelled = asyncio.Event()
        """A request was taken back."""
        self.polls = 0
        self._inside = 0
        self._turn = asyncio.Lock()
        self._port = 0

    async def start(self) -> None:
        """At the same port as before, if it ran before."""
        self.server = HttpServer(self._handle, name=self.name)
        await self.server.start("127.0.0.1", self._port)
        self._port = self.server.port

    @property
    def port(self) -> int:
        return self._port

    def endpoint(self, *, ready: bool = True) -> Endpoint:
        return Endpoint(self.name, "127.0.0.1", self._port, ready=ready)

    async def kill(self) -> None:
        """As kill -9 does it: no answer, no goodbye, nobody listens."""
        await self.server.close(0.0)

    async def _handle(self, request: Request) -> Response:
        if request.path == "/telemetry":
            self.polls += 1
            if self.telemetry is None:
                return error_response(404, "none")
            body = encode_telemetry(self.telemetry)
            return Response(200, body, (JSON_TYPE, (names.POOL, self.pool.encode())))
        parts = request.path.split("/")
        if request.method == b"GET":
            tensor = {"name": "image", "datatype": "FP32", "shape": [-1, 1]}
            document = {"name": parts[-1], "inputs": [tensor], "outputs": [tensor]}
            return Response(200, json.dumps(document).encode(), (JSON_TYPE,))
        return await self._infer(request, parts[3])

    async def _infer(self, request: Request, model: str) -> Response:
        request.on_cancel(self.cancelled.set)
        self.got.put_nowait(request)
        self.bodies.append(request.body)
        instead = self.answer_with(request)
        if instead is not None:
            instead.headers = (*instead.headers, *self._own_headers())
            return instead
        if self.queue_limit is not None:
            if self._inside >= self.queue_limit:
                self.refusals += 1
                return error_response(429, "full", retry_after_seconds=1.0)
            self._inside += 1
            async with self._turn:
                for _ in range(20):  # of the loop: others get to it meanwhile
                    await asyncio.sleep(0)
            self._inside -= 1
        self.models[model] += 1
        self.ran[request.headers.get(names.REQUEST_ID, b"")] += 1
        await self.open.wait()
        if names.INFERENCE_HEADER_LENGTH in request.headers:
            number = 0
        else:
            number = json.loads(request.body)["inputs"][0]["data"][0]
        document = {
            "model_name": model,
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [1, 1], "data": [number]}],
        }
        headers = (JSON_TYPE, (names.MODEL, model.encode()), *self._own_headers())
        return Response(200, json.dumps(document).encode(), headers)

    def _own_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        told = (
            () if self.telemetry is None else ((names.TELEMETRY, encode_telemetry(self.telemetry)),)
        )
        return (
            *told,
            (names.POD, self.name.encode()),
            (names.POOL, self.pool.encode()),
            (names.QUEUE_MILLISECONDS, b"0.1"),
            (names.COMPUTE_MILLISECONDS, b"1.5"),
            (names.BATCH_ROWS, b"1"),
        )


@asynccontextmanager
async def fake_sidecar(name: str, pool: str = "cpu") -> AsyncIterator[FakeSidecar]:
    sidecar = FakeSidecar(name, pool)
    await sidecar.start()
    try:
        yield sidecar
    finally:
        sidecar.open.set()
        await sidecar.server.close(0.0)
