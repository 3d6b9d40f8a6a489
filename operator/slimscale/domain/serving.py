"""What the parts of the data plane tell each other: telemetry of a pod, as frozen facts.

None means unknown (no GPU, no measurement yet) and is never read as 0.
"""

from dataclasses import dataclass

__all__ = ["PodTelemetry", "WidthTelemetry"]


@dataclass(frozen=True, slots=True)
class WidthTelemetry:
    """One width of the model on one pod. A batch of b rows takes about `base + b * row` seconds."""

    model: str
    instances: int
    """Loaded and warmed; 0 is cold."""
    loading: bool
    queued_rows: int
    running_rows: int
    base_seconds: float | None = None
    row_seconds: float | None = None
    load_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PodTelemetry:
    """Queues, instances and device of one pod, read by its batching sidecar."""

    widths: tuple[WidthTelemetry, ...]
    backlog_seconds: float
    """Expected time until an idle instance has nothing queued or running before a new request."""
    draining: bool = False
    utilisation: float | None = None
    """0 to 1, of the device or of the CPU quota."""
    memory_free_bytes: int | None = None
    """VRAM on a GPU pod, the cgroup's memory on a CPU pod."""
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    device: str | None = None
    """UUID of the GPU; pods that share one report the same."""
    device_lost: bool = False
    """Its GPU can't be reached any more: nothing runs here, and nothing will."""

    @property
    def queued_rows(self) -> int:
        return sum(width.queued_rows for width in self.widths)

    @property
    def running_rows(self) -> int:
        return sum(width.running_rows for width in self.widths)
