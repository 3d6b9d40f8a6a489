"""`SlimInference`: one slimmable model, served by pools of unlike nodes behind one front door.

There is no pod template: what a pod may be is fixed, and users say only where it runs and what it
gets. Everything is bounded; each cross-field rule stands twice, here and as CEL in
`sliminference_crd.py`.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slimscale.api.common import KubeModel, Name, Quantity
from slimscale.api.inference_status import SlimInferenceStatus
from slimscale.api.quantity import parse_quantity
from slimscale.api.serving_config import (
    Batching,
    DecisionLog,
    Milliseconds,
    ObjectiveWeights,
    PolicyName,
    RoutingMode,
    WidthModel,
)
from slimscale.api.simworkload import ObjectMeta

__all__ = ["MAX_POOLS", "MAX_WIDTHS", "Pool", "Resources", "ScalingOwner", "SlimInference"]
__all__ += ["LearnedRouting", "ModelSource", "SlimInferenceSpec", "Toleration"]

MAX_POOLS = 8
MAX_WIDTHS = 16
MAX_REPLICAS = 1000

Label = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
PoolName = Annotated[
    str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
QualifiedName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^([a-z0-9.-]{1,189}/)?[A-Za-z0-9._-]{1,63}$"),
]
LabelText = Annotated[
    str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
]
ImageName = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
]
Dimension = Annotated[int, Field(ge=1, le=65536)]


class ScalingOwner(StrEnum):
    """Who says how many replicas a pool has: always just one."""

    SLIM_SCALE = "SlimScale"
    EXTERNAL = "External"


class VolumeClaim(KubeModel):
    """A claim in the SlimInference's own namespace; mounted read-only."""

    claim_name: Label = Field(description="Name of the PersistentVolumeClaim.")
    sub_path: str = Field(
        default="", max_length=256, pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*/?)*$",
        description="Folder in it that holds one folder a model.",
    )  # fmt: skip


class ModelSource(KubeModel):
    """Where the model files come from; neither: they are in the operator's model server image."""

    image: ImageName | None = Field(
        default=None, description="A model server image that holds the models at /models."
    )
    persistent_volume_claim: VolumeClaim | None = Field(
        default=None, description="A volume that holds the models."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.image is not None and self.persistent_volume_claim is not None:
            raise ValueError(
                "model.source has both image and persistentVolumeClaim; leave one of them out"
            )
        return self


class Model(KubeModel):
    """The model that clients ask for, and its widths."""

    name: Label = Field(description="Name under which clients ask: /v2/models/NAME/infer.")
    source: ModelSource = ModelSource()
    widths: list[WidthModel] = Field(
        min_length=1, max_length=MAX_WIDTHS, description="The widths that may answer."
    )
    input_shape: list[Dimension] = Field(
        min_length=1, max_length=8, description="Dimensions of one row of the input, without batch."
    )
    preload: list[Label] = Field(
        default_factory=list, max_length=MAX_WIDTHS,
        description="Models that are loaded before a pod is ready; none: the most accurate one.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _widths_make_sense(self) -> Self:
        names = [width.model for width in self.widths]
        if len(set(names)) < len(names) or len({w.ratio for w in self.widths}) < len(names):
            raise ValueError(
                "model.widths: two of them have the same ratio or model; give each its own"
            )
        for name in self.preload:
            if name not in names:
                raise ValueError(
                    f"model.preload has a name that is no model of model.widths; write one of those:"
                    f" {name}"
                )
        return self


class Toleration(KubeModel):
    """As in a pod."""

    key: str = Field(
        default="", max_length=253, pattern=r"^([a-z0-9.-]{1,189}/)?[A-Za-z0-9._-]{0,63}$",
        description="Empty with Exists: every taint.",
    )  # fmt: skip
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Whether the value counts."
    )
    value: LabelText = Field(default="", description="Value of the taint.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="", description="Effect of the taint; empty: every one."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, le=86_400, description="With NoExecute: how long the pod stays."
    )


class Resources(KubeModel):
    """What a container asks for and may use at most: cpu, memory, nvidia.com/gpu."""

    requests: dict[QualifiedName, Quantity] = Field(
        default_factory=dict, max_length=4, description="What is set aside for it."
    )
    limits: dict[QualifiedName, Quantity] = Field(
        default_factory=dict, max_length=4, description="What it gets at most; GPUs belong here."
    )

    @model_validator(mode="after")
    def _requests_within_limits(self) -> Self:
        for name, asked in self.requests.items():
            most = self.limits.get(name)
            if most is not None and parse_quantity(asked) > parse_quantity(most):
                raise ValueError("resources.requests are above resources.limits; lower the request")
        return self


class Pool(KubeModel):
    """Like pods on like nodes."""

    name: PoolName = Field(description="Name of the pool.")
    node_selector: dict[QualifiedName, LabelText] = Field(
        default_factory=dict, max_length=6, description="Labels that its nodes have."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, max_length=4, description="Taints that its pods tolerate."
    )
    resources: Resources = Field(
        default=Resources(), description="Of the model server in each pod."
    )
    min_replicas: int = Field(
        default=1, ge=0, le=MAX_REPLICAS, description="Fewest pods; 0 where the pool may be empty."
    )
    max_replicas: int = Field(default=10, ge=1, le=MAX_REPLICAS, description="Most pods.")
    cost_per_hour: float | None = Field(
        default=None, ge=0, le=1_000_000, description="Of one pod, in any currency."
    )
    power_watts: float | None = Field(
        default=None, ge=0, le=1_000_000, description="Of one pod at full load."
    )
    priority: int = Field(
        default=0, ge=-1000, le=1000, description="Pools with the higher number are filled first."
    )

    @model_validator(mode="after")
    def _min_not_above_max(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"minReplicas {self.min_replicas} is above maxReplicas {self.max_replicas};"
                " lower minReplicas"
            )
        return self


class Slo(KubeModel):
    """What a request may count on."""

    latency_milliseconds: Milliseconds = Field(
        default=250, description="Time to the answer that the percentile of requests keeps."
    )
    percentile: float = Field(
        default=95.0, ge=50, le=99.99, description="Share of requests, in percent."
    )
    min_accuracy: float = Field(
        default=0.0, ge=0, le=1, description="Widths below it are not used, unless a request asks."
    )
    classes: dict[Label, Milliseconds] = Field(
        default_factory=dict, max_length=8,
        description="Named latencies that a request may ask for by header.",
    )  # fmt: skip


class LearnedRouting(KubeModel):
    """Of the policy PPO, and of a canary."""

    policy_config_map: Name | None = Field(
        default=None,
        max_length=63,
        description="ConfigMap in this namespace with the keys policy.safetensors (binaryData) and"
        " policy.json; unset: the policy that ships. A change of it is taken up while running.",
    )
    canary_percent: float = Field(
        default=5.0, ge=0.1, le=50,
        description="Share of the requests in mode Canary, and of a policy that has to prove itself:"
        " a new file, or one that missed the SLO too often.",
    )  # fmt: skip
    objective: ObjectiveWeights = Field(
        default=ObjectiveWeights(), description="What the policy is to weigh against what."
    )


class Routing(KubeModel):
    """How the router picks pod, width and batch cap, and what it holds back."""

    policy: PolicyName = Field(
        default=PolicyName.COLD_AWARE_SED, description="What picks pod, width and batch cap."
    )
    mode: RoutingMode = Field(
        default=RoutingMode.ACTIVE,
        description="Shadow: another policy acts, this one only logs what it would have done."
        " Canary: it gets learned.canaryPercent of the requests. The other one is SED, or"
        " ColdAwareSED beside PPO.",
    )
    learned: LearnedRouting = LearnedRouting()
    decision_log: DecisionLog = Field(
        default=DecisionLog(), description="What PPO saw and did, kept in the routers for training."
    )
    timeout_milliseconds: Milliseconds = Field(
        default=30_000, description="Of a request that names no deadline."
    )
    buffer_requests: int = Field(
        default=1000, ge=0, le=100_000, description="Most requests held while a pool starts."
    )
    buffer_bytes: int = Field(
        default=64 * 2**20, ge=0, le=2**36, description="Most bytes held while a pool starts."
    )
    max_body_bytes: int = Field(
        default=16 * 2**20, ge=2**10, le=2**31 - 1, description="Largest body of a request."
    )

    @model_validator(mode="after")
    def _log_is_of_a_learned_policy(self) -> Self:
        if self.decision_log.sample_percent > 0 and self.policy is not PolicyName.PPO:
            raise ValueError(
                "routing.decisionLog.samplePercent keeps what PPO saw and did; set it to 0, or"
                " routing.policy to PPO"
            )
        return self


class Scaling(KubeModel):
    """How many pods a pool has, and how quickly that changes."""

    owner: ScalingOwner = Field(
        default=ScalingOwner.SLIM_SCALE,
        description="SlimScale: the operator. External: an HPA, KEDA or you; the operator only says"
        " what it would do.",
    )
    headroom_percent: int = Field(
        default=20, ge=0, le=400, description="Capacity kept beyond the demand."
    )
    tolerance_percent: int = Field(
        default=10, ge=0, le=50, description="Deviation below which nothing is changed."
    )
    stable_window_seconds: int = Field(
        default=60, ge=5, le=3600, description="Window whose load decides in quiet times."
    )
    panic_window_seconds: int = Field(
        default=6, ge=1, le=600, description="Short window that notices a burst."
    )
    panic_threshold_percent: int = Field(
        default=110, ge=100, le=1000,
        description="Load of the short window over ready capacity from which it counts at once.",
    )  # fmt: skip
    up_cooldown_seconds: int = Field(
        default=0, ge=0, le=3600, description="Least time between two steps up."
    )
    down_cooldown_seconds: int = Field(
        default=30, ge=0, le=86_400, description="Least time between two steps down."
    )
    down_stabilisation_seconds: int = Field(
        default=600, ge=0, le=86_400,
        description="Replicas fall to the highest need of this window, not to the last one.",
    )  # fmt: skip
    burst_memory_seconds: int = Field(
        default=1200, ge=0, le=3600,
        description="Bursts that have come twice within this time keep the pods that they need;"
        " 0: never.",
    )  # fmt: skip
    up_pods: int = Field(
        default=8, ge=1, le=MAX_REPLICAS, description="Most pods of a pool added at once, or:"
    )
    up_percent: int = Field(
        default=100, ge=0, le=1000, description="share of the present ones, whichever is more."
    )
    down_pods: int = Field(
        default=1, ge=1, le=MAX_REPLICAS, description="Most pods of a pool removed at once, or:"
    )
    down_percent: int = Field(
        default=50, ge=0, le=100, description="share of the present ones, whichever is more."
    )
    pending_timeout_seconds: int = Field(
        default=120, ge=5, le=3600,
        description="A pod not ready by then is no capacity on the way: other pools are tried.",
    )  # fmt: skip
    scale_to_zero_after_seconds: int | None = Field(
        default=None, ge=5, le=86_400,
        description="Pools with minReplicas 0 become empty after this time without a request;"
        " unset: never.",
    )  # fmt: skip
    max_age_seconds: int = Field(
        default=15, ge=2, le=3600, description="Older measurements are missing ones: hold."
    )

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if self.panic_window_seconds > self.stable_window_seconds:
            raise ValueError(
                f"scaling.panicWindowSeconds {self.panic_window_seconds} is above"
                f" scaling.stableWindowSeconds {self.stable_window_seconds}; lower it"
            )
        idle = self.scale_to_zero_after_seconds
        if idle is not None and idle < self.stable_window_seconds:
            raise ValueError(
                f"scaling.scaleToZeroAfterSeconds {idle} is below scaling.stableWindowSeconds"
                f" {self.stable_window_seconds}; raise it"
            )
        return self


class Router(KubeModel):
    """The front door."""

    replicas: int = Field(default=2, ge=1, le=50, description="Pods of the router.")
    resources: Resources = Field(
        default=Resources(), description="Of each; what is left out has a default."
    )


class PullSecret(KubeModel):
    name: Label = Field(description="Name of a Secret in the SlimInference's namespace.")


class SlimInferenceSpec(KubeModel):
    model: Model
    pools: list[Pool] = Field(
        min_length=1, max_length=MAX_POOLS, description="Where the model runs."
    )
    slo: Slo = Slo()
    routing: Routing = Routing()
    batching: Batching = Batching()
    scaling: Scaling = Scaling()
    router: Router = Router()
    image_pull_secrets: list[PullSecret] = Field(
        default_factory=list, max_length=4, description="For the images of all pods."
    )

    @model_validator(mode="after")
    def _pools_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise ValueError("pools: two of them have the same name; give each its own")
        return self

    @model_validator(mode="after")
    def _accuracy_can_be_had(self) -> Self:
        best = max(width.accuracy for width in self.model.widths)
        if self.slo.min_accuracy > best:
            raise ValueError(
                "slo.minAccuracy is above the accuracy of every width; lower it to"
                f" {best:g} or less"
            )
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if self.slo.latency_milliseconds > self.routing.timeout_milliseconds:
            raise ValueError(
                f"slo.latencyMilliseconds {self.slo.latency_milliseconds} is above"
                f" routing.timeoutMilliseconds {self.routing.timeout_milliseconds}; raise the timeout"
            )
        if self.batching.hold_milliseconds >= self.slo.latency_milliseconds:
            raise ValueError(
                f"batching.holdMilliseconds {self.batching.hold_milliseconds} leaves nothing of"
                f" slo.latencyMilliseconds {self.slo.latency_milliseconds}; lower it"
            )
        if self.batching.busy_cost and not self.batching.hold_milliseconds:
            raise ValueError(
                "batching.busyCost is above 0 and batching.holdMilliseconds is 0, so nothing ever"
                " waits; set holdMilliseconds"
            )
        return self

    @model_validator(mode="after")
    def _limits_can_be_reached(self) -> Self:
        if self.batching.max_rows > self.batching.queue_rows:
            raise ValueError(
                f"batching.maxRows {self.batching.max_rows} is above batching.queueRows"
                f" {self.batching.queue_rows}, so no batch is ever full; lower it"
            )
        if self.routing.max_body_bytes > self.batching.queue_bytes:
            raise ValueError(
                f"routing.maxBodyBytes {self.routing.max_body_bytes} is above batching.queueBytes"
                f" {self.batching.queue_bytes}, so no queue could hold it; lower it"
            )
        return self


class SlimInference(KubeModel):
    api_version: Literal["slimscale.dev/v1alpha1"] = "slimscale.dev/v1alpha1"
    kind: Literal["SlimInference"] = "SlimInference"
    metadata: ObjectMeta
    spec: SlimInferenceSpec
    status: SlimInferenceStatus = SlimInferenceStatus()
