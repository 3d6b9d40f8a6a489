"""What the sidecar counts. Every label has few values; nothing that clients write becomes one."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from slimscale.serving.histogram import ModelHistograms

__all__ = ["SidecarMetrics"]

_SECONDS = (
    0.0005,
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.128,
    0.25,
    0.5,
    1.0,
    2.0,
    8.0,
)
_ROWS = tuple(float(2**power) for power in range(11))


class SidecarMetrics:
    """Metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queue_seconds = ModelHistograms(
            "slimscale_sidecar_queue_seconds", "From a request's arrival to the start of its batch.",
            _SECONDS,
        )  # fmt: skip
        self.compute_seconds = ModelHistograms(
            "slimscale_sidecar_compute_seconds", "Of a batch, from sending it to its answer.",
            _SECONDS,
        )  # fmt: skip
        self.batch_rows = ModelHistograms(
            "slimscale_sidecar_batch_rows", "Rows of the batches that ran.",
            _ROWS,
        )  # fmt: skip
        for histograms in (self.queue_seconds, self.compute_seconds, self.batch_rows):
            registry.register(histograms)
        self.requests = Counter(
            "slimscale_sidecar_requests", "Inference requests answered, by status.", ("code",),
            registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "slimscale_sidecar_rejected",
            "Requests refused or given up without their answer, by reason.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.batch_failures = Counter(
            "slimscale_sidecar_batch_failures", "Batches without an answer, by reason.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.non_finite = Counter(
            "slimscale_sidecar_non_finite_requests", "Answers with a number that is not finite.",
            registry=registry,
        )  # fmt: skip
        self.loop_restarts = Counter(
            "slimscale_sidecar_loop_restarts", "Background loops that failed and were started anew.",
            ("loop",), registry=registry,
        )  # fmt: skip
        self.instance_changes = Counter(
            "slimscale_sidecar_instance_changes", "Instances loaded and unloaded.",
            ("model", "change", "result"), registry=registry,
        )  # fmt: skip
        self.instances = Gauge(
            "slimscale_sidecar_instances", "Loaded instances.", ("model",), registry=registry
        )
        self.queued_rows = Gauge(
            "slimscale_sidecar_queued_rows", "Rows waiting.", registry=registry
        )
        self.queued_bytes = Gauge(
            "slimscale_sidecar_queued_bytes", "Bytes of waiting requests.", registry=registry
        )
        self.pending = Gauge(
            "slimscale_sidecar_pending_requests", "Requests taken and not answered; 0 at rest.",
            registry=registry,
        )  # fmt: skip
        self.backlog_seconds = Gauge(
            "slimscale_sidecar_backlog_seconds", "Expected time until all taken work is done.",
            registry=registry,
        )  # fmt: skip
        self.model_server_up = Gauge(
            "slimscale_sidecar_model_server_up", "1 while the model server answers.",
            registry=registry,
        )  # fmt: skip
        self.config_value = Gauge(
            "slimscale_sidecar_config", "Limits in use, as sidecar.json set them.", ("setting",),
            registry=registry,
        )  # fmt: skip
        self.config_faults = Counter(
            "slimscale_sidecar_config_faults", "Bad configuration files; the last good one stays.",
            registry=registry,
        )  # fmt: skip
        self._by_status: dict[int, Counter] = {}
        self._by_reason: dict[str, Counter] = {}

    # A look-up by label costs more than the count, and most is counted when there is most to refuse.

    def answered(self, status: int, count: int = 1) -> None:
        found = self._by_status.get(status)
        if found is None:
            found = self._by_status[status] = self.requests.labels(str(status))
        found.inc(count)

    def refused(self, reason: str) -> None:
        """Refused or given up. `reason`: one of a few words of ours."""
        found = self._by_reason.get(reason)
        if found is None:
            found = self._by_reason[reason] = self.rejected.labels(reason)
        found.inc()
