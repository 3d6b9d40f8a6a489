"""What a simulated service is made of: widths, pools, times, limits."""

from dataclasses import dataclass

from slimscale.routing.policy import Width

__all__ = ["SimPool", "SimService"]


@dataclass(frozen=True, slots=True)
class SimPool:
    """Pods of one kind. A batch of b rows takes base + b * row * flops(width) seconds, with noise."""

    name: str
    base_seconds: float
    row_seconds: float
    """Of the widest width."""
    min_replicas: int = 1
    max_replicas: int = 20
    cost_per_hour: float = 1.0
    start_seconds: float = 10.0
    """From a place on a node to Ready: image, process, model, warm-up. Varies by a tenth."""
    pods_per_node: int = 0
    """Pods that a node holds; 0: there is always room."""
    first_nodes: int = 1
    node_seconds: float = 60.0
    """Until a missing node is there, as with cluster-autoscaler or Karpenter."""


@dataclass(frozen=True, slots=True)
class SimService:
    """One SlimInference as the simulator runs it."""

    pools: tuple[SimPool, ...]
    widths: tuple[Width, ...]
    slo_seconds: float
    deadline_seconds: float
    """Of every request; what cannot be answered by then is dropped."""
    min_accuracy: float = 0.0
    max_batch_rows: int = 32
    queue_rows: int = 512
    buffer_requests: int = 1000
    noise: float = 0.1
    """Standard deviation of the logarithm of a batch's time."""
    telemetry_seconds: float = 1.0
    """The router asks a pod that has not answered for so long."""

    @property
    def widest(self) -> Width:
        return max(self.widths, key=lambda width: width.flops_ratio)
