"""The configuration files of the data plane: written by the operator, read by router and pods.

One JSON file a role in a ConfigMap that the pods mount; a change of the file is taken up while running.
Everything here is bounded, unknown fields are refused, and a bad file keeps the last good one.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from slimscale.api.common import KubeModel

__all__ = ["Batching", "DecisionLog", "ModelServerConfig", "ObjectiveWeights", "PolicyName"]
__all__ += ["PoolTraits", "RouterConfig", "RoutingMode", "SidecarConfig", "WidthModel"]

CONFIG_MOUNT = "/etc/slimscale"
ROUTER_CONFIG_FILE = f"{CONFIG_MOUNT}/router.json"
SIDECAR_CONFIG_FILE = f"{CONFIG_MOUNT}/sidecar.json"
MODELSERVER_CONFIG_FILE = f"{CONFIG_MOUNT}/modelserver.json"
POLICY_WEIGHTS_KEY = "policy.safetensors"
"""Key in a ConfigMap's binaryData, and name of the file."""
POLICY_CARD_KEY = "policy.json"
"""Key in its data, and name of the file."""
POLICY_FOLDER = f"{CONFIG_MOUNT}/policy"
POLICY_MOST_BYTES = 1_000_000
"""Weights and card together: a ConfigMap takes no more than a mebibyte, as base64."""

ROUTER_PORT = 8080
ROUTER_STATUS_PORT = 8081
"""Metrics and probes of the router."""
SIDECAR_PORT = 8080
SIDECAR_STATUS_PORT = 8081
MODELSERVER_PORT = 9000
"""On 127.0.0.1 alone."""

Ratio = Annotated[float, Field(gt=0, le=1)]
Milliseconds = Annotated[int, Field(ge=1, le=600_000)]


class PolicyName(StrEnum):
    RANDOM = "Random"
    ROUND_ROBIN = "RoundRobin"
    SED = "SED"
    COLD_AWARE_SED = "ColdAwareSED"
    MIXTURE = "Mixture"
    PPO = "PPO"


class RoutingMode(StrEnum):
    """Shadow: `policy` only writes down what it would have done; Canary: it gets a small share.

    What acts on the other requests is SED, and for PPO ColdAwareSED.
    """

    ACTIVE = "Active"
    CANARY = "Canary"
    SHADOW = "Shadow"


class ObjectiveWeights(KubeModel):
    """What a request is worth to a learned policy: higher weighs more."""

    accuracy: float = Field(
        default=12.0, ge=0, le=1000, description="Of a whole unit of accuracy, 0 to 1."
    )
    latency: float = Field(
        default=1.0, ge=0, le=1000, description="Of a latency as long as the SLO, which costs this."
    )
    energy: float = Field(default=0.3, ge=0, le=1000, description="Cost of a joule above idle.")
    miss: float = Field(default=1.0, ge=0, le=1000, description="Cost of a missed SLO.")


class DecisionLog(KubeModel):
    """What a learned policy saw and did, kept in each router for `slimscale train router`."""

    sample_percent: float = Field(
        default=0.0, ge=0, le=100,
        description="Share of the decisions that is kept; 0: none. No text of a request is.",
    )  # fmt: skip
    max_bytes: int = Field(
        default=16 * 2**20, ge=2**16, le=2**28,
        description="Most memory of a router for it; the oldest decisions go first.",
    )  # fmt: skip


class WidthModel(KubeModel):
    """One width and the name under which the model server knows it."""

    ratio: Ratio
    model: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    accuracy: float = Field(ge=0, le=1)
    flops_ratio: Ratio = 1.0


class PoolTraits(KubeModel):
    """What the router needs to know of a pool beyond its pods' telemetry."""

    name: str = Field(min_length=1, max_length=63)
    cost_per_hour: float | None = Field(default=None, ge=0)
    power_watts: float | None = Field(default=None, ge=0)


class Batching(KubeModel):
    """Limits of a pod's queues and batches."""

    max_rows: int = Field(default=32, ge=1, le=1024, description="Most rows of one batch.")
    hold_milliseconds: int = Field(
        default=0, ge=0, le=10_000,
        description="Longest time an idle instance may wait for a fuller batch, within the"
        " deadlines of what is queued; 0 never waits.",
    )  # fmt: skip
    busy_cost: float = Field(
        default=0, ge=0, le=1000,
        description="What a busy second of the pod costs, in seconds of one waiting request. Above 0"
        " an idle instance waits, for holdMilliseconds at most, for as many rows as the batching table"
        " says; 0 waits for a full batch.",
    )  # fmt: skip
    queue_rows: int = Field(
        default=512, ge=1, le=1_000_000, description="Most rows queued in a pod."
    )
    queue_bytes: int = Field(
        default=64 * 2**20, ge=2**10, le=2**36, description="Most bytes queued."
    )
    max_instances: int = Field(default=1, ge=1, le=16, description="Most instances of one width.")
    running_batches: int = Field(
        default=1, ge=1, le=16,
        description="Most batches that run at once in a pod, over all widths; never less than"
        " maxInstances. On a CPU two at once are slower than one after the other.",
    )  # fmt: skip
    unload_after_seconds: int = Field(
        default=300, ge=1, le=86_400, description="An idle instance may go after this time."
    )
    memory_reserve_bytes: int = Field(
        default=256 * 2**20, ge=0, le=2**40, description="Memory that no new instance may take."
    )
    max_utilisation: float = Field(
        default=0.9, gt=0, le=1, description="No new instance above this utilisation."
    )


class _Service(KubeModel):
    service: str = Field(min_length=1, max_length=63, description="Model name that clients use.")
    widths: list[WidthModel] = Field(min_length=1, max_length=16)
    max_body_bytes: int = Field(default=16 * 2**20, ge=2**10, le=2**31 - 1)

    @model_validator(mode="after")
    def _widths_differ(self) -> Self:
        names = [width.model for width in self.widths]
        if len(set(names)) < len(names) or len({w.ratio for w in self.widths}) < len(names):
            raise ValueError(
                f"widths {names}: two of them are the same; give each its own ratio and model"
            )
        return self


class RouterConfig(_Service):
    """`router.json`."""

    namespace: str = Field(min_length=1, max_length=63)
    endpoints_service: str = Field(
        min_length=1,
        max_length=63,
        description="Headless Service whose EndpointSlices list the pods.",
    )
    pools: list[PoolTraits] = Field(default_factory=list, max_length=16)
    policy: PolicyName = PolicyName.COLD_AWARE_SED
    mode: RoutingMode = RoutingMode.ACTIVE
    slo_milliseconds: Milliseconds = 250
    slo_classes: dict[str, Milliseconds] = Field(
        default_factory=dict, max_length=16, description="Named classes that a header may ask for."
    )
    timeout_milliseconds: Milliseconds = Field(
        default=30_000, description="Of a request that names no deadline."
    )
    slo_percentile: float = Field(default=95.0, ge=50, le=99.99)
    policy_from_config_map: bool = False
    """The learned policy is in `policy/` beside this file; else the one that ships is used."""
    canary_percent: float = Field(default=5.0, ge=0.1, le=50)
    objective: ObjectiveWeights = ObjectiveWeights()
    decision_log: DecisionLog = DecisionLog()
    min_accuracy: float = Field(default=0.0, ge=0, le=1)
    max_batch_rows: int = Field(default=32, ge=1, le=1024)
    buffer_requests: int = Field(default=1000, ge=0, le=100_000)
    buffer_bytes: int = Field(default=256 * 2**20, ge=0, le=2**36)
    telemetry_poll_seconds: float = Field(default=1.0, ge=0.05, le=60)
    eject_after_failures: int = Field(default=3, ge=1, le=100)
    eject_seconds: float = Field(default=5.0, ge=0.1, le=600)


class SidecarConfig(_Service):
    """`sidecar.json`."""

    batching: Batching = Field(default_factory=Batching)
    timeout_milliseconds: Milliseconds = 30_000
    drain_seconds: int = Field(default=30, ge=1, le=3600)


class ModelServerConfig(_Service):
    """`modelserver.json`. `preload`: models loaded before the pod is ready; the others on demand."""

    directory: str = Field(default="/models", min_length=1, max_length=256)
    preload: list[str] = Field(default_factory=list, max_length=16)
    warm_rows: list[int] = Field(default_factory=lambda: [1, 2, 4, 8, 16, 32], max_length=16)
    threads: int | None = Field(default=None, ge=1, le=1024)
    """None: follows the thread count of SimWorkload's contract, else floor of the CPU quota."""
