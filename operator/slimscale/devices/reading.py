"""What is known of a device. None is unknown and never 0."""

from dataclasses import dataclass

__all__ = ["DeviceReading"]


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """All figures are the whole device's, whoever uses it."""

    device: str
    """UUID of a GPU or MIG instance, `cpu` for the container's cgroup."""
    kind: str
    """gpu, mig or cpu."""
    utilisation: float | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    power_watts: float | None = None
    lost: bool = False
    """Was there and can't be reached: no figure of it counts, least of all as idle."""
