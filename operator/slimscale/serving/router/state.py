"""What a router tells the operator: `GET /state` on its status port, read only.

`?stable=60&panic=6` choose the windows in seconds (1 to 3600), `percentile=95` which latency is told
(50 to 99.99); these are the defaults. The operator
reads it with `RouterState.model_validate_json`, sums over the routers, and fills
`domain.scaling.DemandObservation` from `demand` and the pods' telemetry from `pods`.

All rates are per second over the window, or over the router's age where that is shorter. null is
unknown, never 0. Unknown fields are skipped: operator and router need not be of one version.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from slimscale.domain.serving import PodTelemetry

__all__ = ["DecisionState", "DemandState", "PodState", "PolicyState", "PoolState", "RouterState"]

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class _State(BaseModel):
    """camelCase on the wire; what this version does not know is skipped."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
    )


class DemandState(_State):
    """Arrivals at this router, whatever became of them. A request has one row or more."""

    stable_window_seconds: Seconds
    panic_window_seconds: Seconds
    observed_seconds: Seconds
    """Age of the router, at most the stable window: how much of it the figures rest on."""
    stable_requests_per_second: Seconds
    stable_rows_per_second: Seconds
    panic_rows_per_second: Seconds
    rows_per_request: float = Field(default=1.0, ge=1)
    rejected_rows_per_second: Seconds
    """Answered 429 or 503 over the stable window: demand that was not served."""
    idle_seconds: Seconds | None
    """Since the last arrival; null where none has ever come."""
    age_seconds: Seconds
    """Of the router: it can't have been idle for longer than this."""
    buffered_requests: Count = 0
    buffered_rows: Count = 0
    """Held because no pod could take them: with no pod at all, the reason to start one."""
    buffered_bytes: Count = 0
    slo_attainment: Share | None = None
    """Share of the stable window's requests that were answered within their SLO; a request that was
    refused or failed was not. null where none ended."""
    latency_percentile: float = Field(default=95.0, ge=50, le=99.99)
    latency_seconds: Seconds | None = None
    """That percentile over the stable window's answers, rounded up by 9 % at most. null: none came."""


class PodState(_State):
    """One pod as this router sees it."""

    name: str
    pool: str = ""
    """Empty until its sidecar has said it."""
    ready: bool
    """In the EndpointSlice and not on its way out."""
    ejected: bool = False
    requests: Count = 0
    """Sent to it so far by this router."""
    in_flight_requests: Count = 0
    in_flight_rows: Count = 0
    telemetry_age_seconds: Seconds | None = None
    telemetry: PodTelemetry | None = None
    """The last that it said; null: nothing yet."""


class PoolState(_State):
    """Pods of one pool, added up."""

    name: str
    pods: Count = 0
    ready: Count = 0
    draining: Count = 0
    ejected: Count = 0
    queued_rows: Count | None = None
    """null where no pod of the pool has said."""
    backlog_seconds: Seconds | None = None
    """Mean over the pods that have said."""
    warm_widths: tuple[str, ...] = ()
    """Models with a loaded instance in at least one pod."""
    memory_free_bytes: Count | None = None
    """Least over the pods."""


class DecisionState(_State):
    """One of the last decisions, newest first."""

    age_seconds: Seconds
    policy: str
    pod: str
    pool: str
    model: str
    batch_cap: Count
    rows: Count
    expected_seconds: Seconds
    reason: str


class PolicyState(_State):
    """Which policy routes, and how far a candidate has come."""

    asked: str
    acting: str
    """On all requests that are no canary's."""
    stage: str = ""
    """Shadow, Canary or Active; empty: there is no candidate."""
    reason: str = ""
    """One of `routing.rollout.StageReason`."""
    words: str = ""
    since_seconds: Seconds | None = None
    falls: Count = 0
    """Times that it lost its share since it last was well for long."""
    version: str = ""
    """Of the policy file in use."""
    error: str | None = None
    """Why the policy that was asked for is not in use, and what is."""
    overruled_share: Share | None = None
    """Of the choices of a learned policy: those that the shield did not let stand."""


class RouterState(_State):
    router: str
    service: str
    policy: str
    mode: str
    candidate: PolicyState | None = None
    config_error: str | None = None
    """Why the present configuration file is not in use; the last good one is."""
    pods_known: bool
    """False until the pods were listed once: then an empty list means nothing."""
    demand: DemandState
    pods: tuple[PodState, ...] = ()
    pools: tuple[PoolState, ...] = ()
    width_mix: dict[str, Share] = Field(default_factory=dict)
    """Share of each width's model among the stable window's answers."""
    decisions: tuple[DecisionState, ...] = ()
