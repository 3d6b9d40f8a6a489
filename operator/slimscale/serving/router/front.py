"""The front door: what a client of the Open Inference Protocol asks of the service by its name.

The service looks like one model. Nothing here changes anything: there is no loading, no unloading.
"""

from collections.abc import Coroutine
from typing import Any

from pydantic_core import from_json, to_json

import slimscale
from slimscale.serving.http import ClientPool, ExchangeFailed, Request, Response
from slimscale.serving.http.messages import JSON_TYPE, Answer
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.protocol.paths import Endpoint, Resource, parse_path
from slimscale.serving.protocol.responses import json_response
from slimscale.serving.router.forward import Forwarder
from slimscale.serving.router.pods import Pods

__all__ = ["FrontDoor"]

_METADATA_SECONDS = 2.0
_SERVER = {
    "name": "slimscale",
    "version": slimscale.__version__,
    "extensions": ["binary_tensor_data"],
}


class FrontDoor:
    """The handler of the data port."""

    def __init__(self, forwarder: Forwarder, pods: Pods, client: ClientPool) -> None:
        self._forwarder = forwarder
        self._pods = pods
        self._client = client
        self._metadata: dict[str, bytes] = {}
        """By service: what some pod has said before, for when none is there."""

    def handle(self, request: Request) -> Answer:
        endpoint = parse_path(request.path)
        if endpoint is None:
            return error_response(404, f"path {request.path[:100]}: not served here; see /v2")
        resource = endpoint.resource
        if resource is Resource.INFER and request.method == b"POST":
            if endpoint.model == self._service:
                return self._forwarder.infer(request)
            return self._unknown(endpoint)
        allowed = (b"GET", b"HEAD") if endpoint.method == b"GET" else (endpoint.method,)
        if request.method not in allowed:
            method = endpoint.method.decode()
            return error_response(405, f"path {request.path[:100]}: only {method} is served")
        return self._other(endpoint)

    @property
    def _service(self) -> str:
        return self._forwarder.live.config.service

    def _other(self, endpoint: Endpoint) -> Response | Coroutine[Any, Any, Response]:
        match endpoint.resource:
            case Resource.LIVE:
                return json_response({"live": True})
            case Resource.READY:
                return self._ready({"ready": True})
            case Resource.SERVER:
                return json_response(_SERVER)
            case Resource.MODEL | Resource.MODEL_READY:
                return self._about_model(endpoint)
            case Resource.REPOSITORY_INDEX:
                return json_response([{"name": self._service, "version": "1", "state": "READY"}])
            case _:
                return error_response(
                    404, "the router loads and unloads nothing; change the SlimInference instead"
                )

    def _about_model(self, endpoint: Endpoint) -> Response | Coroutine[Any, Any, Response]:
        if endpoint.model != self._service:
            return self._unknown(endpoint)
        if endpoint.resource is Resource.MODEL_READY:
            return self._ready({"name": endpoint.model, "ready": True})
        return self._model()

    def _ready(self, document: dict[str, object]) -> Response:
        """Ready is who can serve or hold: with a buffer, requests may come while no pod is there."""
        if self._forwarder.live.config.buffer_requests or any(
            pod.endpoint.ready for pod in self._pods
        ):
            return json_response(document)
        return error_response(503, "no pod is ready", retry_after_seconds=1.0)

    async def _model(self) -> Response:
        """Metadata of the widest model under the service's name, from any pod."""
        service = self._service
        known = self._metadata.get(service)
        if known is not None:
            return Response(200, known, (JSON_TYPE,))
        widest = max(self._forwarder.live.config.widths, key=lambda width: width.ratio).model
        for pod in [pod for pod in self._pods if pod.endpoint.ready]:
            try:
                reply = await self._client.request(
                    b"GET", pod.host, pod.port, f"/v2/models/{widest}".encode(),
                    timeout_seconds=_METADATA_SECONDS,
                )  # fmt: skip
                document = from_json(reply.body) if reply.status == 200 else None
            except (ExchangeFailed, ValueError):
                continue
            if isinstance(document, dict):
                known = to_json({**document, "name": service})
                self._metadata[service] = known
                return Response(200, known, (JSON_TYPE,))
        return error_response(
            503, "no pod has told the model's metadata yet; try again", retry_after_seconds=1.0
        )

    def forget_metadata(self) -> None:
        """The configuration has changed, and with it perhaps the model."""
        self._metadata.clear()

    def _unknown(self, endpoint: Endpoint) -> Response:
        name = endpoint.model[:64]
        return error_response(404, f"model {name!r}: not served here; known: {self._service}")
