"""What becomes of a batch without outputs, one request at a time."""

from math import inf

import numpy as np

from slimscale.routing.promises import Promises
from slimscale.routing.queues import BatchQueues, Entry, QueueKey, QueueLimits
from slimscale.serving.http import Deferred, Response
from slimscale.serving.protocol import Tensor
from slimscale.serving.protocol.requests import InferRequest
from slimscale.serving.sidecar.backend import ModelRefused, ModelServerGone
from slimscale.serving.sidecar.endings import Endings, Run
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import Pending

KEY = QueueKey("w100", (2,))


def entry(deadline: float = inf) -> Entry[Pending]:
    rows = Tensor("image", "FP32", np.zeros((1, 2), np.float32))
    request = InferRequest(None, (rows,), 1, (), False)
    answer: Deferred[Response] = Deferred()
    return Entry(Pending(request, [(0, False)], answer, "digits"), 1, 8, 99, deadline, 0.0)


def run(*entries: Entry[Pending]) -> Run:
    return Run(KEY, list(entries), len(entries), 0.0, 0.0)


def made() -> tuple[Endings, BatchQueues[Pending]]:
    queues: BatchQueues[Pending] = BatchQueues(QueueLimits(8, 100, 1000))
    return Endings(queues, Promises(), SidecarMetrics()), queues


def status(one: Entry[Pending]) -> int | None:
    return one.item.answer.result().status if one.item.answer.done() else None


def test_lost_requests_run_again_together_then_alone_then_fail() -> None:
    endings, queues = made()
    first, second = entry(), entry()
    gone = ModelServerGone("killed")
    endings.batch_failed(run(first, second), gone, 1.0)
    assert len(queues) == 2
    taken = queues.take(KEY, 1.0, lambda _rows: None).batch
    endings.batch_failed(run(*taken), gone, 2.0)
    assert [group for _, group in endings.reruns] == [[first], [second]]
    endings.reruns.popleft()
    endings.batch_failed(run(first), gone, 3.0)
    assert (status(first), status(second)) == (502, None)


def test_what_waits_to_run_again_is_answered_at_its_deadline() -> None:
    endings, _ = made()
    early, patient = entry(deadline=5.0), entry(deadline=9.0)
    endings.batch_failed(run(early, patient), ModelRefused(500, "no"), 1.0)
    assert endings.first_deadline() == 5.0
    endings.expire(6.0)
    assert (status(early), status(patient)) == (504, None)
    assert endings.pending == 1
    endings.give_up("the end")
    assert status(patient) == 503
    assert endings.pending == 0


def test_a_lost_request_past_its_deadline_is_late_not_queued_again() -> None:
    endings, queues = made()
    late = entry(deadline=1.0)
    endings.batch_failed(run(late), ModelServerGone("killed"), 2.0)
    assert (status(late), len(queues)) == (504, 0)


def test_an_answered_request_is_never_answered_or_run_again() -> None:
    endings, queues = made()
    answered, other = entry(), entry()
    answered.item.settle(Response(200))
    endings.batch_failed(run(answered, other), ModelServerGone("killed"), 1.0)
    assert len(queues) == 1
    endings.fail(run(answered), 502, "Internal", "x")
    assert status(answered) == 200
