"""The protocol of routing policies: a request and the pods as they look now give one route."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from slimscale.domain.serving import PodTelemetry

__all__ = ["Outcome", "PodView", "RequestView", "Route", "RoutingPolicy", "Width"]


@dataclass(frozen=True, slots=True)
class Width:
    """One deployed width of the slimmable model. `flops_ratio` is relative to the widest."""

    ratio: float
    model: str
    accuracy: float
    """Share of the test set answered right, 0 to 1."""
    flops_ratio: float


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as the router sees it at one instant.

    `telemetry` is None until the pod has answered once. `in_flight_rows` are the rows this router has
    sent by width's model and that no telemetry counts yet: stale telemetry is made up for by them.
    """

    name: str
    pool: str
    telemetry: PodTelemetry | None
    telemetry_age_seconds: float
    in_flight_rows: Mapping[str, int]
    link_seconds: float = 0.0
    cost_per_hour: float | None = None
    power_watts: float | None = None
    """Of a busy pod of this pool, from the custom resource; telemetry's own figure goes before."""
    probing: bool = False
    """An ejected pod that may get one request to show that it is well again."""
    ejected: bool = False
    """An outlier that gets nothing; `probing` goes before."""
    refusing: bool = False
    """It has just refused work because its queue is full."""
    overdue_seconds: float = 0.0
    """How far the oldest unanswered request is past the time at which its answer was expected."""


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a request asks for. `deadline_seconds` is what is left of its time."""

    rows: int
    deadline_seconds: float
    slo_seconds: float
    min_accuracy: float = 0.0
    tried_pods: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Route:
    pod: str
    width: Width
    batch_cap: int
    expected_seconds: float
    """Until the answer, as the policy sees it: what shadow mode and ejection compare with."""
    reason: str
    """One of a few fixed words (`Reason`): it becomes a label of a metric."""
    support: tuple[float, ...] = ()
    """Of a mixture: the probability that each of its base policies gave to this very route."""
    hold_seconds: float = 0.0
    """How long the pod may wait for a fuller batch because of this request; 0: it need not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a routed request ended. `succeeded` False: refused, failed or late."""

    request: RequestView
    route: Route
    latency_seconds: float
    succeeded: bool
    energy_joules: float | None = None


class RoutingPolicy(Protocol):
    """Never blocks, never raises on odd telemetry. None: no pod can take the request now."""

    @property
    def name(self) -> str: ...

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None: ...

    def learn(self, outcome: Outcome) -> None: ...
