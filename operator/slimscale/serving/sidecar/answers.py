"""Writes the answers of a batch, with the headers that tell the router how the pod is doing."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimscale.domain.serving import PodTelemetry
from slimscale.routing.queues import Entry
from slimscale.serving import headers as names
from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.responses import encode_response
from slimscale.serving.protocol.tensors import Tensor
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import Pending
from slimscale.serving.sidecar.shares import in_order, share
from slimscale.serving.telemetry import encode_telemetry

__all__ = ["Answers"]

HeaderPair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answers:
    """`pod` and `pool` stand on each reply; empty ones are left out."""

    metrics: SidecarMetrics
    pod: str = ""
    pool: str = ""

    def own_headers(self) -> tuple[HeaderPair, ...]:
        pairs = ((names.POD, self.pod.encode()), (names.POOL, self.pool.encode()))
        return tuple(pair for pair in pairs if pair[1])

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
        telemetry: PodTelemetry,
    ) -> None:
        """Give each request its rows; `specs`: the model's outputs. Raises Mismatch, before anybody got any."""
        ordered = in_order(outputs, specs, rows)
        shares = share(ordered, [entry.rows for entry in entries])
        compute = ended - started
        of_batch = (
            *self.own_headers(),
            (names.MODEL, model.encode()),
            (names.TELEMETRY, encode_telemetry(telemetry)),
            (names.BATCH_ROWS, b"%d" % rows),
            (names.COMPUTE_MILLISECONDS, b"%.3f" % (compute * 1e3)),
        )
        waits = self.metrics.queue_seconds.labels(model)
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
            waits.observe(waited)
            answered += 1
            if not finite:
                self.metrics.non_finite.inc()
        self.metrics.requests.labels("200").inc(answered)
        self.metrics.batch_rows.labels(model).observe(rows)
        self.metrics.compute_seconds.labels(model).observe(compute)
