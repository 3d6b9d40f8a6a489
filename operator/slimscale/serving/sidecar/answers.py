"""Writes the answers of a batch, with the headers that tell the router how the pod is doing."""

from collections.abc import Sequence

from slimscale.routing.queues import Entry
from slimscale.serving import headers as names
from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.responses import encode_response
from slimscale.serving.protocol.tensors import Tensor
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import Pending
from slimscale.serving.sidecar.shares import in_order, share

__all__ = ["Answers"]

HeaderPair = tuple[bytes, bytes]


class _ModelMetrics:
    """A model's metrics, looked up once: a lookup by label costs more than the count itself."""

    __slots__ = ("compute", "queue", "rows")

    def __init__(self, metrics: SidecarMetrics, model: str) -> None:
        self.queue = metrics.queue_seconds.of(model)
        self.rows = metrics.batch_rows.of(model)
        self.compute = metrics.compute_seconds.of(model)


class Answers:
    """`pod` and `pool` stand on each reply; empty ones are left out."""

    def __init__(self, metrics: SidecarMetrics, pod: str = "", pool: str = "") -> None:
        pairs = ((names.POD, pod.encode()), (names.POOL, pool.encode()))
        self._own_headers = tuple(pair for pair in pairs if pair[1])
        self._metrics = metrics
        self._of_model: dict[str, _ModelMetrics] = {}

    def write(
        self,
        specs: Sequence[TensorSpec],
        entries: Sequence[Entry[Pending]],
        outputs: Sequence[Tensor],
        *,
        model: str,
        rows: int,
        started: float,
        ended: float,
        telemetry: bytes,
    ) -> None:
        """Give each request its rows; `specs`: the model's outputs. Raises Mismatch, before anybody got any."""
        ordered = in_order(outputs, specs, rows)
        shares = share(ordered, [entry.rows for entry in entries])
        compute = ended - started
        of_batch = (
            *self._own_headers,
            (names.MODEL, model.encode()),
            (names.TELEMETRY, telemetry),
            (names.BATCH_ROWS, b"%d" % rows),
            (names.COMPUTE_MILLISECONDS, b"%.3f" % (compute * 1e3)),
        )
        metrics = self._of_model.get(model)
        if metrics is None:
            metrics = self._of_model[model] = _ModelMetrics(self._metrics, model)
        answered = 0
        for entry, (tensors, finite) in zip(entries, shares, strict=True):
            pending = entry.item
            if pending.answer.done():
                continue
            waited = started - entry.arrived
            pending.settle(
                encode_response(
                    model=pending.model,
                    outputs=[(tensors[index], binary) for index, binary in pending.wishes],
                    request_id=pending.request.id,
                    headers=(*of_batch, (names.QUEUE_MILLISECONDS, b"%.3f" % (waited * 1e3))),
                )
            )
            metrics.queue.observe(waited)
            answered += 1
            if not finite:
                self._metrics.non_finite.inc()
        self._metrics.answered(200, answered)
        metrics.rows.observe(rows)
        metrics.compute.observe(compute)
