"""How requests end that get no outputs: late, refused, lost with the model server; and what runs again.

Inference changes nothing, so what was lost may run again. Each request still gets one answer: only its
Deferred carries it, and that takes one.
"""

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from slimscale.routing.promises import Promises
from slimscale.routing.queues import BatchQueues, Entry, QueueKey
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.sidecar.backend import ModelNotLoaded, ModelRefused, ModelServerGone
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import Pending

__all__ = ["Endings", "Run"]

_log = logging.getLogger(__name__)

_MOST_LOSSES = 3
"""A request that was running when the model server went away, so often, may be why it did."""
_ALONE_AFTER_LOSSES = 2


@dataclass(slots=True, eq=False)
class Run:
    """One batch in flight."""

    key: QueueKey
    entries: list[Entry[Pending]]
    rows: int
    started: float
    expected_seconds: float

    def unanswered(self) -> list[Entry[Pending]]:
        return [entry for entry in self.entries if not entry.item.answer.done()]


class Endings:
    """`reruns`: groups that run next, each just as it is."""

    def __init__(
        self, queues: BatchQueues[Pending], promises: Promises, metrics: SidecarMetrics
    ) -> None:
        self.reruns: deque[tuple[QueueKey, list[Entry[Pending]]]] = deque()
        self._queues = queues
        self._promises = promises
        self._metrics = metrics

    # ---- batches

    def batch_failed(self, run: Run, error: Exception, now: float) -> None:
        """What becomes of the requests of a batch that has no outputs."""
        if isinstance(error, ModelServerGone):
            self._count("Stuck" if error.late else "Lost")
            for entry in run.unanswered():
                self._lost(run.key, entry, now)
        elif isinstance(error, ModelNotLoaded):
            self._count("NotLoaded")
            _log.warning("%s is not loaded after all: %s", run.key.model, error)
            for entry in run.unanswered():
                self._queues.add(run.key, entry)
        elif isinstance(error, ModelRefused):
            self._count("Refused")
            self._split(run, error)
        elif isinstance(error, ValueError):
            _log.error("the model server's answer to %s: %s", run.key.model, error)
            self.fail(run, 502, "BadAnswer", f"the model server's answer: {error}")
        else:
            _log.error("a batch of %s failed", run.key.model, exc_info=error)
            self.fail(run, 500, "Internal", "internal error; see the sidecar's log")

    def fail(self, run: Run, status: int, reason: str, message: str) -> None:
        """The whole batch."""
        self._count(reason)
        for entry in run.entries:
            self.reject(entry, status, reason, message)

    def _count(self, reason: str) -> None:
        self._metrics.batch_failures.labels(reason).inc()

    def _lost(self, key: QueueKey, entry: Entry[Pending], now: float) -> None:
        losses = entry.item.losses = entry.item.losses + 1
        if entry.deadline <= now:
            self.late(entry)
        elif losses >= _MOST_LOSSES:
            message = f"the model server was lost {losses} times while it ran this request"
            self.reject(entry, 502, "LostAgain", message)
        elif losses >= _ALONE_AFTER_LOSSES:
            self.reruns.append((key, [entry]))
        else:
            self._queues.add(key, entry)

    def _split(self, run: Run, error: ModelRefused) -> None:
        """One bad request must fail alone: halve the batch until it does."""
        entries = run.unanswered()
        half = len(entries) // 2
        if half:
            self.reruns += [(run.key, entries[:half]), (run.key, entries[half:])]
            return
        status = 400 if 400 <= error.status < 500 else 502
        for entry in entries:
            self.reject(entry, status, "Refused", f"the model server refused it: {error}")

    # ---- requests

    def late(self, entry: Entry[Pending]) -> None:
        if not entry.item.answer.done():
            self._promises.kept(entry.item.expected_seconds, inf)
            self.reject(entry, 504, "DeadlinePassed", "the deadline passed before the answer")

    def reject(self, entry: Entry[Pending], status: int, reason: str, message: str) -> None:
        if entry.item.settle(error_response(status, message)):
            self._metrics.refused(reason)
            self._metrics.answered(status)

    def expire(self, now: float) -> None:
        """Answer what has passed its deadline, queued or about to run again."""
        for _, entry in list(self._queues.expired(now)):
            self.late(entry)
        for entry in self._of_reruns():
            if entry.deadline <= now:
                self.late(entry)

    def first_deadline(self) -> float:
        """Of what `expire` looks at; infinite where there is nothing."""
        queued = self._queues.first_deadline()
        rerun = min((entry.deadline for entry in self._of_reruns()), default=inf)
        return rerun if queued is None else min(queued, rerun)

    def give_up(self, message: str) -> None:
        """Answer all that is not running with a 503."""
        for entry in list(self._of_reruns()):
            self.reject(entry, 503, "ShuttingDown", message)
        self.reruns.clear()
        for model in self._queues.models():
            for entry in list(self._queues.drain_model(model)):
                self.reject(entry, 503, "ShuttingDown", message)

    @property
    def pending(self) -> int:
        return len(self._queues) + sum(1 for _ in self._of_reruns())

    def _of_reruns(self) -> Iterator[Entry[Pending]]:
        for _, entries in tuple(self.reruns):
            for entry in entries:
                if not entry.item.answer.done():
                    yield entry
