"""The model server's routes, on localhost: inference, health, metadata, the repository, the device."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import from_json

from slimscale.serving.headers import COMPUTE_MILLISECONDS, INFERENCE_HEADER_LENGTH
from slimscale.serving.http.messages import Request, Response
from slimscale.serving.modelserver.instances import Batch, Model
from slimscale.serving.modelserver.metrics import ModelServerMetrics
from slimscale.serving.modelserver.occupancy import Occupancy
from slimscale.serving.modelserver.repository import MOST_INSTANCES, Repository
from slimscale.serving.modelserver.runtime import ModelFault
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.paths import Endpoint, Resource, parse_path
from slimscale.serving.protocol.requests import InferRequest, parse_request
from slimscale.serving.protocol.responses import encode_response, json_response, select_outputs
from slimscale.serving.protocol.tensors import Tensor, all_finite

__all__ = ["Front"]

_VERSION = "1"
_INLINE_BYTES = 64 * 2**10
"""A JSON body up to here is parsed on the event loop; a larger one would hold other requests up."""
_RETRY_SECONDS = 1.0


class Front:
    """`live` and `ready`: None, or why not. `device`: the document of GET /device."""

    def __init__(
        self,
        repository: Repository,
        metrics: ModelServerMetrics,
        *,
        live: Callable[[], str | None],
        ready: Callable[[], str | None],
        device: Callable[[], dict[str, Any]],
    ) -> None:
        self._repository = repository
        self._metrics = metrics
        self._live = live
        self._ready = ready
        self._device = device
        self.occupancy = Occupancy(now=time.monotonic, threads=lambda: repository.threads)
        """Rows waiting or running, over time."""

    def handle(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """A short batch is answered within this call; all else in a task."""
        if request.path == "/device":
            return json_response(self._device())
        endpoint = parse_path(request.path)
        if endpoint is None:
            return error_response(404, f"no such path: {request.path[:200]}")
        misfit = _misfit(endpoint, request)
        if misfit is not None:
            return misfit
        if endpoint.resource is not Resource.INFER:
            return self._guarded(endpoint, self._answer(endpoint, request))
        try:
            return self._infer(endpoint, request)
        except (InvalidRequest, ModelFault) as error:
            return self._fault(endpoint, error)

    async def _guarded(self, endpoint: Endpoint, answer: Coroutine[Any, Any, Response]) -> Response:
        try:
            return await answer
        except (InvalidRequest, ModelFault) as error:
            return self._fault(endpoint, error)

    def _fault(self, endpoint: Endpoint, error: InvalidRequest | ModelFault) -> Response:
        again = _RETRY_SECONDS if isinstance(error, ModelFault) and error.status == 503 else None
        response = error_response(error.status, str(error), retry_after_seconds=again)
        if endpoint.resource is Resource.INFER:
            # A name that clients made up becomes no label.
            known = endpoint.model if endpoint.model in self._repository.models else "unknown"
            self._metrics.requests.labels(known, str(response.status)).inc()
        return response

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        match endpoint.resource:
            case Resource.LIVE:
                return _health(self._live())
            case Resource.READY:
                return _health(self._ready())
            case Resource.LOAD:
                await self._repository.load(endpoint.model, _instances_of(request.body))
            case Resource.UNLOAD:
                await self._repository.unload(endpoint.model)
            case _:
                return json_response(self._document(endpoint))
        return json_response({})

    def _document(self, endpoint: Endpoint) -> Any:
        """What there is: the server, one model, or all of them."""
        if endpoint.resource is Resource.SERVER:
            return {
                "name": "slimscale-modelserver",
                "version": _VERSION,
                "extensions": ["binary_tensor_data", "model_repository"],
            }
        if endpoint.resource is Resource.REPOSITORY_INDEX:
            return [
                {
                    "name": model.name,
                    "version": _VERSION,
                    "state": model.state,
                    "reason": model.reason,
                    "instances": len(model.instances),
                }
                for model in self._repository.models.values()
            ]
        model = self._repository.model(endpoint.model)
        if not model.instances or model.metadata is None:
            raise model.not_loaded()
        if endpoint.resource is Resource.MODEL_READY:
            return {"name": model.name, "ready": True}
        return model.metadata.as_json()

    # ---- inference

    def _infer(
        self, endpoint: Endpoint, request: Request
    ) -> Response | Coroutine[Any, Any, Response]:
        model = self._repository.model(endpoint.model)
        if not model.instances or model.metadata is None:
            raise model.not_loaded()
        began = time.perf_counter()
        if INFERENCE_HEADER_LENGTH not in request.headers and len(request.body) > _INLINE_BYTES:
            return self._guarded(endpoint, self._infer_large(model, model.metadata, request))
        job = _read(model.metadata, request)
        handed = time.perf_counter() - began
        self.occupancy.entered(job.asked.rows)
        try:
            batch = model.infer_at_once(job.asked.inputs)
        finally:
            self.occupancy.left(job.asked.rows)
        if batch is None:
            return self._guarded(endpoint, self._infer_later(model, job, handed))
        return self._answered(model.name, job, batch, handed)

    async def _infer_large(
        self, model: Model, metadata: ModelMetadata, request: Request
    ) -> Response:
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        job = await loop.run_in_executor(None, _read, metadata, request)
        return await self._infer_later(model, job, time.perf_counter() - began)

    async def _infer_later(self, model: Model, job: "_Job", handed: float) -> Response:
        self.occupancy.entered(job.asked.rows)
        try:
            batch = await model.infer(job.asked.inputs)
        finally:
            self.occupancy.left(job.asked.rows)
        return self._answered(model.name, job, batch, handed)

    def _answered(self, name: str, job: "_Job", batch: Batch, handed: float) -> Response:
        """`handed`: seconds that reading the request took."""
        began = time.perf_counter()
        rows = job.asked.rows
        self._count_nonfinite(name, batch.outputs)
        response = encode_response(
            model=name,
            outputs=[(batch.outputs[place], binary) for place, binary in job.wishes],
            request_id=job.asked.id,
            headers=((COMPUTE_MILLISECONDS, b"%.3f" % (1e3 * batch.seconds)),),
        )
        self._metrics.ran(name, rows=rows, seconds=batch.seconds, threads=self._repository.threads)
        self._metrics.recorder.dispatch((handed + time.perf_counter() - began) / rows)
        return response

    def _count_nonfinite(self, name: str, outputs: list[Tensor]) -> None:
        """Rows with NaN or infinity are answered as they are, null in JSON, and counted: nothing of
        the batch's other rows changes."""
        for tensor in outputs:
            array = tensor.array
            if not all_finite(array):
                rows = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
                self._metrics.nonfinite_rows.labels(name).inc(int(rows.sum()))


@dataclass(frozen=True, slots=True)
class _Job:
    """What a client asks for; `wishes`: outputs by their place, and whether as binary."""

    asked: InferRequest
    wishes: list[tuple[int, bool]]


def _read(metadata: ModelMetadata, request: Request) -> _Job:
    asked = parse_request(request.headers, request.body, expected=metadata.inputs)
    return _Job(asked, select_outputs(asked, [spec.name for spec in metadata.outputs]))


def _misfit(endpoint: Endpoint, request: Request) -> Response | None:
    if request.method != endpoint.method and not (
        request.method == b"HEAD" and endpoint.method == b"GET"
    ):
        return error_response(
            405,
            f"{endpoint.method.decode()} is the method of this path",
            headers=((b"allow", endpoint.method),),
        )
    if endpoint.version not in ("", _VERSION):
        return error_response(404, f"version {endpoint.version[:20]!r}; there is only 1")
    return None


def _health(problem: str | None) -> Response:
    return json_response({"ok": True}) if problem is None else error_response(503, problem)


def _instances_of(body: bytes) -> int:
    """`{"parameters": {"instances": 2}}`, an extension of ours; 1 without it."""
    if not body.strip():
        return 1
    try:
        document = from_json(body)
    except ValueError as error:
        raise InvalidRequest(f"body: not valid JSON: {error}") from None
    parameters = document.get("parameters") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(parameters, dict | type(None)):
        raise InvalidRequest("body: not a JSON object with parameters")
    count = (parameters or {}).get("instances", 1)
    if type(count) is not int or not 1 <= count <= MOST_INSTANCES:
        raise InvalidRequest(
            f"parameters.instances: {str(count)[:20]}; a whole number from 1 to {MOST_INSTANCES}"
        )
    return count
