"""A request on its way through the router, and what it carries to a pod and back."""

from dataclasses import dataclass, field
from typing import NamedTuple

from slimscale.routing.policy import Route, RoutingPolicy
from slimscale.routing.rollout import Arm
from slimscale.serving.headers import (
    BATCH_CAP,
    BATCH_ROWS,
    COMPUTE_MILLISECONDS,
    DEADLINE_MILLISECONDS,
    HOLD_MILLISECONDS,
    INFERENCE_HEADER_LENGTH,
    MODEL,
    POD,
    QUEUE_MILLISECONDS,
    REQUEST_ID,
    RETRY_AFTER,
    SLO,
)
from slimscale.serving.http import ClientResponse, Request, Response
from slimscale.serving.router.asked import Asked
from slimscale.serving.router.decision_log import Kept
from slimscale.serving.router.live import Live
from slimscale.serving.router.pods import Pod, Sent

__all__ = ["Decided", "Leg", "Trip", "answer_of", "request_headers"]

_PASSED_ON = (b"content-type", INFERENCE_HEADER_LENGTH, b"content-encoding", b"accept")
_ANSWERED_WITH = (
    b"content-type", INFERENCE_HEADER_LENGTH, RETRY_AFTER, MODEL, POD,
    QUEUE_MILLISECONDS, COMPUTE_MILLISECONDS, BATCH_ROWS,
)  # fmt: skip


class Decided(NamedTuple):
    """One decision, for the state."""

    at: float
    policy: str
    route: Route
    pool: str
    rows: int


@dataclass(slots=True, eq=False)
class Trip:
    """Times are the loop's."""

    request: Request
    asked: Asked
    live: Live
    """The configuration it began with."""
    request_id: bytes
    deadline_at: float
    policy: RoutingPolicy
    """That decided last."""
    arm: Arm | None = None
    """Whose request it is, where a candidate is tried."""
    kept: Kept | None = None
    """The decision, where it is to be logged."""
    tried: set[str] = field(default_factory=set)
    sends: int = 0
    held: bool = False
    away_seconds: float = 0.0
    """At pods, or waiting for one."""
    refusal: ClientResponse | None = None
    """The last early refusal of a pod: passed on where no other pod takes the request."""
    ended: bool = False
    """Its end is counted."""


@dataclass(slots=True, eq=False)
class Leg:
    """One way to a pod and back."""

    trip: Trip
    route: Route
    pod: Pod
    sent: Sent
    left_seconds: float
    """Until the deadline, when it began."""
    probe: bool


def request_headers(leg: Leg) -> list[tuple[bytes, bytes]]:
    """Of the request to the pod: the client's that matter, and ours."""
    trip = leg.trip
    asked, given = trip.asked, trip.request.headers
    headers = [(name, given[name]) for name in _PASSED_ON if name in given]
    slo_left = asked.slo_seconds - (asked.deadline_seconds - leg.left_seconds)
    headers += (
        (BATCH_CAP, b"%d" % leg.route.batch_cap),
        (DEADLINE_MILLISECONDS, b"%d" % max(1, int(leg.left_seconds * 1000.0))),
        (SLO, b"%d" % max(1, int(slo_left * 1000.0))),
        (REQUEST_ID, trip.request_id),
    )
    if leg.route.hold_seconds > 0.0:
        headers.append((HOLD_MILLISECONDS, b"%d" % max(1, int(leg.route.hold_seconds * 1000.0))))
    return headers


def answer_of(trip: Trip, reply: ClientResponse) -> Response:
    """A pod's answer as the client gets it: without what is between pod and router."""
    given = reply.headers
    headers = [(name, given[name]) for name in _ANSWERED_WITH if name in given]
    headers.append((REQUEST_ID, trip.request_id))
    return Response(reply.status, reply.body, headers)
