"""The data port: inference, health, metadata, telemetry. Nothing here changes anything."""

from collections.abc import Callable
from math import prod
from typing import Any

from slimscale.api.serving_config import SidecarConfig
from slimscale.serving import headers as names
from slimscale.serving.http.deferred import Deferred
from slimscale.serving.http.messages import JSON_TYPE, Request, Response
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.protocol.paths import Endpoint, Resource, parse_path
from slimscale.serving.protocol.requests import parse_request, peek_rows
from slimscale.serving.protocol.responses import json_response, select_outputs
from slimscale.serving.sidecar.admission import Refusal
from slimscale.serving.sidecar.batcher import Batcher
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import ModelState, Pending
from slimscale.serving.telemetry import encode_telemetry

__all__ = ["Front"]

_SERVER = {"name": "slimscale", "version": "2", "extensions": ["binary_tensor_data"]}
_MOST_MILLISECONDS = 600_000.0
_MOST_HOLD_MILLISECONDS = 10_000.0
_SMALL_BYTES = 64 * 2**10
_BYTES_OF_A_NUMBER = 40
"""Of a number in JSON, at most, with its comma, brackets and blanks."""


class Front:
    """Handles requests of the data port. `ready()` gives None, or why the pod isn't.

    The service's own name stands for its widest model, so that a pod can be asked without a router.
    """

    def __init__(
        self,
        batcher: Batcher,
        config: SidecarConfig,
        metrics: SidecarMetrics,
        *,
        ready: Callable[[], str | None],
    ) -> None:
        self._batcher = batcher
        self._metrics = metrics
        self._ready = ready
        self.configure(config)

    def configure(self, config: SidecarConfig) -> None:
        widest = max(config.widths, key=lambda width: width.ratio).model
        self._names = {config.service: widest}
        self._names |= {width.model: width.model for width in config.widths}
        self._timeout_seconds = config.timeout_milliseconds / 1000.0

    def handle(self, request: Request) -> Response | Deferred[Response]:
        endpoint = parse_path(request.path)
        if endpoint is None:
            if request.path == "/telemetry" and request.method == b"GET":
                return Response(200, encode_telemetry(self._batcher.telemetry()), (JSON_TYPE,))
            return error_response(404, f"path {request.path[:100]}: not served here")
        if endpoint.resource is Resource.INFER and request.method == b"POST":
            return self._infer(request, endpoint)
        if request.method != endpoint.method:
            return error_response(405, f"takes {endpoint.method.decode()} alone")
        return self._about(endpoint)

    def _about(self, endpoint: Endpoint) -> Response:  # noqa: PLR0911 - one a resource
        """Health and metadata. Loading and unloading stays on the model server's own port."""
        resource, model = endpoint.resource, endpoint.model
        if resource is Resource.LIVE:
            return json_response({"live": True})
        if resource is Resource.READY:
            return self._if_ready({"ready": True})
        if resource is Resource.SERVER:
            return json_response(_SERVER)
        if resource not in (Resource.MODEL, Resource.MODEL_READY):
            return error_response(404, "the model repository is not served here")
        if self._model(model) is None:
            return self._unknown(model)
        metadata = self._batcher.metadata
        if resource is Resource.MODEL and metadata is not None:
            return json_response(metadata.as_json(name=model))
        return self._if_ready({"name": model, "ready": True})

    def _if_ready(self, document: dict[str, Any]) -> Response:
        problem = self._ready()
        if problem is None:
            return json_response(document)
        return error_response(503, problem, retry_after_seconds=1.0)

    def _model(self, name: str) -> ModelState | None:
        own = self._names.get(name)
        return self._batcher.models.get(own) if own is not None else None

    def _unknown(self, name: str) -> Response:
        known = ", ".join(self._names)
        return error_response(404, f"model {name[:64]!r}: not served here; known: {known}")

    def _infer(self, request: Request, endpoint: Endpoint) -> Response | Deferred[Response]:
        try:
            return self._take(request, endpoint)
        except InvalidRequest as error:
            self._metrics.refused("Invalid")
            return self._refused(error_response(error.status, str(error)))

    def _take(self, request: Request, endpoint: Endpoint) -> Response | Deferred[Response]:
        batcher = self._batcher
        model = self._model(endpoint.model)
        if model is None:
            return self._refused(self._unknown(endpoint.model))
        if batcher.metadata is None:
            problem = self._ready() or "not ready"
            return self._refused(error_response(503, problem, retry_after_seconds=1.0))
        size = len(request.body)
        if size > _SMALL_BYTES:
            self._check_plausible(size)
        deadline = request.received_at + self._budget_seconds(request)
        # Before the body is parsed, so that refusing stays cheap when there is most to refuse.
        # With nothing queued only the deadline can be in the way, and a few rows decide nothing.
        rows = (peek_rows(request.body) or 1) if batcher.queues.live else 1
        judged = batcher.judge(model, rows, size, deadline)
        if isinstance(judged, Refusal):
            self._metrics.refused(judged.reason)
            return self._refused(judged.response())
        batching = batcher.batching
        parsed = parse_request(
            request.headers,
            request.body,
            expected=batcher.metadata.inputs,
            max_rows=batching.max_rows,
        )
        wishes = select_outputs(parsed, [spec.name for spec in batcher.metadata.outputs])
        if names.INFERENCE_HEADER_LENGTH not in request.headers:
            request.body = b""  # parsed to numbers: the text is not needed any more
            size = parsed.nbytes
        answer: Deferred[Response] = Deferred()
        hold = _hold_seconds(request) if names.HOLD_MILLISECONDS in request.headers else 0.0
        withdraw = batcher.submit(
            model,
            Pending(
                parsed,
                wishes,
                answer,
                endpoint.model,
                # what may wait was promised nothing
                expected_seconds=0.0 if hold else judged,
                hold_seconds=hold,
            ),
            cap=self._cap(request, batching.max_rows),
            size_bytes=size,
            deadline=deadline,
        )
        request.on_cancel(withdraw)
        return answer

    def _check_plausible(self, size: int) -> None:
        """A body far larger than a full batch can be is not parsed: that would hold up all others."""
        metadata = self._batcher.metadata
        rows = self._batcher.batching.max_rows
        lengths = [spec.shape[1:] for spec in metadata.inputs] if metadata is not None else []
        if any(length < 0 for shape in lengths for length in shape):
            return
        numbers = rows * sum(prod(shape) for shape in lengths)
        if size > _SMALL_BYTES + numbers * _BYTES_OF_A_NUMBER:
            raise InvalidRequest(
                f"body of {size} bytes; {rows} rows, the most of one request, take far less", 413
            )

    def _refused(self, response: Response) -> Response:
        self._metrics.answered(response.status)
        return response

    def _budget_seconds(self, request: Request) -> float:
        value = request.headers.get(names.DEADLINE_MILLISECONDS)
        if value is None:
            return self._timeout_seconds
        try:
            milliseconds = float(value)
        except ValueError:
            milliseconds = -1.0
        if not 0.0 < milliseconds <= _MOST_MILLISECONDS:
            raise InvalidRequest(
                f"header slimscale-deadline-ms: {value[:20].decode('latin-1')!r}; send the"
                f" milliseconds that are left, up to {_MOST_MILLISECONDS:.0f}"
            )
        return milliseconds / 1000.0

    def _cap(self, request: Request, most: int) -> int:
        value = request.headers.get(names.BATCH_CAP)
        if value is None:
            return most
        if not value.isdigit() or len(value) > 6 or not int(value):
            raise InvalidRequest(
                f"header slimscale-batch-cap: {value[:20].decode('latin-1')!r}; send a number of"
                " rows, 1 or more"
            )
        return min(int(value), most)


def _hold_seconds(request: Request) -> float:
    value = request.headers[names.HOLD_MILLISECONDS]
    if not value.isdigit() or len(value) > 6:
        raise InvalidRequest(
            f"header slimscale-hold-ms: {value[:20].decode('latin-1')!r}; send whole milliseconds, up"
            f" to {_MOST_HOLD_MILLISECONDS:.0f}"
        )
    return min(float(value), _MOST_HOLD_MILLISECONDS) / 1000.0
