"""A model server that answers at once, or when a test lets it: outputs are inputs times ten."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from slimscale.serving.http.messages import Request, Response
from slimscale.serving.http.server import HttpServer
from slimscale.serving.protocol import (
    InvalidRequest,
    ModelMetadata,
    Resource,
    Tensor,
    TensorSpec,
    encode_response,
    error_response,
    json_response,
    parse_path,
    parse_request,
)

__all__ = ["FakeModelServer", "echo"]

INPUTS = (TensorSpec("image", "FP32", (-1, 2)),)
OUTPUTS = (TensorSpec("logits", "FP32", (-1, 2)),)


def echo(rows: Any) -> Any:
    """What each row gets: ten times itself, so that an answer tells whose it is."""
    return rows * 10.0


class FakeModelServer:
    """`loaded` models are ready. Set `held` to keep batches waiting until `release`.

    `compute` makes the outputs, `fault` may answer in their place, `meanwhile` is awaited first.
    """

    def __init__(self, *loaded: str) -> None:
        self.loaded = set(loaded)
        self.batches: list[int] = []
        """Rows of each batch, in order of arrival."""
        self.seen: Counter[float] = Counter()
        """How often each row's first number was computed."""
        self.calls: list[str] = []
        self.compute: Callable[[Any], Any] = echo
        self.device: dict[str, Any] = {}
        self.fault: Callable[[Any], Response | None] = lambda _rows: None
        self.meanwhile: Callable[[Any], Awaitable[None]] | None = None
        self.is_ready = True
        self.load_refusal: Response | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self.arrived = asyncio.Event()
        self.running = 0
        self.most_running = 0
        self.port = 0
        self._server: HttpServer | None = None

    async def start(self) -> "FakeModelServer":
        self._server = HttpServer(self._handle, name="fake model server")
        await self._server.start("127.0.0.1", self.port)
        self.port = self._server.port
        return self

    async def stop(self) -> None:
        """As if killed: connections break, nothing is answered."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    def hold(self) -> None:
        self.arrived.clear()
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    async def _handle(self, request: Request) -> Response:  # noqa: PLR0911 - one a resource
        if request.path == "/device":
            return json_response(self.device)
        endpoint = parse_path(request.path)
        assert endpoint is not None
        model = endpoint.model
        self.calls.append(f"{endpoint.resource.name} {model}".strip())
        match endpoint.resource:
            case Resource.READY:
                return json_response({}, 200 if self.is_ready else 503)
            case Resource.MODEL_READY:
                return json_response({}, 200 if model in self.loaded else 503)
            case Resource.MODEL:
                return json_response(ModelMetadata(model, INPUTS, OUTPUTS).as_json())
            case Resource.LOAD:
                if self.load_refusal is not None:
                    return self.load_refusal
                self.loaded.add(model)
                return json_response({})
            case Resource.UNLOAD:
                self.loaded.discard(model)
                return json_response({})
            case _:
                return await self._infer(model, request)

    async def _infer(self, model: str, request: Request) -> Response:
        if model not in self.loaded:
            return error_response(404, f"{model} is not loaded")
        try:
            parsed = parse_request(request.headers, request.body, expected=INPUTS)
        except InvalidRequest as error:
            return error_response(error.status, str(error))
        rows = parsed.inputs[0].array
        self.batches.append(parsed.rows)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.arrived.set()
        try:
            await self._gate.wait()
            if self.meanwhile is not None:
                await self.meanwhile(rows)
        finally:
            self.running -= 1
        fault = self.fault(rows)
        if fault is not None:
            return fault
        self.seen.update(float(value) for value in rows[:, 0])
        output = Tensor("logits", "FP32", np.asarray(self.compute(rows), np.float32))
        return encode_response(model=model, outputs=[(output, True)])
