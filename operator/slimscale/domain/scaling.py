"""What scaling sees, is asked for and says: pools of pods, the demand on a service, a decision.

Built by the controller, the simulator and tests alike. Rows are inputs of the model: a request has
one or more. None means unknown and is never read as 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from slimscale.domain.decision import Action, DecisionStep
from slimscale.domain.observation import Freshness
from slimscale.domain.serving import PodTelemetry

__all__ = [
    "DemandObservation",
    "PoolDecision",
    "PoolObservation",
    "PoolPod",
    "PoolSpec",
    "ScalingDecision",
    "ScalingObservation",
    "ScalingOwner",
    "ScalingSpec",
    "ServiceTime",
]


class ScalingOwner(StrEnum):
    """Who writes `.spec.replicas` of the pools' Deployments."""

    SLIMSCALE = "SlimScale"
    EXTERNAL = "External"


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """A batch of b rows of this width takes about `base + b * row` seconds on one pod."""

    model: str
    base_seconds: float
    row_seconds: float


@dataclass(frozen=True, slots=True)
class PoolPod:
    """One pod of a pool, whatever state it is in."""

    name: str
    ready: bool
    created_at_seconds: float
    ready_since_seconds: float | None = None
    """When it became ready for the first time; None: never yet."""
    unready_since_seconds: float | None = None
    """When its Ready condition turned False; None: it is ready, or nothing says."""
    unschedulable: bool = False
    """PodScheduled is False with reason Unschedulable."""
    terminating: bool = False
    telemetry: PodTelemetry | None = None
    telemetry_age_seconds: float = math.inf
    device_lost: bool = False
    """Its GPU has fallen off the bus: it serves nothing, and its silence is not idleness."""
    deletion_cost: int = 0
    """The pod's present annotation `controller.kubernetes.io/pod-deletion-cost`."""


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """One Deployment of a SlimInference."""

    name: str
    spec_replicas: int
    """The Deployment's `.spec.replicas`: what was asked for, without a rollout's surge."""
    pods: tuple[PoolPod, ...] = ()
    rollout_in_progress: bool = False
    prior_service_times: tuple[ServiceTime, ...] = ()
    """Known before any pod has measured one (the model's card, an earlier version's)."""
    replicas_managers: tuple[str, ...] = ()
    """Field managers other than ours that own `.spec.replicas`."""

    @property
    def ready_pods(self) -> tuple[PoolPod, ...]:
        return tuple(p for p in self.pods if p.ready and not p.terminating and not p.device_lost)

    @property
    def starting_pods(self) -> tuple[PoolPod, ...]:
        return tuple(p for p in self.pods if not (p.ready or p.terminating or p.device_lost))


@dataclass(frozen=True, slots=True)
class DemandObservation:
    """Arrivals at the routers, summed over them. Offered load: what was rejected is counted in."""

    sampled_at_seconds: float
    freshness: Freshness = Freshness.FRESH
    stable_rows_per_second: float | None = None
    """Rows that arrived in the stable window, by its length (or the router's age if shorter)."""
    panic_rows_per_second: float | None = None
    """The same over the panic window."""
    rows_per_request: float = 1.0
    buffered_rows: int = 0
    """Held by the routers because no pod could take them."""
    rejected_rows_per_second: float = 0.0
    """Answered 429 or 503 in the stable window; contained in the arrivals above."""
    idle_seconds: float | None = None
    """Since the last arrival at any router; None: unknown."""
    slo_attainment: float | None = None
    """Share of the stable window's requests that were answered within the SLO."""
    routers: int = 1
    routers_answering: int = 1
    """Fewer than `routers`: the figures are a lower bound, good to grow by and not to shrink by."""

    @property
    def complete(self) -> bool:
        """Whether every figure that shrinking rests on is there and is a number."""
        rates = (self.stable_rows_per_second, self.panic_rows_per_second)
        return (
            self.freshness is Freshness.FRESH
            and self.routers_answering >= max(1, self.routers)
            and all(rate is not None and math.isfinite(rate) and rate >= 0 for rate in rates)
        )


@dataclass(frozen=True, slots=True)
class ScalingObservation:
    """Everything about one SlimInference that its replica counts depend on."""

    sampled_at_seconds: float
    demand: DemandObservation | None
    """None: no router could be asked."""
    pools: tuple[PoolObservation, ...]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the custom resource says of a pool."""

    name: str
    min_replicas: int = 0
    max_replicas: int = 1
    cost_per_hour: float | None = None
    """Of one replica, in any one unit; None counts as 1."""
    max_batch_rows: int = 32
    instances: int = 1
    """Batches that a pod works on side by side without slowing each other (one a device)."""


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """What the custom resource asks of scaling. Defaults are the API's."""

    pools: tuple[PoolSpec, ...]
    target_model: str
    """Width that replicas are sized for; narrower ones bridge a burst until pods are there."""
    slo_seconds: float
    percentile: float = 0.95
    """Share of requests that should be answered within `slo_seconds`, 0 to 1."""
    owner: ScalingOwner = ScalingOwner.SLIMSCALE
    headroom: float = 0.2
    """Capacity kept beyond the demand, as a share of it."""
    tolerance: float = 0.1
    """Demand may leave the present capacity by this share before anything changes."""
    stable_window_seconds: float = 60.0
    panic_window_seconds: float = 6.0
    panic_threshold: float = 1.1
    """Demand of the panic window, over the ready capacity, from which it counts at once."""
    up_cooldown_seconds: float = 0.0
    down_cooldown_seconds: float = 30.0
    down_stabilisation_seconds: float = 600.0
    """Replicas fall to the highest need of this window, not to the last one."""
    burst_memory_seconds: float = 1200.0
    """Bursts that have come again within this time keep what they need; 0: never."""
    up_pods: int = 8
    up_factor: float = 2.0
    """One decision adds at most so many pods or multiplies by this, whichever is more."""
    down_pods: int = 1
    down_factor: float = 0.5
    """One decision removes at most so many pods or this share, whichever is more."""
    pending_timeout_seconds: float = 120.0
    """A pod that is not ready by then is no capacity on the way: other pools are tried."""
    telemetry_stale_seconds: float = 15.0
    idle_to_zero_seconds: float | None = None
    """None: never to zero. Else pools with min_replicas 0 empty after this time without arrivals."""
    drain_seconds: float = 15.0
    """What waits should be worked off within this time."""


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """One pool's desired replicas, before and after the guards."""

    name: str
    current: int
    wanted: int
    """Of the cheapest mix, before bounds in time (step, cooldown, stabilisation)."""
    replicas: int
    """To write, or to publish where the owner is External."""
    field_value: int | None
    """For our server-side apply: None leaves `.spec.replicas` out, as another manager owns it."""
    pod_rows_per_second: float | None
    """What one pod takes within the SLO; None: not known, 0: it cannot meet it at all."""
    stuck: int = 0
    """Pods that have been starting for too long: no capacity on the way."""
    utilisation: float | None = None
    """Mean over distinct devices; None: no device says."""
    deletion_costs: Mapping[str, int] = field(default_factory=dict)
    """Pod name to the annotation that it should carry: the lowest goes first at scale-in."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Replicas of all pools of a SlimInference, and why."""

    decided_at_seconds: float
    action: Action
    pools: tuple[PoolDecision, ...]
    demand_rows_per_second: float | None
    """What the pools are sized for, headroom included; None: unknown."""
    capacity_rows_per_second: float
    """Of the ready pods, within the SLO."""
    panicking: bool
    metrics_available: bool
    message: str
    """One line for the condition and the event."""
    steps: tuple[DecisionStep, ...] = ()
    replace_pods: tuple[str, ...] = ()
    """Pods with a lost device, to delete so that their Deployment replaces them; one at a time."""
    memo: Mapping[str, object] = field(default_factory=dict)
    """JSON, small and versioned: what `decide` gets next time."""

    def replicas(self) -> dict[str, int]:
        return {pool.name: pool.replicas for pool in self.pools}
