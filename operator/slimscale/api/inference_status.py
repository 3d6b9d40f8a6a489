"""The status of a SlimInference: what is there, what was decided, and why."""

from datetime import datetime

from pydantic import Field

from slimscale.api.common import Condition, KubeModel

__all__ = ["DECISIONS_KEPT", "PoolStatus", "ScalingDecision", "SlimInferenceStatus", "SloStatus"]
__all__ += ["RoutingStatus", "WidthShare"]

DECISIONS_KEPT = 5
_MAX_POOLS = 8
_MAX_WIDTHS = 16


class WarmWidth(KubeModel):
    """How many pods have a width loaded."""

    model: str = Field(max_length=63)
    pods: int = Field(ge=0)


class PoolStatus(KubeModel):
    """One pool. What is unknown is absent and never 0."""

    name: str = Field(max_length=40)
    replicas: int | None = Field(default=None, description="Pods that are there.")
    desired_replicas: int | None = Field(
        default=None, description="Pods that the operator finds right."
    )
    ready_replicas: int | None = Field(default=None, description="Pods that take requests.")
    draining_replicas: int | None = Field(
        default=None, description="Pods that finish what they have and go."
    )
    warm_widths: list[WarmWidth] = Field(default_factory=list, max_length=_MAX_WIDTHS)
    memory_free_bytes: int | None = Field(
        default=None, description="Of the device, least of the pods."
    )
    memory_total_bytes: int | None = Field(default=None, description="Of the device, of one pod.")
    utilisation: float | None = Field(default=None, description="0 to 1, mean of the pods.")
    power_watts: float | None = Field(default=None, description="All pods together.")
    reason: str = Field(default="", max_length=64, description="Why pods are missing, in a word.")
    message: str = Field(default="", max_length=512)


class WidthShare(KubeModel):
    """How often a width was chosen, in the last window."""

    model: str = Field(max_length=63)
    ratio: float
    share: float = Field(description="0 to 1.")


class SloStatus(KubeModel):
    """In the last window."""

    attainment: float | None = Field(
        default=None, description="Share of requests answered in time, 0 to 1."
    )
    latency_milliseconds: float | None = Field(
        default=None, description="At the percentile of the objective."
    )
    requests_per_second: float | None = None
    rejected_per_second: float | None = None


class RoutingStatus(KubeModel):
    """Which policy routes, as the routers tell; where they differ, the one that is furthest behind."""

    policy: str = Field(max_length=32, description="What is asked for.")
    acting: str = Field(
        default="", max_length=32, description="What acts on the requests that are no canary's."
    )
    stage: str = Field(
        default="", max_length=16, description="Of a learned policy: Shadow, Canary or Active."
    )
    version: str = Field(default="", max_length=64, description="Of the policy file in use.")
    overruled_share: float | None = Field(
        default=None, description="Share of its choices that the shield did not let stand."
    )


class ScalingDecision(KubeModel):
    """A change of replicas, and why."""

    time: datetime
    decision_id: str = Field(max_length=32)
    pool: str = Field(max_length=40)
    from_replicas: int
    to_replicas: int
    reason: str = Field(default="", max_length=512)


class SlimInferenceStatus(KubeModel):
    observed_generation: int | None = Field(
        default=None, description="Generation of the spec that this status is about."
    )
    service: str | None = Field(
        default=None, max_length=63, description="The Service that clients call."
    )
    url: str | None = Field(
        default=None, max_length=256, description="Where it answers inside the cluster."
    )
    replicas: int | None = Field(default=None, description="Pods of all pools.")
    ready_replicas: int | None = Field(default=None, description="Those that take requests.")
    ready_routers: int | None = Field(default=None, description="Pods of the router that answer.")
    config_digest: str | None = Field(
        default=None, max_length=16, description="Of the configuration that pods are to use."
    )
    pools: list[PoolStatus] = Field(
        default_factory=list, max_length=_MAX_POOLS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )  # fmt: skip
    widths: list[WidthShare] = Field(default_factory=list, max_length=_MAX_WIDTHS)
    slo: SloStatus | None = None
    routing: RoutingStatus | None = None
    decisions: list[ScalingDecision] = Field(
        default_factory=list, max_length=DECISIONS_KEPT, description="The last ones, newest last."
    )
    conditions: list[Condition] = Field(
        default_factory=list, max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )  # fmt: skip
