"""`SimWorkload`: the thread count and CPU of a simulation's pods, chosen and kept chosen.

Words follow VerticalPodAutoscaler and HorizontalPodAutoscaler where those have one. Every list and
string is bounded; each cross-field rule stands twice, as a validator here and as CEL in `crd.py`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slimscale.api.common import Condition, CpuQuantity, KubeModel, Name, Quantity
from slimscale.api.names import DEFAULT_METRICS_PATH, DEFAULT_METRICS_PORT
from slimscale.api.quantity import parse_millicores, parse_quantity

MAX_THREADS = 1024
HISTORY_LENGTH = 5
MAX_REPORTED_PODS = 50


class UpdateMode(StrEnum):
    """Off recommends only. Initial acts on new pods. InPlace never restarts a pod."""

    OFF = "Off"
    INITIAL = "Initial"
    IN_PLACE = "InPlace"
    IN_PLACE_OR_ROLLOUT = "InPlaceOrRollout"
    ROLLOUT = "Rollout"


class LimitPolicy(StrEnum):
    """How the CPU limit follows: one CPU a thread, the demand plus headroom, or not at all."""

    EQUAL_THREADS = "EqualThreads"
    HEADROOM = "Headroom"
    KEEP = "Keep"


class ControlledValues(StrEnum):
    REQUESTS_AND_LIMITS = "RequestsAndLimits"
    LIMITS_ONLY = "LimitsOnly"


class ObjectiveType(StrEnum):
    MAX_THROUGHPUT = "MaxThroughput"
    EFFICIENCY = "Efficiency"
    TARGET_THROUGHPUT = "TargetThroughput"


class MetricsSource(StrEnum):
    PODS = "Pods"
    PROMETHEUS = "Prometheus"


EnvName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
MetricName = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
]
LabelName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
LabelValue = Annotated[str, Field(max_length=256)]


class TargetRef(KubeModel):
    """The workload, always in the SimWorkload's own namespace."""

    api_version: Literal["apps/v1"] = Field(
        default="apps/v1", description="API group and version of the workload."
    )
    kind: Literal["Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"] = Field(
        default="Deployment", description="Kind of the workload."
    )
    name: Name = Field(description="Name of the workload.")


class UpdatePolicy(KubeModel):
    """What may be changed, and how long a change may take."""

    mode: UpdateMode = Field(
        default=UpdateMode.OFF,
        description="Off only recommends; Initial sets new pods; InPlace changes running pods and"
        " never restarts one; InPlaceOrRollout rolls where in-place is not possible; Rollout"
        " always changes the pod template.",
    )
    resize_deadline_seconds: int = Field(
        default=120, ge=10, le=3600,
        description="How long a deferred or failing in-place resize may stay before it is reverted.",
    )  # fmt: skip
    acknowledge_deadline_seconds: int = Field(
        default=60, ge=5, le=3600,
        description="How long a pod may take to report the new thread count before it is reported.",
    )  # fmt: skip


class Threads(KubeModel):
    """Bounds of the thread count of a pod, and how the program learns it."""

    min: int = Field(
        default=1, ge=1, le=MAX_THREADS, description="Fewest threads a pod may be given."
    )
    max: int = Field(
        default=64, ge=1, le=MAX_THREADS, description="Most threads a pod may be given."
    )
    env: list[EnvName] = Field(
        default_factory=list, max_length=16,
        description="Further environment variables that hold the program's thread count.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )  # fmt: skip
    override_user_env: bool = Field(
        default=False, description="Replace thread variables that the pod sets itself."
    )
    processes_per_pod: int = Field(
        default=1, ge=1, le=MAX_THREADS,
        description="Processes that each start a pool: variables get the floor of threads/processes.",
    )  # fmt: skip
    java_tool_options: bool = Field(
        default=False, description="Append -XX:ActiveProcessorCount to JAVA_TOOL_OPTIONS."
    )

    @model_validator(mode="after")
    def _min_not_above_max(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"threads.min {self.min} is above threads.max {self.max}; lower min")
        return self


class Cpu(KubeModel):
    """Bounds of the CPU limit of a pod, and how it follows the threads."""

    min: CpuQuantity = Field(default="100m", description="Lower end of the CPU limit, at least 1m.")
    max: CpuQuantity | None = Field(
        default=None, description="Upper end of the CPU limit; unset, the node's room is the bound."
    )
    limit_policy: LimitPolicy = Field(
        default=LimitPolicy.HEADROOM,
        description="EqualThreads: one CPU a thread. Headroom: predicted demand and some more. Keep:"
        " the limit stays; none is added, and none is ever removed.",
    )
    headroom_percent: int = Field(
        default=20, ge=0, le=400, description="Under Headroom: how far above predicted demand."
    )
    controlled_values: ControlledValues = Field(
        default=ControlledValues.REQUESTS_AND_LIMITS,
        description="What is written; LimitsOnly leaves requests, and so an HPA's base, alone.",
    )

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Self:
        if parse_millicores(self.min) < 1:
            raise ValueError(f"cpu.min {self.min} is below 1m; write at least 1m")
        if self.max is not None and parse_quantity(self.min) > parse_quantity(self.max):
            raise ValueError(f"cpu.min {self.min} is above cpu.max {self.max}; lower min")
        return self


class Objective(KubeModel):
    """What the thread count and the CPU are chosen for."""

    type: ObjectiveType = Field(
        default=ObjectiveType.MAX_THROUGHPUT,
        description="MaxThroughput: the most tasks a second. Efficiency: as long as a further step"
        " pays. TargetThroughput: the least that reaches `tasksPerSecond`.",
    )
    tolerance_percent: int = Field(
        default=3, ge=0, le=50,
        description="Throughput that may be given up for less CPU, and a third of it for fewer"
        " threads. Under Efficiency: what a further thread or CPU step must bring to be worth it.",
    )  # fmt: skip
    tasks_per_second: Quantity | None = Field(
        default=None, description="TargetThroughput: tasks a second of each pod."
    )

    @model_validator(mode="after")
    def _target_has_a_rate(self) -> Self:
        if self.type is ObjectiveType.TARGET_THROUGHPUT and self.tasks_per_second is None:
            raise ValueError(
                "objective.tasksPerSecond is missing; TargetThroughput needs the rate of a pod"
            )
        if self.tasks_per_second is not None and parse_quantity(self.tasks_per_second) <= 0:
            raise ValueError(
                f"objective.tasksPerSecond {self.tasks_per_second} is not above 0; write e.g. 100"
            )
        return self


class PrometheusMetrics(KubeModel):
    """Where the series of the contract lie. The address is the operator's, never a user's."""

    namespace_label: LabelName = Field(
        default="namespace", description="Label that holds the pod's namespace."
    )
    pod_label: LabelName = Field(default="pod", description="Label that holds the pod's name.")
    matchers: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=8,
        description="Further labels that a series must have, each equal to its value.",
    )  # fmt: skip
    metric_prefix: MetricName = Field(
        default="slimscale", description="First part of the series' names, before `_task_seconds`."
    )


class Metrics(KubeModel):
    """Where the measurements of the pods come from."""

    source: MetricsSource = Field(
        default=MetricsSource.PODS,
        description="Pods: the operator asks each pod. Prometheus: it asks the configured server.",
    )
    port: int = Field(
        default=DEFAULT_METRICS_PORT, ge=1, le=65535, description="Port of the pods' metrics."
    )
    path: str = Field(
        default=DEFAULT_METRICS_PATH, max_length=256, pattern=r"^/([A-Za-z0-9._~-]+/?)*$",
        description="HTTP path of the pods' metrics.",
    )  # fmt: skip
    interval_seconds: int = Field(
        default=5, ge=1, le=300, description="Time between two samples of a pod."
    )
    quick_interval_seconds: int = Field(
        default=2, ge=0, le=300,
        description="Time between two samples while a change of load or of ours is being judged;"
        " 0: no quicker than intervalSeconds. Only for source Pods.",
    )  # fmt: skip
    max_age_seconds: int = Field(
        default=60, ge=5, le=3600, description="Older samples are stale: the last target is held."
    )
    prometheus: PrometheusMetrics = PrometheusMetrics()

    @model_validator(mode="after")
    def _age_covers_two_samples(self) -> Self:
        if self.max_age_seconds < 2 * self.interval_seconds:
            raise ValueError(
                f"metrics.maxAgeSeconds {self.max_age_seconds} is below twice"
                f" metrics.intervalSeconds {self.interval_seconds}; raise it"
            )
        return self


class Tuning(KubeModel):
    """When a target is looked at again, and when a change is taken back."""

    online: bool = Field(default=True, description="Re-predict when a change of load is detected.")
    cpu_aware: bool = Field(
        default=True,
        description="Try more threads while CPU is idle and work waits, fewer while they only queue"
        " for a CPU; what does not pay is taken back.",
    )
    search: bool = Field(
        default=True,
        description="Try the neighbourhood of a settled thread count, at most five steps for one"
        " load; what does not pay is taken back.",
    )
    window_seconds: int = Field(
        default=15, ge=2, le=600, description="Length of the window that a decision looks at."
    )
    min_tasks: int = Field(
        default=30, ge=1, le=1_000_000, description="Tasks that a window needs to count."
    )
    hysteresis_percent: int = Field(
        default=5, ge=0, le=100, description="Predicted gain below which nothing is changed."
    )
    min_dwell_seconds: int = Field(
        default=20,
        ge=0,
        le=86400,
        description="Least time between two changes of one workload; half of it where more than 30 %"
        " is to be gained.",
    )
    regression_percent: int = Field(
        default=10, ge=1, le=100, description="Loss after a change that takes the change back."
    )


class SimWorkloadSpec(KubeModel):
    target_ref: TargetRef
    container_name: str = Field(
        default="", max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        description="The container that runs the simulation; may be left out when there is one."
        " A native sidecar (an init container with restartPolicy Always) is always named.",
    )  # fmt: skip
    update_policy: UpdatePolicy = UpdatePolicy()
    suspend: bool = Field(default=False, description="Observe and report, but write nothing.")
    threads: Threads = Threads()
    cpu: Cpu = Cpu()
    objective: Objective = Objective()
    metrics: Metrics = Metrics()
    tuning: Tuning = Tuning()

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if self.tuning.window_seconds < self.metrics.interval_seconds:
            raise ValueError(
                f"tuning.windowSeconds {self.tuning.window_seconds} is below"
                f" metrics.intervalSeconds {self.metrics.interval_seconds}; raise it"
            )
        return self


class ResourceChoice(KubeModel):
    """A thread count with its CPU. `cpuLimit` is absent where none is set."""

    threads: int = Field(ge=1, le=MAX_THREADS)
    cpu_request: str | None = Field(default=None, max_length=32)
    cpu_limit: str | None = Field(default=None, max_length=32)


class Step(KubeModel):
    """One stage of a decision and why it did what it did."""

    stage: str = Field(max_length=32)
    outcome: str = Field(max_length=64)
    reason: str = Field(max_length=512)


class HistoryEntry(KubeModel):
    time: datetime
    decision_id: str = Field(max_length=32)
    action: str = Field(max_length=32)
    from_threads: int | None = None
    to_threads: int | None = None
    from_cpu_limit: str | None = Field(default=None, max_length=32)
    to_cpu_limit: str | None = Field(default=None, max_length=32)
    reason: str = Field(default="", max_length=512)


class PodStatus(KubeModel):
    name: str = Field(max_length=253)
    threads: int | None = Field(default=None, description="Acknowledged by the pod itself.")
    desired_threads: int | None = None
    cpu_limit: str | None = Field(
        default=None, max_length=32, description="Applied by the kubelet."
    )
    state: str = Field(default="", max_length=64)
    message: str = Field(default="", max_length=512)


class CurvePoint(KubeModel):
    threads: int
    tasks_per_second: float


class ModelInputs(KubeModel):
    """What the predictor saw: means of the last window, seconds a task."""

    task_seconds: float | None = None
    task_cpu_seconds: float | None = None
    task_blocked_seconds: float | None = None
    dispatch_seconds: float | None = None
    cpu_limit_cores: float | None = None
    throttled_ratio: float | None = None
    contention: float | None = None


class SimWorkloadStatus(KubeModel):
    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status is about."
    )
    selector: str | None = Field(default=None, max_length=2048)
    replicas: int | None = Field(default=None, description="Pods of the target.")
    current: ResourceChoice | None = Field(
        default=None, description="What the pods use: acknowledged threads and applied CPU."
    )
    target: ResourceChoice | None = Field(default=None, description="What the pods are to use.")
    lower_bound: ResourceChoice | None = Field(
        default=None,
        description="The lower end of what the target may be, given how uncertain the figures are.",
    )
    upper_bound: ResourceChoice | None = Field(
        default=None,
        description="The upper end of what the target may be, given how uncertain the figures are.",
    )
    uncapped_target: ResourceChoice | None = Field(
        default=None, description="The target before bounds, LimitRange, quota and the node's room."
    )
    ratio: float | None = Field(default=None, description="r: task time over dispatch time.")
    predicted_tasks_per_second: float | None = Field(
        default=None, description="At the target, of a pod."
    )
    measured_tasks_per_second: float | None = Field(
        default=None, description="In the last window, of a pod."
    )
    confidence: str | None = Field(
        default=None, max_length=6, pattern=r"^(High|Medium|Low|None)$",
        description="How far the figures carry; None: there were no measurements.",
    )  # fmt: skip
    predictor: str | None = Field(
        default=None, max_length=64, description="The model that predicts, with its version."
    )
    tier: str | None = Field(
        default=None, max_length=32,
        description="What chose the target: Predict, CpuAware, Search, Revert or FloorOfQuota.",
    )  # fmt: skip
    inputs: ModelInputs | None = None
    curve: list[CurvePoint] = Field(default_factory=list, max_length=64)
    steps: list[Step] = Field(default_factory=list, max_length=16)
    pods: list[PodStatus] = Field(
        default_factory=list, max_length=MAX_REPORTED_PODS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )  # fmt: skip
    acknowledged_pods: int | None = Field(
        default=None, description="Pods that report the target as applied."
    )
    kept_env: list[EnvName] = Field(default_factory=list, max_length=32)
    history: list[HistoryEntry] = Field(default_factory=list, max_length=HISTORY_LENGTH)
    last_changed: datetime | None = Field(default=None, description="When the target changed last.")
    conditions: list[Condition] = Field(
        default_factory=list, max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )  # fmt: skip


class ObjectMeta(KubeModel):
    """Just what is read; Kubernetes' other metadata is let through."""

    model_config = KubeModel.model_config | {"extra": "ignore"}

    name: str = Field(max_length=253)
    namespace: str = Field(max_length=63)
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class SimWorkload(KubeModel):
    api_version: Literal["slimscale.dev/v1alpha1"] = "slimscale.dev/v1alpha1"
    kind: Literal["SimWorkload"] = "SimWorkload"
    metadata: ObjectMeta
    spec: SimWorkloadSpec
    status: SimWorkloadStatus = SimWorkloadStatus()
