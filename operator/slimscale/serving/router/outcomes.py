"""What an answer, or its absence, means: for the client, the pod, the figures and the policy.

A second try never doubles an answer: it follows only where no answer can come any more (no connection,
a connection that broke) or where the pod has said that it has none (404, 429, 502, 503). A 429 or 503
with Retry-After is an early refusal, which is passed on where no other pod takes the request; a 503
without it comes from a pod that is going away, and the request may wait for another. A pod that is
merely slow is waited for until the deadline. Inference changes nothing, so that work begun on a pod
that died does no harm.
"""

from collections.abc import Callable

from slimscale.routing.admission import Refusal
from slimscale.routing.policy import Outcome, RequestView
from slimscale.serving.headers import (
    BATCH_ROWS,
    COMPUTE_MILLISECONDS,
    POOL,
    QUEUE_MILLISECONDS,
    REQUEST_ID,
    RETRY_AFTER,
    TELEMETRY,
)
from slimscale.serving.http import ClientResponse, ExchangeFailed, Response
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.router.decision_log import Kept
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.pods import Pods, Sent
from slimscale.serving.router.retries import RetryBudget
from slimscale.serving.router.trip import Leg, Trip, answer_of
from slimscale.serving.router.windows import Demand

__all__ = ["Outcomes"]

_MOST_SENDS = 3
_NOT_DONE = frozenset((404, 429, 502, 503))
_BEFORE_WORK = frozenset(("status_429", "status_503", "not_connected"))
_REFUSALS = {
    Refusal.QUEUES_FULL: (429, "all pods' queues are full; try again later or send fewer rows"),
    Refusal.TOO_LATE: (503, "no pod can answer within the request's deadline; try again later"),
    Refusal.BUFFER_COUNT: (503, "no pod is there, and too many requests wait; try again later"),
    Refusal.BUFFER_BYTES: (503, "too many bytes of requests wait; try again later"),
    Refusal.NOT_ACCURATE: (400, "header Slimscale-Min-Accuracy: no width is that accurate"),
    Refusal.DEADLINE: (504, "the request's deadline has passed"),
}


class Outcomes:
    """`time` is the loop's clock. Each method that gives None means: try again."""

    def __init__(
        self, *, pods: Pods, demand: Demand, metrics: RouterMetrics, time: Callable[[], float]
    ) -> None:
        self.retries = RetryBudget()
        self.turned_away_until = 0.0
        """Until then the word of some pod holds that a request's time is too short."""
        self._pods = pods
        self._demand = demand
        self._metrics = metrics
        self._time = time

    def replied(self, leg: Leg, reply: ClientResponse) -> Response | None:
        now, trip, pod = self._time(), leg.trip, leg.pod
        if pod.connect_failures:
            pod.reached()
        headers, status = reply.headers, reply.status
        telemetry = headers.get(TELEMETRY)
        if telemetry is not None:
            pod.told(telemetry, now=now)
        pool = headers.get(POOL)
        if pool is not None:
            self._pods.belongs_to(pod, pool)
        if status == 200:
            self._succeeded(leg, headers, now)
            return answer_of(trip, reply)
        if status == 429:
            pod.refused(now=now)
        elif status in (500, 502):
            self._pods.failed(pod, now=now)
        if status in (429, 503) and RETRY_AFTER in headers:
            trip.refusal = reply
            if status == 503:
                until = pod.turned_away(
                    leg.route.width.model,
                    rows=trip.asked.rows, left_seconds=leg.left_seconds, now=now,
                )  # fmt: skip
                self.turned_away_until = max(self.turned_away_until, until)
        if status in _NOT_DONE and self._tries_again(leg, f"status_{status}"):
            return None
        if status in (429, 503):
            return self.refused_by_pod(trip, reply)
        if status >= 500:
            self._learn(leg, now, succeeded=False)
            self._end(trip, met=False)
        return answer_of(trip, reply)

    def broken(self, leg: Leg, error: ExchangeFailed) -> Response | None:
        """No whole answer came, and none will."""
        now, trip, pod = self._time(), leg.trip, leg.pod
        if error.late:
            self._pods.succeeded(leg.sent, now=now)  # not dead, but as slow as it has been
            self._learn(leg, now, succeeded=False)
            self._end(trip, met=False)
            return self._error(trip, 504, "no answer within the request's deadline")
        self._pods.failed(pod, now=now)
        if not error.sent:
            pod.unreachable(now=now)
            trip.sends -= 1  # nobody has seen it
        if self._tries_again(leg, "connection_lost" if error.sent else "not_connected"):
            return None
        self._learn(leg, now, succeeded=False)
        self._end(trip, met=False)
        return self._error(trip, 502, "the pods that were asked did not answer; try again")

    def refused(
        self, trip: Trip, reason: Refusal, retry_after_seconds: float | None = None
    ) -> Response:
        """The router's own refusal."""
        status, message = _REFUSALS[reason]
        if reason is Refusal.DEADLINE and trip.held:
            status, message = 503, "no pod was there before the deadline; try again"
        self._metrics.reject(reason, trip.asked.rows)
        self._rejected(trip, demand=status in (429, 503))
        return error_response(
            status,
            message,
            retry_after_seconds=retry_after_seconds,
            headers=((REQUEST_ID, trip.request_id),),
        )

    def refused_by_pod(self, trip: Trip, reply: ClientResponse) -> Response:
        self._metrics.reject("Pod", trip.asked.rows)
        self._rejected(trip, demand=True)
        return answer_of(trip, reply)

    # ---- parts

    def _succeeded(self, leg: Leg, headers: dict[bytes, bytes], now: float) -> None:
        trip, model = leg.trip, leg.route.width.model
        self._pods.succeeded(leg.sent, now=now)
        _measure_link(leg.sent, headers, now)
        latency = now - trip.request.received_at
        met = latency <= trip.asked.slo_seconds
        self._demand.answered(model, within_slo=met, seconds=latency, now=now)
        trip.ended = True
        self._metrics.took(model, latency)
        if trip.kept is not None:
            _batch_of(trip.kept, headers)
        self._end(trip, met=met, answered=True)
        self._learn(leg, now, succeeded=True)

    def _tries_again(self, leg: Leg, reason: str) -> bool:
        """Whether to, and remembers that.

        Work that was begun is begun three times at most. Refusals before any work are paced by the
        buffer once the request is held there, else by the budget.
        """
        trip = leg.trip
        paced = trip.held and reason in _BEFORE_WORK
        if trip.sends >= _MOST_SENDS and not paced:
            return False
        if trip.deadline_at <= self._time():
            return False
        if not paced and not self.retries.take():
            return False
        self._metrics.retries[reason] += 1
        trip.tried.add(leg.pod.name)
        return True

    def _rejected(self, trip: Trip, *, demand: bool) -> None:
        if demand and not trip.ended:
            self._demand.rejected(trip.asked.rows, now=self._time())
            trip.ended = True
        self._end(trip, met=False)

    def _log(self, trip: Trip, kept: Kept, *, answered: bool, met: bool) -> None:
        log = trip.live.log
        if log is not None:
            latency = self._time() - trip.request.received_at
            sends = max(1, trip.sends)
            log.end(kept, latency=latency, answered=answered, met=met, sends=sends)
        trip.kept = None

    def _end(self, trip: Trip, *, met: bool, answered: bool = False) -> None:
        """Count the request's end once."""
        if not trip.ended:
            self._demand.failed(now=self._time())
            trip.ended = True
        if trip.arm is not None:
            trip.arm.end(met=met)
            if trip.kept is not None:
                self._log(trip, trip.kept, answered=answered, met=met)
        self._metrics.slo[trip.asked.slo_class, "met" if met else "missed"] += 1

    def _learn(self, leg: Leg, now: float, *, succeeded: bool) -> None:
        trip = leg.trip
        if not trip.live.learns:
            return
        asked = trip.asked
        wanted = RequestView(
            asked.rows, asked.deadline_seconds, asked.slo_seconds, asked.min_accuracy
        )
        latency = now - trip.request.received_at
        trip.policy.learn(Outcome(wanted, leg.route, latency, succeeded))

    @staticmethod
    def _error(trip: Trip, status: int, message: str) -> Response:
        return error_response(status, message, headers=((REQUEST_ID, trip.request_id),))


def _batch_of(kept: Kept, headers: dict[bytes, bytes]) -> None:
    try:
        kept.compute_seconds = float(headers[COMPUTE_MILLISECONDS]) / 1000.0
        kept.batch_rows = int(headers[BATCH_ROWS])
    except (KeyError, ValueError):
        return


def _measure_link(sent: Sent, headers: dict[bytes, bytes], now: float) -> None:
    try:
        at_pod = float(headers[QUEUE_MILLISECONDS]) + float(headers[COMPUTE_MILLISECONDS])
    except (KeyError, ValueError):
        return
    sent.pod.measured_link(now - sent.sent_at - at_pod / 1000.0)
