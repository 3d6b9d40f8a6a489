"""What was seen at one instant. Built by `observe/`, by the simulator and by tests alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from slimscale.domain.contract import ContractSample

__all__ = [
    "ConflictKind",
    "ContainerResources",
    "Freshness",
    "LimitRangeBounds",
    "NodeRoom",
    "Observation",
    "OtherOwner",
    "PodObservation",
    "QosClass",
    "ResizeCondition",
    "ResizeState",
    "TargetObservation",
]


class Freshness(StrEnum):
    FRESH = "Fresh"
    STALE = "Stale"
    MISSING = "Missing"
    INVALID = "Invalid"


class QosClass(StrEnum):
    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ResizeState(StrEnum):
    """From the conditions PodResizePending and PodResizeInProgress (and the old status.resize)."""

    NONE = "None"
    PROPOSED = "Proposed"
    IN_PROGRESS = "InProgress"
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class ResizeCondition:
    state: ResizeState = ResizeState.NONE
    message: str = ""
    since_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """CPU in millicores; None where the field is absent. Memory only to reason about QoS."""

    cpu_request_millicores: int | None = None
    cpu_limit_millicores: int | None = None
    memory_request_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a node could still give: allocatable less the requests of all its pods."""

    name: str
    allocatable_millicores: int
    requested_millicores: int
    static_cpu_manager: bool | None = None
    """None: the node does not say."""

    @property
    def free_millicores(self) -> int:
        return max(0, self.allocatable_millicores - self.requested_millicores)


@dataclass(frozen=True, slots=True)
class PodObservation:
    name: str
    uid: str
    node: str
    phase: str
    ready: bool
    terminating: bool
    created_at_seconds: float
    qos_class: QosClass
    resource_version: str
    spec_resources: ContainerResources
    """Of the named container, from the pod's spec: what was asked for."""
    applied_resources: ContainerResources | None
    """From the container's status, `resources`: what the kubelet has set. None: not reported."""
    other_cpu_request_millicores: int
    """Sum over the pod's other containers and sidecars."""
    other_containers_guaranteed: bool
    """All other containers have requests equal to limits, so QoS hangs on the named one."""
    resize: ResizeCondition
    resize_restarts_container: bool
    """resizePolicy for cpu is RestartContainer: an in-place resize would restart it."""
    restart_count: int
    last_restart_seconds: float | None
    crash_looping: bool
    desired_threads: int | None
    """From the annotation slimscale.dev/threads."""
    has_live_channel: bool
    """The named container mounts the annotation volume."""
    kept_env: tuple[str, ...] = ()
    samples: tuple[ContractSample, ...] = ()
    """Oldest first, all within the observation's horizon. Empty: no contract, or no answer."""
    freshness: Freshness = Freshness.MISSING
    sample_problem: str = ""
    """Why there is no usable sample: for conditions. Never a response's body."""

    @property
    def latest(self) -> ContractSample | None:
        return self.samples[-1] if self.samples else None

    @property
    def acknowledged_threads(self) -> int | None:
        return self.latest.threads_applied if self.latest is not None else None


class ConflictKind(StrEnum):
    HPA_ON_CPU = "HorizontalPodAutoscalerOnCPU"
    VPA_ON_TARGET = "VerticalPodAutoscalerOnTarget"
    SECOND_SIMWORKLOAD = "SecondSimWorkload"


@dataclass(frozen=True, slots=True)
class OtherOwner:
    kind: ConflictKind
    name: str


@dataclass(frozen=True, slots=True)
class LimitRangeBounds:
    """Of type Container, millicores. Several LimitRanges: the tightest of each."""

    min_cpu_millicores: int | None = None
    max_cpu_millicores: int | None = None
    max_limit_request_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class TargetObservation:
    kind: str
    name: str
    uid: str
    generation: int
    selector: str
    """As a label selector string, for the status and for listing pods."""
    desired_replicas: int
    container: str
    """Resolved name of the container."""
    template_resources: ContainerResources
    template_env: Mapping[str, str] = field(default_factory=dict)
    """Plain values of the container's variables that the template sets; secrets are left out."""
    template_opaque_env: tuple[str, ...] = ()
    """Names of the other variables that it sets: their values are no counts and are not kept."""
    rollout_in_progress: bool = False
    rollout_failed: bool = False
    template_managed_fields: tuple[str, ...] = ()
    """Names of other field managers that own the CPU or the variables in the template."""
    native_sidecar: bool = False
    """The container is an init container with restartPolicy Always."""
    template_owner: str = ""
    """`SlimInference NAME`: the template is written by that one's controller alone. Empty: a
    user's, which a rollout may change."""


@dataclass(frozen=True, slots=True)
class Observation:
    namespace: str
    name: str
    uid: str
    generation: int
    sampled_at_seconds: float
    target: TargetObservation | None
    target_problem: str = ""
    """CamelCase reason from api.conditions.Reason when target is None."""
    target_message: str = ""
    pods: tuple[PodObservation, ...] = ()
    nodes: Mapping[str, NodeRoom] = field(default_factory=dict)
    limit_range: LimitRangeBounds = LimitRangeBounds()
    quota_free_limit_millicores: int | None = None
    """Least room left by ResourceQuotas on limits.cpu; None: no such quota, or not readable."""
    quota_free_request_millicores: int | None = None
    other_owners: tuple[OtherOwner, ...] = ()
    metrics_problem: str = ""
    """Set when the whole source failed (Prometheus down), not one pod."""

    @property
    def running_pods(self) -> tuple[PodObservation, ...]:
        return tuple(p for p in self.pods if p.phase == "Running" and not p.terminating)
