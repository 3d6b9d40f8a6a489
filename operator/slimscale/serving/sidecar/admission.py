"""Whether a request is taken: said at once, before its body is parsed."""

from collections.abc import Iterable
from dataclasses import dataclass

from slimscale.routing.promises import Promises
from slimscale.routing.queues import BatchQueues
from slimscale.serving.http.messages import Response
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.sidecar.backlog import backlog_seconds, finish_seconds
from slimscale.serving.sidecar.pending import ModelState, Pending

__all__ = ["Refusal", "Situation", "judge"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` is a metric's label."""

    status: int
    reason: str
    message: str
    retry_after_seconds: float

    def response(self) -> Response:
        return error_response(
            self.status, self.message, retry_after_seconds=self.retry_after_seconds
        )


@dataclass(frozen=True, slots=True)
class Situation:
    """The pod at one instant. `running_seconds`: until a slot is free; `busy`: something runs."""

    now: float
    up: bool
    busy: bool
    running_seconds: float
    slots: int
    models: Iterable[ModelState]
    queues: BatchQueues[Pending]
    promises: Promises


def judge(
    pod: Situation, model: ModelState, *, rows: int, size_bytes: int, deadline: float
) -> Refusal | float:
    """Why a request can't be taken, or in how many seconds its answer is expected (0: not known).

    Nothing is refused on a guess: only measured times count.
    """
    refusal = _without_estimate(pod, model, rows, size_bytes, left_seconds=deadline - pod.now)
    if refusal is not None:
        return refusal
    if not pod.up:
        return 0.0  # waits for the model server as long as its deadline allows
    expected = finish_seconds(
        model, pod.models, pod.queues,
        rows=rows, deadline=deadline, running_seconds=pod.running_seconds, slots=pod.slots,
    )  # fmt: skip
    if expected is None:
        return 0.0
    # An idle pod promises what it has measured: else it could never learn that it got faster.
    promised = expected * (pod.promises.factor if pod.busy else 1.0)
    late = pod.now + promised - deadline
    if late <= 0.0:
        return expected
    message = f"the answer would take {promised:.3f} s, the deadline leaves {promised - late:.3f} s"
    return Refusal(503, "DeadlineCannotBeKept", message, late)


def _without_estimate(
    pod: Situation, model: ModelState, rows: int, size_bytes: int, *, left_seconds: float
) -> Refusal | None:
    full = pod.queues.refusal(rows, size_bytes)
    if full is not None:
        message = f"the queue is full ({full.value}); try again later"
        wait = backlog_seconds(
            pod.models, pod.queues, running_seconds=pod.running_seconds, slots=pod.slots
        )
        return Refusal(429, full.value, message, wait)
    if left_seconds <= 0.0:
        return Refusal(504, "DeadlinePassed", "the deadline has passed", 1.0)
    wait = model.refused_until - pod.now
    if wait > 0.0:
        return Refusal(503, "ModelUnavailable", model.refused_because, wait)
    return None
