"""What the controller sees of one SlimInference and what it asks the API server for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slimscale.domain.scaling import ScalingObservation
from slimscale.domain.serving import PodTelemetry

__all__ = ["AnnotatePod", "ApplyChild", "ChildResult", "InferenceObservation", "InferencePlan"]
__all__ += ["PodProblem", "PolicyConfigMap", "PolicyReport", "RemoveChild", "RemovePod"]
__all__ += ["RouterReport", "TelemetryOfPod"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Why a pod does not serve. reason: CamelCase, as Kubernetes gives it."""

    pod: str
    pool: str
    """Empty: a pod of the router."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TelemetryOfPod:
    """What a router knows of one pod, and how long ago it heard it."""

    pod: str
    telemetry: PodTelemetry
    age_seconds: float


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """Which policy one router follows, and how far a candidate has come; `serving/router/state.py`."""

    asked: str
    acting: str
    stage: str = ""
    reason: str = ""
    words: str = ""
    falls: int = 0
    version: str = ""
    error: str | None = None
    overruled_share: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyConfigMap:
    """The ConfigMap that a spec names as its policy's."""

    name: str
    exists: bool = True
    missing_keys: tuple[str, ...] = ()
    revision: str = ""
    """Changes with its content."""


@dataclass(frozen=True, slots=True)
class RouterReport:
    """One router's figures over its windows, of all requests that it has got."""

    router: str
    pods: tuple[TelemetryOfPod, ...] = ()
    stable_rows_per_second: float | None = None
    panic_rows_per_second: float | None = None
    requests_per_second: float | None = None
    rejected_rows_per_second: float | None = None
    buffered_rows: int = 0
    idle_seconds: float | None = None
    slo_attainment: float | None = None
    latency_seconds: float | None = None
    """At the objective's percentile."""
    width_requests_per_second: Mapping[str, float] = field(default_factory=dict)
    policy: PolicyReport | None = None
    """None: a router of an older version, which does not say."""


@dataclass(frozen=True, slots=True)
class InferenceObservation:
    """Children and pods are plain JSON: they are compared with what they ought to be."""

    namespace: str
    name: str
    uid: str
    generation: int
    sampled_at_seconds: float
    children: Mapping[tuple[str, str], Json]
    """By (plural, name); only those that carry our label."""
    pods: tuple[Json, ...]
    scaling: ScalingObservation
    reports: tuple[RouterReport, ...] = ()
    problems: tuple[PodProblem, ...] = ()
    monitoring: bool = False
    """The cluster knows ServiceMonitors."""
    policy_file: PolicyConfigMap | None = None
    """None: the spec names none."""

    def deployment(self, name: str) -> Json | None:
        return self.children.get(("deployments", name))


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Server-side apply of one child. uid empty: it is not there yet."""

    api_version: str
    plural: str
    name: str
    body: Json
    uid: str
    reason: str
    """Create, Change, Drift (someone else changed it) or Scale."""


@dataclass(frozen=True, slots=True)
class RemoveChild:
    """Of a pool that the spec no longer has."""

    api_version: str
    plural: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class AnnotatePod:
    pod: str
    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemovePod:
    """A pod whose device is lost: its Deployment makes another one."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class InferencePlan:
    """Empty when nothing changes."""

    operations: tuple[ApplyChild | RemoveChild | AnnotatePod | RemovePod, ...] = ()
    foreign: tuple[str, ...] = ()
    """Names of ours that others' objects have: those are left alone."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """Of one write that did not succeed. reason: Conflict, NotPermitted, Refused, NameTaken ..."""

    plural: str
    name: str
    reason: str
    message: str
