"""One request's way: routed, held or refused; sent to a pod; answered, or tried once more elsewhere.

A second try never doubles an answer: it follows only where no answer can come any more (no connection,
a connection that broke) or where the pod has said that it has none (404, 429, 502, 503). A 429 or 503
with Retry-After is an early refusal, which is passed on where no other pod takes the request; a 503
without it comes from a pod that is going away, and the request may wait for another.
A pod that is merely slow is waited for until the deadline. Inference changes nothing, so that work
begun on a pod that died does no harm.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from slimscale.routing.admission import Admission, Refusal, Verdict, admit
from slimscale.routing.feasibility import may_take
from slimscale.routing.heuristics import Reason
from slimscale.routing.policy import Outcome, RequestView, Route
from slimscale.serving.headers import (
    BATCH_CAP,
    BATCH_ROWS,
    COMPUTE_MILLISECONDS,
    DEADLINE_MILLISECONDS,
    INFERENCE_HEADER_LENGTH,
    MODEL,
    POD,
    POOL,
    QUEUE_MILLISECONDS,
    REQUEST_ID,
    RETRY_AFTER,
    SLO,
    TELEMETRY,
)
from slimscale.serving.http import ClientPool, ClientResponse, ExchangeFailed, Request, Response
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.router.asked import Asked, read_asked
from slimscale.serving.router.buffer import RequestBuffer
from slimscale.serving.router.live import Live
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.pods import Pod, Pods, Sent
from slimscale.serving.router.retries import RetryBudget
from slimscale.serving.router.shadow import compare
from slimscale.serving.router.windows import Demand

__all__ = ["Decided", "Forwarder"]

_PROBE = Reason.PROBE
_NONE: frozenset[str] = frozenset()
_GRACE_SECONDS = 0.1
"""A pod may say itself that it is too late; only then the router does."""
_MOST_SENDS = 3
_RELEASE_SECONDS = 0.05
_LONGEST_RETRY_AFTER_SECONDS = 60.0
_NOT_DONE = frozenset((404, 429, 502, 503))
"""Answers by which a pod says that it did not do the work."""
_BEFORE_WORK = frozenset(("status_429", "status_503", "not_connected"))
_PASSED_ON = (b"content-type", INFERENCE_HEADER_LENGTH, b"content-encoding", b"accept")
_ANSWERED_WITH = (
    b"content-type", INFERENCE_HEADER_LENGTH, RETRY_AFTER, MODEL, POD, POOL,
    QUEUE_MILLISECONDS, COMPUTE_MILLISECONDS, BATCH_ROWS,
)  # fmt: skip


class Decided(NamedTuple):
    """One decision, for the state."""

    at: float
    policy: str
    route: Route
    pool: str
    rows: int


@dataclass(slots=True)
class _Trip:
    """A request on its way through the router."""

    request: Request
    asked: Asked
    live: Live
    request_id: bytes
    deadline_at: float
    tried: set[str] = field(default_factory=set)
    sends: int = 0
    held: bool = False
    away_seconds: float = 0.0
    """At pods, or waiting for one."""
    refusal: ClientResponse | None = None
    """The last early refusal of a pod: passed on where no other pod takes the request."""
    ended: bool = False


class Forwarder:
    """`live` may be replaced at any time."""

    def __init__(
        self,
        live: Live,
        *,
        pods: Pods,
        buffer: RequestBuffer,
        demand: Demand,
        metrics: RouterMetrics,
        client: ClientPool,
        rng: Random,
    ) -> None:
        self.live = live
        self.decisions: deque[Decided] = deque(maxlen=32)
        self.body_bytes = 0
        """Of all requests that are in the router."""
        self._pods = pods
        self._buffer = buffer
        self._demand = demand
        self._metrics = metrics
        self._client = client
        self._rng = rng
        self._retries = RetryBudget()
        self._loop = asyncio.get_running_loop()
        self._releasing: asyncio.Task[None] | None = None
        self._id_prefix = b"%08x-" % rng.getrandbits(32)
        self._last_id = 0

    async def infer(self, request: Request) -> Response:
        live = self.live
        try:
            asked = read_asked(request.headers, request.body, live.config)
        except InvalidRequest as error:
            self._metrics.answered(error.status)
            return error_response(error.status, str(error))
        arrived = request.received_at
        self._demand.arrived(asked.rows, now=arrived)
        self._retries.earn()
        self._metrics.arrived_requests += 1
        self._metrics.arrived_rows += asked.rows
        trip = _Trip(
            request,
            asked,
            live,
            asked.request_id or self._new_id(),
            deadline_at=arrived + asked.deadline_seconds,
        )
        size = len(request.body)
        self.body_bytes += size
        try:
            response = await self._serve(trip)
        except asyncio.CancelledError:
            self._metrics.answered(499)
            self._end(trip, met=None)
            raise
        finally:
            self.body_bytes -= size
        self._metrics.answered(response.status)
        self._metrics.overhead.observe(max(0.0, self._loop.time() - arrived - trip.away_seconds))
        return response

    async def _serve(self, trip: _Trip) -> Response:
        limit = max(trip.live.config.buffer_bytes, 4 * trip.live.config.max_body_bytes)
        if self.body_bytes > limit:
            return self._refuse(trip, Refusal.BUFFER_BYTES, 1.0)
        while True:
            step = self._route(trip)
            if step is None:
                if trip.refusal is not None and not (trip.held and trip.refusal.status == 429):
                    return self._refused_by_pod(trip, trip.refusal)
                refused = await self._hold(trip)
                if refused is not None:
                    return refused
                continue
            if isinstance(step, Response):
                return step
            answer = await self._send(trip, step)
            if answer is not None:
                return answer

    # ---- before a pod

    def _route(self, trip: _Trip) -> Route | Response | None:
        """Where to, a refusal, or None: wait."""
        now = self._loop.time()
        left = trip.deadline_at - now
        if left <= 0.0:
            return self._refuse(trip, Refusal.DEADLINE, None)
        asked, live = trip.asked, trip.live
        slo_left = asked.slo_seconds - (now - trip.request.received_at)
        tried = frozenset(trip.tried) if trip.tried else _NONE
        wanted = RequestView(asked.rows, left, max(0.001, slo_left), asked.min_accuracy, tried)
        views = self._pods.views(now=now)
        route = live.policy.choose(wanted, views, live.widths, self._rng)
        if route is None or route.expected_seconds > left:
            admission = admit(wanted, views, live.widths, live.delays)
            if admission.refusal is not None:
                return self._refuse_or_hold(trip, admission)
            if admission.verdict is Verdict.HOLD:
                return None
        if route is not None and live.shadow is not None:
            compare(route, wanted, views, live=live, metrics=self._metrics, rng=self._rng)
        return route

    def _refuse_or_hold(self, trip: _Trip, admission: Admission) -> Response | None:
        """A request that has waited already goes on waiting for room in a queue."""
        refusal = admission.refusal
        if refusal is None or (trip.held and refusal is Refusal.QUEUES_FULL):
            return None
        if trip.refusal is not None:
            return self._refused_by_pod(trip, trip.refusal)
        wait = min(_LONGEST_RETRY_AFTER_SECONDS, admission.retry_after_seconds)
        return self._refuse(trip, refusal, wait)

    async def _hold(self, trip: _Trip) -> Response | None:
        """None: let go, to be routed anew. Else the refusal."""
        size = len(trip.request.body)
        full = self._buffer.refuses(size)
        if full is not None:
            return self._refuse(trip, full, 1.0)
        if not trip.held:
            trip.held = True
            self._metrics.held_requests += 1
        began = self._loop.time()
        if self._releasing is None or self._releasing.done():
            self._releasing = self._loop.create_task(self._release_slowly())
        try:
            let_go = await self._buffer.wait(
                rows=trip.asked.rows, body_bytes=size, deadline=trip.deadline_at
            )
        finally:
            trip.away_seconds += self._loop.time() - began
        trip.tried.clear()
        trip.refusal = None
        return None if let_go else self._refuse(trip, Refusal.DEADLINE, 1.0)

    async def _release_slowly(self) -> None:
        """Let held requests go as soon as any pod may take one, a batch at a time."""
        while len(self._buffer):
            await asyncio.sleep(_RELEASE_SECONDS)
            self.release(self.live.config.max_batch_rows)

    def release(self, rows: int) -> None:
        """Let go of held requests where a pod is there for them."""
        if len(self._buffer) and any(
            may_take(view, _ANY) for view in self._pods.views(now=self._loop.time())
        ):
            self._buffer.release(rows)

    def _refuse(self, trip: _Trip, reason: Refusal, retry_after: float | None) -> Response:
        status, message = _REFUSALS[reason]
        if reason is Refusal.DEADLINE and retry_after is not None:
            status, message = 503, "no pod was there before the deadline; try again"
        self._metrics.reject(reason, trip.asked.rows)
        if status in (429, 503):
            self._demand.rejected(trip.asked.rows, now=self._loop.time())
            trip.ended = True
        self._end(trip, met=False)
        headers = ((REQUEST_ID, trip.request_id),)
        return error_response(status, message, retry_after_seconds=retry_after, headers=headers)

    # ---- at a pod

    async def _send(self, trip: _Trip, route: Route) -> Response | None:
        """The answer; None: try again."""
        pod = self._pods.get(route.pod)
        if pod is None:
            return None
        now = self._loop.time()
        left = trip.deadline_at - now
        model = route.width.model
        self._note(trip, route, pod, now)
        sent = pod.sent(model, trip.asked.rows, now=now, expected_seconds=route.expected_seconds)
        probe = route.reason == _PROBE
        pod.probes_in_flight += probe
        trip.sends += 1
        try:
            reply = await self._client.request(
                b"POST",
                pod.host,
                pod.port,
                trip.live.targets[model],
                headers=self._headers(trip, route, left),
                body=trip.request.body,
                timeout_seconds=left + _GRACE_SECONDS,
            )
        except ExchangeFailed as error:
            return self._broken(trip, sent, route, error)
        finally:
            trip.away_seconds += self._loop.time() - now
            pod.given_back(sent)
            pod.probes_in_flight -= probe
            if len(self._buffer):
                self.release(2 * trip.asked.rows)
        return self._replied(trip, sent, route, reply)

    def _headers(self, trip: _Trip, route: Route, left: float) -> list[tuple[bytes, bytes]]:
        given = trip.request.headers
        headers = [(name, given[name]) for name in _PASSED_ON if name in given]
        slo_left = trip.asked.slo_seconds - (trip.asked.deadline_seconds - left)
        headers += (
            (BATCH_CAP, b"%d" % route.batch_cap),
            (DEADLINE_MILLISECONDS, b"%d" % max(1, int(left * 1000.0))),
            (SLO, b"%d" % max(1, int(slo_left * 1000.0))),
            (REQUEST_ID, trip.request_id),
        )
        return headers

    def _broken(
        self, trip: _Trip, sent: Sent, route: Route, error: ExchangeFailed
    ) -> Response | None:
        """No whole answer came, and none will."""
        now, pod = self._loop.time(), sent.pod
        if error.late:
            self._pods.succeeded(sent, now=now)  # not dead, but as slow as it has been
            self._learn(trip, route, now, succeeded=False)
            self._end(trip, met=False)
            return self._error(trip, 504, "no answer within the request's deadline")
        self._pods.failed(pod, now=now)
        if not error.sent:
            pod.unreachable(now=now)
            trip.sends -= 1  # nobody has seen it
        if self._tries_again(trip, pod, "connection_lost" if error.sent else "not_connected"):
            return None
        self._learn(trip, route, now, succeeded=False)
        self._end(trip, met=False)
        return self._error(trip, 502, "the pods that were asked did not answer; try again")

    def _replied(
        self, trip: _Trip, sent: Sent, route: Route, reply: ClientResponse
    ) -> Response | None:
        now, pod, status = self._loop.time(), sent.pod, reply.status
        pod.reached()
        headers = reply.headers
        telemetry = headers.get(TELEMETRY)
        if telemetry is not None:
            pod.told(telemetry, now=now)
        pool = headers.get(POOL)
        if pool is not None:
            self._pods.belongs_to(pod, pool)
        if status == 200:
            self._pods.succeeded(sent, now=now)
            _measure_link(sent, headers, now)
            latency = now - trip.request.received_at
            met = latency <= trip.asked.slo_seconds
            model = route.width.model
            self._demand.answered(model, within_slo=met, now=now)
            trip.ended = True
            self._metrics.took(model, latency)
            self._end(trip, met=met)
            self._learn(trip, route, now, succeeded=True)
            return self._pass(trip, reply)
        if status == 429:
            pod.refused(now=now)
        elif status in (500, 502):
            self._pods.failed(pod, now=now)
        if status in (429, 503) and RETRY_AFTER in headers:
            trip.refusal = reply
        if status in _NOT_DONE and self._tries_again(trip, pod, f"status_{status}"):
            return None
        if status in (429, 503):
            return self._refused_by_pod(trip, reply)
        if status >= 500:
            self._learn(trip, route, now, succeeded=False)
        self._end(trip, met=False if status >= 500 else None)
        return self._pass(trip, reply)

    def _refused_by_pod(self, trip: _Trip, reply: ClientResponse) -> Response:
        self._metrics.reject("Pod", trip.asked.rows)
        self._demand.rejected(trip.asked.rows, now=self._loop.time())
        trip.ended = True
        self._end(trip, met=False)
        return self._pass(trip, reply)

    def _tries_again(self, trip: _Trip, pod: Pod, reason: str) -> bool:
        """Whether to, and remembers that.

        Work that was begun is begun three times at most. Refusals before any work are paced by the
        buffer once the request is held there, else by the budget.
        """
        paced = trip.held and reason in _BEFORE_WORK
        if trip.sends >= _MOST_SENDS and not paced:
            return False
        if trip.deadline_at <= self._loop.time():
            return False
        if not paced and not self._retries.take():
            return False
        self._metrics.retries[reason] += 1
        trip.tried.add(pod.name)
        return True

    # ---- after a pod

    def _pass(self, trip: _Trip, reply: ClientResponse) -> Response:
        given = reply.headers
        headers = [(name, given[name]) for name in _ANSWERED_WITH if name in given]
        headers.append((REQUEST_ID, trip.request_id))
        return Response(reply.status, reply.body, headers)

    def _error(self, trip: _Trip, status: int, message: str) -> Response:
        return error_response(status, message, headers=((REQUEST_ID, trip.request_id),))

    def _learn(self, trip: _Trip, route: Route, now: float, *, succeeded: bool) -> None:
        if not trip.live.learns:
            return
        asked = trip.asked
        wanted = RequestView(
            asked.rows, asked.deadline_seconds, asked.slo_seconds, asked.min_accuracy
        )
        latency = now - trip.request.received_at
        trip.live.policy.learn(Outcome(wanted, route, latency, succeeded))

    def _end(self, trip: _Trip, *, met: bool | None) -> None:
        """Count the request's end once. None: the client's own fault, or it has gone."""
        if met is None:
            return
        if not trip.ended:
            self._demand.failed(now=self._loop.time())
            trip.ended = True
        self._metrics.slo[trip.asked.slo_class, "met" if met else "missed"] += 1

    def _note(self, trip: _Trip, route: Route, pod: Pod, now: float) -> None:
        policy = trip.live.policy.name
        pool = pod.pool if pod.pool in trip.live.pools else "other"
        self._metrics.decisions[policy, route.width.model, pool, route.reason] += 1
        self.decisions.append(Decided(now, policy, route, pool, trip.asked.rows))

    def _new_id(self) -> bytes:
        self._last_id += 1
        return self._id_prefix + b"%x" % self._last_id


_ANY = RequestView(rows=1, deadline_seconds=1.0, slo_seconds=1.0)

_REFUSALS = {
    Refusal.QUEUES_FULL: (429, "all pods' queues are full; try again later or send fewer rows"),
    Refusal.TOO_LATE: (503, "no pod can answer within the request's deadline; try again later"),
    Refusal.BUFFER_COUNT: (503, "no pod is there, and too many requests wait; try again later"),
    Refusal.BUFFER_BYTES: (503, "too many bytes of requests wait; try again later"),
    Refusal.NOT_ACCURATE: (400, "header Slimscale-Min-Accuracy: no width is that accurate"),
    Refusal.DEADLINE: (504, "the request's deadline has passed"),
}


def _measure_link(sent: Sent, headers: dict[bytes, bytes], now: float) -> None:
    try:
        at_pod = float(headers[QUEUE_MILLISECONDS]) + float(headers[COMPUTE_MILLISECONDS])
    except (KeyError, ValueError):
        return
    sent.pod.measured_link(now - sent.sent_at - at_pod / 1000.0)
