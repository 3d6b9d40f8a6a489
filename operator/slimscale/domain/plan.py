"""The API writes that a decision asks for. Pure data: empty when nothing changes."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "ApplyResult",
    "Operation",
    "OperationResult",
    "PatchTemplate",
    "Plan",
    "PodProgress",
    "PodState",
    "ResizePod",
    "SetThreads",
]


class PodState(StrEnum):
    """Where a pod stands between its current and its target values; the value is the reason."""

    UP_TO_DATE = "UpToDate"
    AWAITING_ACKNOWLEDGEMENT = "AwaitingAcknowledgement"
    NOT_ACKNOWLEDGED = "NotAcknowledged"
    RESIZE_IN_PROGRESS = "ResizeInProgress"
    RESIZE_DEFERRED = "ResizeDeferred"
    RESIZE_INFEASIBLE = "ResizeInfeasible"
    RESIZE_ERROR = "ResizeError"
    RESIZE_REFUSED = "ResizeRefused"
    RESIZE_UNSUPPORTED = "ResizeUnsupported"
    NO_LIVE_CHANNEL = "NoLiveChannel"
    NOT_APPLIED = "NotApplied"
    STARTING = "Starting"


@dataclass(frozen=True, slots=True)
class SetThreads:
    """Write the annotation slimscale.dev/threads of one pod; fenced by the pod's uid."""

    pod: str
    uid: str
    threads: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Patch pods/resize of one container. None leaves that field out of the patch."""

    pod: str
    uid: str
    container: str
    cpu_request_millicores: int | None
    cpu_limit_millicores: int | None
    reason: str
    reverts: bool = False
    native_sidecar: bool = False
    """The container stands among the pod's initContainers."""


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """Server-side apply of the named container's variables and CPU in the target's template."""

    kind: str
    name: str
    uid: str
    container: str
    env: tuple[tuple[str, str], ...]
    cpu_request_millicores: int | None
    cpu_limit_millicores: int | None
    threads: int
    reason: str
    native_sidecar: bool = False


Operation = SetThreads | ResizePod | PatchTemplate


@dataclass(frozen=True, slots=True)
class PodProgress:
    """For the status: one a pod."""

    pod: str
    uid: str
    state: PodState
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    operations: tuple[Operation, ...] = ()
    progress: tuple[PodProgress, ...] = ()
    memo: dict[str, object] | None = None
    """Per-pod deadlines and remembered refusals, JSON; None: unchanged."""
    wake_after_seconds: float | None = None
    """When a deadline needs another look even if nothing happens."""
    reason: str = ""
    """From api.conditions.Reason, for what concerns the workload as a whole: RollingOut,
    RolloutFailed, OtherManagerReverts. Empty: the pods' states say all."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class OperationResult:
    operation: Operation
    ok: bool
    changed: bool
    reason: str = ""
    """CamelCase when not ok: Conflict, NotPermitted, Refused, Unavailable."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    results: tuple[OperationResult, ...] = ()

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)
