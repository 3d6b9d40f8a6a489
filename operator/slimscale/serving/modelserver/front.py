"""The model server's routes, on localhost: inference, health, metadata, the repository, the device."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic_core import from_json

from slimscale.serving.headers import COMPUTE_MILLISECONDS, INFERENCE_HEADER_LENGTH
from slimscale.serving.http.messages import Request, Response
from slimscale.serving.modelserver.metrics import ModelServerMetrics
from slimscale.serving.modelserver.repository import MOST_INSTANCES, Repository
from slimscale.serving.modelserver.runtime import ModelFault
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.protocol.paths import Endpoint, Resource, parse_path
from slimscale.serving.protocol.requests import InferRequest, parse_request
from slimscale.serving.protocol.responses import encode_response, json_response, select_outputs
from slimscale.serving.protocol.tensors import Tensor

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
        self.rows_inside = 0
        """Rows waiting or running."""

    async def handle(self, request: Request) -> Response:
        if request.path == "/device":
            return json_response(self._device())
        endpoint = parse_path(request.path)
        if endpoint is None:
            return error_response(404, f"no such path: {request.path[:200]}")
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
        try:
            return await self._answer(endpoint, request)
        except InvalidRequest as error:
            response = error_response(error.status, str(error))
        except ModelFault as error:
            again = _RETRY_SECONDS if error.status == 503 else None
            response = error_response(error.status, str(error), retry_after_seconds=again)
        if endpoint.resource is Resource.INFER:
            # A name that clients made up becomes no label.
            known = endpoint.model if endpoint.model in self._repository.models else "unknown"
            self._metrics.requests.labels(known, str(response.status)).inc()
        return response

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        match endpoint.resource:
            case Resource.INFER:
                return await self._infer(endpoint.model, request)
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

    async def _infer(self, name: str, request: Request) -> Response:
        began = time.perf_counter()
        model = self._repository.model(name)
        if not model.instances or model.metadata is None:
            raise model.not_loaded()
        metadata = model.metadata
        names = [spec.name for spec in metadata.outputs]

        def parse() -> InferRequest:
            return parse_request(request.headers, request.body, expected=metadata.inputs)

        if INFERENCE_HEADER_LENGTH in request.headers or len(request.body) <= _INLINE_BYTES:
            asked = parse()
        else:
            asked = await asyncio.get_running_loop().run_in_executor(None, parse)
        wishes = select_outputs(asked, names)
        handed = time.perf_counter() - began
        self.rows_inside += asked.rows
        try:
            batch = await model.infer(asked.inputs)
        finally:
            self.rows_inside -= asked.rows
        began = time.perf_counter()
        self._metrics.ran(
            name, rows=asked.rows, seconds=batch.seconds, threads=self._repository.threads
        )
        self._count_nonfinite(name, batch.outputs)
        response = encode_response(
            model=name,
            outputs=[(batch.outputs[place], binary) for place, binary in wishes],
            request_id=asked.id,
            headers=((COMPUTE_MILLISECONDS, b"%.3f" % (1e3 * batch.seconds)),),
        )
        self._metrics.requests.labels(name, "200").inc()
        self._metrics.recorder.dispatch((handed + time.perf_counter() - began) / asked.rows)
        return response

    def _count_nonfinite(self, name: str, outputs: list[Tensor]) -> None:
        """Rows with NaN or infinity are answered as they are, null in JSON, and counted: nothing of
        the batch's other rows changes."""
        for tensor in outputs:
            array = tensor.array
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                rows = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
                self._metrics.nonfinite_rows.labels(name).inc(int(rows.sum()))


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
