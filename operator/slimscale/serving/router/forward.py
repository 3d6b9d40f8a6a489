"""One request's way: routed, held or refused; sent to a pod; answered, or tried again elsewhere.

Most requests find a pod and an idle connection at once. They need no task: the answer's arrival writes
the reply. All others, and second tries, go on in a task.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from random import Random
from typing import Any

from slimscale.routing.admission import Admission, Refusal, Verdict, admit
from slimscale.routing.feasibility import may_take
from slimscale.routing.heuristics import Reason
from slimscale.routing.policy import RequestView, Route
from slimscale.serving.http import (
    ClientPool,
    ClientResponse,
    Deferred,
    ExchangeFailed,
    Request,
    Response,
)
from slimscale.serving.http.client import request_head
from slimscale.serving.http.client_connection import ClientConnection
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.router.asked import read_asked
from slimscale.serving.router.buffer import RequestBuffer
from slimscale.serving.router.live import Live
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.outcomes import Outcomes
from slimscale.serving.router.pods import Pod, Pods
from slimscale.serving.router.second_opinion import SecondOpinion
from slimscale.serving.router.trip import Decided, Leg, Trip, request_headers
from slimscale.serving.router.windows import Demand

__all__ = ["Forwarder"]

_PROBE = Reason.PROBE
_NONE: frozenset[str] = frozenset()
_GRACE_SECONDS = 0.1
"""A pod may say itself that it is too late; only then the router does."""
_RELEASE_SECONDS = 0.05
_LONGEST_RETRY_AFTER_SECONDS = 60.0
_ANY = RequestView(rows=1, deadline_seconds=1.0, slo_seconds=1.0)

Step = Route | Response | None
"""Where to, the answer already, or: wait for a pod."""


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
        self._loop = asyncio.get_running_loop()
        self._outcomes = Outcomes(pods=pods, demand=demand, metrics=metrics, time=self._loop.time)
        self._releasing: asyncio.Task[None] | None = None
        self._id_prefix = b"%08x-" % rng.getrandbits(32)
        self._last_id = 0
        self._second_opinion = SecondOpinion(metrics, rng)

    def infer(
        self, request: Request
    ) -> Response | Deferred[Response] | Coroutine[Any, Any, Response]:
        live = self.live
        try:
            asked = read_asked(request.headers, request.body, live.config)
        except InvalidRequest as error:
            self._metrics.answered(error.status)
            return error_response(error.status, str(error))
        arrived = request.received_at
        self._demand.arrived(asked.rows, now=arrived)
        if live.learned is not None:
            live.learned.arrived(asked.rows, now=arrived)
        self._outcomes.retries.earn()
        self._metrics.arrived_requests += 1
        self._metrics.arrived_rows += asked.rows
        request_id = asked.request_id or self._new_id()
        trip = Trip(request, asked, live, request_id, arrived + asked.deadline_seconds, live.policy)
        self.body_bytes += len(request.body)
        step: Step
        if self.body_bytes > max(live.config.buffer_bytes, 4 * live.config.max_body_bytes):
            step = self._outcomes.refused(trip, Refusal.BUFFER_BYTES, 1.0)
        else:
            step = self._route(trip)
        if isinstance(step, Response):
            return self._done(trip, step)
        if step is not None:
            pod = self._pods.get(step.pod)
            connection = None if pod is None else self._client.idle_now(pod.host, pod.port)
            if pod is not None and connection is not None:
                return self._send_at_once(trip, step, pod, connection)
        return self._walk(trip, step)

    # ---- without a task

    def _send_at_once(
        self, trip: Trip, route: Route, pod: Pod, connection: ClientConnection
    ) -> Deferred[Response]:
        answer: Deferred[Response] = Deferred()
        reply: Deferred[ClientResponse] = Deferred()
        leg = self._depart(trip, route, pod)

        def leave() -> None:
            if not reply.done():  # else the connection is another request's by now
                connection.abort()

        def arrive(reply: Deferred[ClientResponse]) -> None:
            self._client.give_back(pod.host, pod.port, connection)
            self._arrive(leg)
            if trip.request.cancelled:
                self._left(trip)
                return
            try:
                response = self._judge(leg, reply)
            except Exception as error:
                self._left(trip)
                answer.set_exception(error)
                return
            if response is not None:
                answer.set_result(self._done(trip, response))
            else:
                self._walk_in_a_task(trip, answer)

        head = request_head(
            b"POST",
            pod.host,
            pod.port,
            trip.live.targets[route.width.model],
            headers=request_headers(leg),
            body_bytes=len(trip.request.body),
        )
        reply.then(arrive)
        connection.send((head, trip.request.body), trip.deadline_at + _GRACE_SECONDS, reply)
        if not answer.done():
            trip.request.on_cancel(leave)
        return answer

    def _judge(self, leg: Leg, reply: Deferred[ClientResponse]) -> Response | None:
        error = reply.exception()
        if error is None:
            return self._outcomes.replied(leg, reply.result())
        if isinstance(error, ExchangeFailed):
            return self._outcomes.broken(leg, error)
        raise error

    def _walk_in_a_task(self, trip: Trip, answer: Deferred[Response]) -> None:
        task = self._loop.create_task(self._walk(trip, self._route(trip)))

        def done(task: asyncio.Task[Response]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        def leave() -> None:
            task.cancel()

        task.add_done_callback(done)
        trip.request.on_cancel(leave)

    # ---- in a task

    async def _walk(self, trip: Trip, step: Step) -> Response:
        try:
            response = await self._steps(trip, step)
        except BaseException:
            self._left(trip)
            raise
        return self._done(trip, response)

    async def _steps(self, trip: Trip, step: Step) -> Response:
        while not isinstance(step, Response):
            if step is None:
                step = await self._hold(trip)
                continue
            answer = await self._send(trip, step)
            step = self._route(trip) if answer is None else answer
        return step

    async def _send(self, trip: Trip, route: Route) -> Response | None:
        """The answer; None: try again."""
        pod = self._pods.get(route.pod)
        if pod is None:
            return None
        leg = self._depart(trip, route, pod)
        try:
            reply = await self._client.request(
                b"POST",
                pod.host,
                pod.port,
                trip.live.targets[route.width.model],
                headers=request_headers(leg),
                body=trip.request.body,
                timeout_seconds=leg.left_seconds + _GRACE_SECONDS,
            )
        except ExchangeFailed as error:
            return self._outcomes.broken(leg, error)
        finally:
            self._arrive(leg)
        return self._outcomes.replied(leg, reply)

    async def _hold(self, trip: Trip) -> Step:
        """Wait for a pod. Then where to, or the refusal."""
        if trip.refusal is not None and not (trip.held and trip.refusal.status == 429):
            return self._outcomes.refused_by_pod(trip, trip.refusal)
        size = len(trip.request.body)
        full = self._buffer.refuses(size)
        if full is not None:
            return self._outcomes.refused(trip, full, 1.0)
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
        if not let_go:
            return self._outcomes.refused(trip, Refusal.DEADLINE, 1.0)
        return self._route(trip)

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

    # ---- steps of both

    def _route(self, trip: Trip) -> Step:
        now = self._loop.time()
        left = trip.deadline_at - now
        if left <= 0.0:
            return self._outcomes.refused(trip, Refusal.DEADLINE)
        asked, live = trip.asked, trip.live
        slo_left = asked.slo_seconds - (now - trip.request.received_at)
        tried = frozenset(trip.tried) if trip.tried else _NONE
        wanted = RequestView(asked.rows, left, max(0.001, slo_left), asked.min_accuracy, tried)
        views = self._pods.views(now=now)
        rollout = live.rollout
        if rollout is not None:
            trip.policy, trip.arm = live.whose(trip.request_id)
        route = trip.policy.choose(wanted, views, live.widths, self._rng)
        if route is None or route.expected_seconds > left:
            admission = admit(wanted, views, live.widths, live.delays)
            if admission.refusal is not None:
                return self._refuse_or_hold(trip, admission)
            if admission.verdict is Verdict.HOLD:
                return None
        if (
            now < self._outcomes.turned_away_until  # rarely, and all the rest costs more
            and route is not None
            and not tried
            and self._all_turn_away(route, asked.rows, left, now)
        ):
            return self._outcomes.refused(trip, Refusal.TOO_LATE, 1.0)
        if route is not None and rollout is not None:
            self._second_opinion.note(trip, route, wanted, views, now=now)
        return route

    def _all_turn_away(self, route: Route, rows: int, left: float, now: float) -> bool:
        """Whether every pod has just said that it lacks the time: to ask again would only cost both of
        us more, when there is least to spare."""
        model = route.width.model
        return all(
            pod.would_turn_away(model, rows=rows, left_seconds=left, now=now)
            for pod in self._pods
            if pod.endpoint.ready
        )

    def _refuse_or_hold(self, trip: Trip, admission: Admission) -> Response | None:
        """A request that has waited already goes on waiting for room in a queue."""
        refusal = admission.refusal
        if refusal is None or (trip.held and refusal is Refusal.QUEUES_FULL):
            return None
        if trip.refusal is not None:
            return self._outcomes.refused_by_pod(trip, trip.refusal)
        wait = min(_LONGEST_RETRY_AFTER_SECONDS, admission.retry_after_seconds)
        return self._outcomes.refused(trip, refusal, wait)

    def _depart(self, trip: Trip, route: Route, pod: Pod) -> Leg:
        now = self._loop.time()
        live, rows, model = trip.live, trip.asked.rows, route.width.model
        pool = pod.pool if pod.pool in live.pools else "other"
        policy = trip.policy.name
        self._metrics.decisions[policy, model, pool, route.reason] += 1
        self.decisions.append(Decided(now, policy, route, pool, rows))
        trip.sends += 1
        probe = route.reason == _PROBE
        pod.probes_in_flight += probe
        sent = pod.sent(model, rows, now=now, expected_seconds=route.expected_seconds)
        return Leg(trip, route, pod, sent, trip.deadline_at - now, probe)

    def _arrive(self, leg: Leg) -> None:
        """The answer, or that none will come. What was counted is given back."""
        leg.trip.away_seconds += self._loop.time() - leg.sent.sent_at
        leg.pod.given_back(leg.sent)
        leg.pod.probes_in_flight -= leg.probe
        if len(self._buffer):
            self.release(leg.trip.asked.rows)  # its place in the pod's queue

    def _done(self, trip: Trip, response: Response) -> Response:
        self.body_bytes -= len(trip.request.body)
        self._metrics.answered(response.status)
        inside = self._loop.time() - trip.request.received_at - trip.away_seconds
        self._metrics.overhead.observe(max(0.0, inside))
        return response

    def _left(self, trip: Trip) -> None:
        """The client has gone."""
        self.body_bytes -= len(trip.request.body)
        self._metrics.answered(499)

    def _new_id(self) -> bytes:
        self._last_id += 1
        return self._id_prefix + b"%x" % self._last_id
