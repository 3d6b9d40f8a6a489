"""The batcher: takes requests, runs batches as soon as an instance is free, answers each request.

Greedy: what has queued when an instance becomes free goes as the next batch. The next batch is sent
before the last one's answers are written, so that the model never waits for us. There is no loop
that could end: `pump` runs at each event, and `_ended` gives a batch's slot back before all else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from slimscale.api.serving_config import Batching
from slimscale.domain.serving import PodTelemetry
from slimscale.routing.holding import fire_at
from slimscale.routing.promises import Promises
from slimscale.routing.queues import BatchQueues, Entry, QueueKey, QueueLimits
from slimscale.serving.http.messages import Response
from slimscale.serving.protocol.backend import encode_batch
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import Tensor
from slimscale.serving.sidecar.answers import Answers
from slimscale.serving.sidecar.backend import (
    Backend,
    ModelNotLoaded,
    ModelRefused,
    ModelServerGone,
    Outcome,
)
from slimscale.serving.sidecar.backlog import backlog_seconds, finish_seconds, telemetry_of
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import ModelState, Pending
from slimscale.serving.sidecar.shares import Mismatch

__all__ = ["Batcher", "Refusal"]

_log = logging.getLogger(__name__)

_MOST_LOSSES = 3
"""A request that was running when the model server went away, so often, may be why it did."""
_ALONE_AFTER_LOSSES = 2
_STUCK_FACTOR = 20.0
_STUCK_SECONDS = 5.0
"""A batch that takes this long, and so many times what was expected, is given up as stuck."""
_FIRST_SECONDS = 60.0
"""The same for a model that has not been measured yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Said before a request is queued. `reason` is a metric's label."""

    status: int
    reason: str
    message: str
    retry_after_seconds: float

    def response(self) -> Response:
        return error_response(
            self.status, self.message, retry_after_seconds=self.retry_after_seconds
        )


@dataclass(slots=True, eq=False)
class _Run:
    """One batch in flight."""

    key: QueueKey
    entries: list[Entry[Pending]]
    rows: int
    started: float
    expected_seconds: float
    timer: asyncio.TimerHandle | None = field(default=None)


class Batcher:
    """All of a pod's queues and running batches. Use from one event loop.

    `up` False: the model server is gone and nothing is sent; requests wait within their deadlines.
    `wake()` is called when a batch finds it gone, and when a model turns out to be cold.
    """

    def __init__(
        self,
        backend: Backend,
        batching: Batching,
        metrics: SidecarMetrics,
        answers: Answers,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._backend = backend
        self._metrics = metrics
        self._answers = answers
        self._wake = wake
        self.metadata: ModelMetadata | None = None
        """What the models take and give; None until a model server has said so."""
        self.batching = batching
        self.promises = Promises()
        self.up = False
        self.draining = False
        self.device: PodTelemetry | None = None
        self.models: dict[str, ModelState] = {}
        self.queues: BatchQueues[Pending] = BatchQueues(limits_of(batching))
        self._reruns: deque[tuple[QueueKey, list[Entry[Pending]]]] = deque()
        self._runs: set[_Run] = set()
        self._answering: dict[_Run, None] = {}
        """Batches that have run and whose answers are written in the next turn."""
        self._pumping = False
        self._pump_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    # ---- settings

    def configure(self, batching: Batching) -> None:
        """Take up new limits. What is queued stays, even where the bounds have become narrower."""
        self.batching = batching
        self.queues.limits = limits_of(batching)
        self.pump()

    @property
    def _slots(self) -> int:
        """Batches that may run at once: a second instance would be of no use without its own."""
        return max(self.batching.running_batches, self.batching.max_instances)

    # ---- taking requests

    def judge(
        self, model: ModelState, rows: int, size_bytes: int, deadline: float
    ) -> Refusal | float:
        """Why a request can't be taken now, or in how many seconds its answer is expected (0 where
        that isn't known)."""
        now = self._loop.time()
        refusal = self._refusal(model, rows, size_bytes, left_seconds=deadline - now)
        if refusal is not None:
            return refusal
        if not self.up:
            return 0.0  # waits for the model server as long as its deadline allows
        expected = finish_seconds(
            model, self.models.values(), self.queues,
            rows=rows, deadline=deadline, running_seconds=self._running_seconds(now),
            slots=self._slots,
        )  # fmt: skip
        if expected is None:
            return 0.0
        # An idle pod promises what it has measured: else it could never learn that it got faster.
        factor = self.promises.factor if self._runs else 1.0
        if now + expected * factor <= deadline:
            return expected
        return Refusal(
            503, "DeadlineCannotBeKept",
            f"the answer would take {expected * factor:.3f} s, the deadline leaves"
            f" {deadline - now:.3f} s",
            now + expected * factor - deadline,
        )  # fmt: skip

    def _refusal(
        self, model: ModelState, rows: int, size_bytes: int, *, left_seconds: float
    ) -> Refusal | None:
        """What needs no estimate."""
        full = self.queues.refusal(rows, size_bytes)
        if full is not None:
            message = f"the queue is full ({full.value}); try again later"
            return Refusal(429, full.value, message, self.backlog_seconds())
        if left_seconds <= 0:
            return Refusal(504, "DeadlinePassed", "the deadline has passed", 1.0)
        wait = model.refused_until - self._loop.time()
        if wait > 0:
            return Refusal(503, "ModelUnavailable", model.refused_because, wait)
        return None

    def submit(
        self, model: ModelState, pending: Pending, *, cap: int, size_bytes: int, deadline: float
    ) -> Callable[[], None]:
        """Queue a request. The result takes it back: for when its client has gone."""
        now = self._loop.time()
        request = pending.request
        tensor = request.inputs[0]
        key = QueueKey(model.name, tensor.array.shape[1:])
        entry = Entry(pending, request.rows, size_bytes, cap, deadline, now)
        self.queues.add(key, entry)
        self._idle.clear()
        if self.batching.hold_milliseconds:
            model.arrivals.arrived(now)
        if not model.instances:
            self._wake()
        self.pump()

        def withdraw() -> None:
            if self.queues.remove(key, entry):
                self._metrics.rejected.labels("ClientGone").inc()
                self._rest()

        return withdraw

    # ---- running batches

    def pump(self) -> None:
        """Start every batch that can start now, and set the timer for what comes by time.

        Answers are written within this call, and a client's next request may be read within that:
        such a call from inside only makes the one outside go round again.
        """
        if self._pumping:
            self._pump_again = True
            return
        self._pumping = True
        try:
            self._pump_again = True
            while self._pump_again:
                self._pump_again = False
                self._pump_once(self._loop.time())
        finally:
            self._pumping = False

    def _pump_once(self, now: float) -> None:
        if not self.queues.live and not self._reruns:  # a timer that is left fires once for nothing
            self._rest()
            return
        for _, entry in list(self.queues.expired(now)):
            self._late(entry)
        held: set[str] = set()
        hold_until = None
        while self.up and len(self._runs) < self._slots:
            if self._reruns:
                self._start(*self._reruns.popleft(), now)
                continue
            runnable = {
                name
                for name, model in self.models.items()
                if model.running < model.instances and name not in held
            }
            key = self.queues.next_key(runnable)
            if key is None:
                break
            until = self._fire_at(key, now)
            if until > now:
                held.add(key.model)
                hold_until = until if hold_until is None else min(hold_until, until)
                continue
            taken = self.queues.take(key, now, self.models[key.model].times.seconds)
            if taken.batch:
                self._start(key, taken.batch, now)
            for entry in taken.late:
                self._late(entry)
        if self.queues.live:
            self._set_timer(now, hold_until)
        self._rest()

    def _fire_at(self, key: QueueKey, now: float) -> float:
        hold_seconds = self.batching.hold_milliseconds / 1000.0
        if not hold_seconds or self.draining:
            return now
        head = self.queues.head(key)
        model = self.models[key.model]
        if head is None:
            return now
        full = min(self.batching.max_rows, head.own_cap)
        return fire_at(
            now=now,
            rows=self.queues.rows_in(key),
            full_rows=full,
            oldest_arrival=head.arrived,
            first_deadline=head.deadline,
            hold_seconds=hold_seconds,
            full_seconds=model.times.safe_seconds(full),
            arrivals_per_second=model.arrivals.per_second(now),
        )

    def _start(self, key: QueueKey, entries: list[Entry[Pending]], now: float) -> None:
        entries = [entry for entry in entries if not entry.item.answer.done()]
        if not entries:
            return
        model = self.models[key.model]
        rows = sum(entry.rows for entry in entries)
        run = _Run(key, entries, rows, now, model.times.seconds(rows) or 0.0)
        self._runs.add(run)
        model.running += 1
        model.running_rows += rows
        self._watch_deadlines(run)
        # Not the requests' deadlines: those answer their clients, while the model goes on computing.
        seconds = _FIRST_SECONDS
        if run.expected_seconds:
            seconds = max(_STUCK_SECONDS, _STUCK_FACTOR * run.expected_seconds)
        try:
            headers, parts = encode_batch([entry.item.request.inputs for entry in entries])
            self._backend.start(
                model.name, headers, parts, seconds, lambda outcome: self._ended(run, outcome)
            )
        except Exception:
            _log.exception("a batch of %s could not be sent", model.name)
            self._release(run, model, now)
            self._fail(run, 500, "Internal", "internal error; see the sidecar's log")

    def _ended(self, run: _Run, outcome: Outcome) -> None:
        """The one end of every batch: its slot is free again, whatever happens after."""
        if run not in self._runs:
            return
        model = self.models[run.key.model]
        ended = self._loop.time()
        self._release(run, model, ended)
        if isinstance(outcome, Exception):
            self._failed(run, model, outcome)
            self.pump()
            return
        model.times.observe(run.rows, ended - run.started)
        self.pump()
        if self._runs:  # the next batch goes out at the end of this turn: answer in the next one
            self._answering[run] = None
            self._loop.call_soon(self._answer, run, outcome, ended)
        else:
            self._answer(run, outcome, ended)

    def _answer(self, run: _Run, outputs: list[Tensor], ended: float) -> None:
        self._answering.pop(run, None)
        specs = self.metadata.outputs if self.metadata is not None else ()
        try:
            self._answers.write(
                specs, run.entries, outputs, model=run.key.model, rows=run.rows,
                started=run.started, ended=ended, telemetry=self.telemetry(),
            )  # fmt: skip
            now = self._loop.time()
            for entry in run.entries:
                self.promises.kept(entry.item.expected_seconds, now - entry.arrived)
        except Mismatch as error:
            _log.error("the model server's answer to a batch of %s: %s", run.key.model, error)
            self._fail(run, 502, "RowMismatch", f"the model server's answer: {error}")
        except Exception:
            _log.exception("the answers of a batch of %s failed", run.key.model)
            self._fail(run, 500, "Internal", "internal error; see the sidecar's log")
        self._rest()

    def _failed(self, run: _Run, model: ModelState, error: Exception) -> None:
        if isinstance(error, ModelServerGone):
            self._requeue_lost(run, error)
        elif isinstance(error, ModelNotLoaded):
            self._requeue_cold(run, model, error)
        elif isinstance(error, ModelRefused):
            self._split(run, error)
        elif isinstance(error, ValueError):
            self._fail(run, 502, "BadAnswer", f"the model server's answer: {error}")
        else:
            _log.error("a batch of %s failed", model.name, exc_info=error)
            self._fail(run, 500, "Internal", "internal error; see the sidecar's log")

    def _release(self, run: _Run, model: ModelState, now: float) -> None:
        self._runs.discard(run)
        model.running -= 1
        model.running_rows -= run.rows
        model.idle_since = now
        if run.timer is not None:
            run.timer.cancel()

    # ---- what goes wrong

    def _requeue_lost(self, run: _Run, error: ModelServerGone) -> None:
        """The model server went away. Inference changes nothing, so what ran may run again; each
        request still gets one answer, since only its future carries it."""
        self._metrics.batch_failures.labels("Stuck" if error.late else "Lost").inc()
        self.up = False
        now = self._loop.time()
        for entry in run.entries:
            pending = entry.item
            pending.losses += 1
            if pending.answer.done():
                continue
            if entry.deadline <= now:
                self._late(entry)
            elif pending.losses >= _MOST_LOSSES:
                self._reject(
                    entry, 502, "LostAgain",
                    f"the model server was lost {pending.losses} times while it ran this request",
                )  # fmt: skip
            elif pending.losses >= _ALONE_AFTER_LOSSES:
                self._reruns.append((run.key, [entry]))
            else:
                self.queues.add(run.key, entry)
        self._wake()

    def _requeue_cold(self, run: _Run, model: ModelState, error: ModelNotLoaded) -> None:
        self._metrics.batch_failures.labels("NotLoaded").inc()
        _log.warning("%s is not loaded after all: %s", model.name, error)
        model.instances = 0
        for entry in run.entries:
            if not entry.item.answer.done():
                self.queues.add(run.key, entry)
        self._wake()

    def _split(self, run: _Run, error: ModelRefused) -> None:
        """One bad request must fail alone: halve the batch until it does."""
        self._metrics.batch_failures.labels("Refused").inc()
        entries = [entry for entry in run.entries if not entry.item.answer.done()]
        if len(entries) <= 1:
            for entry in entries:
                status = 400 if 400 <= error.status < 500 else 502
                self._reject(entry, status, "Refused", f"the model server refused it: {error}")
            return
        half = len(entries) // 2
        self._reruns.append((run.key, entries[:half]))
        self._reruns.append((run.key, entries[half:]))

    def refuse_model(self, model: ModelState, message: str, seconds: float) -> None:
        """It can't be loaded: answer what waits for it, and refuse what comes for `seconds`."""
        model.refused_until = self._loop.time() + seconds
        model.refused_because = message
        for entry in self.queues.drain_model(model.name):
            self._reject(entry, 503, "ModelUnavailable", message)
        self._rest()

    def _fail(self, run: _Run, status: int, reason: str, message: str) -> None:
        self._metrics.batch_failures.labels(reason).inc()
        for entry in run.entries:
            self._reject(entry, status, reason, message)

    def _late(self, entry: Entry[Pending]) -> None:
        self.promises.kept(entry.item.expected_seconds, inf)
        self._reject(entry, 504, "DeadlinePassed", "the deadline passed before the model could run")

    def _reject(self, entry: Entry[Pending], status: int, reason: str, message: str) -> None:
        if entry.item.settle(error_response(status, message)):
            self._metrics.rejected.labels(reason).inc()
            self._metrics.requests.labels(str(status)).inc()

    # ---- time

    def _set_timer(self, now: float, hold_until: float | None) -> None:
        """One timer: the first deadline of what is queued, or the end of a hold."""
        times = [at for at in (hold_until, self.queues.first_deadline()) if at is not None]
        if not times:
            return
        at = max(min(times), now)
        if self._timer is not None:
            # A deadline that is later than the timer only makes it fire once for nothing.
            if self._timer_at <= at and hold_until is None:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def _watch_deadlines(self, run: _Run) -> None:
        first = min(
            (entry.deadline for entry in run.entries if not entry.item.answer.done()),
            default=None,
        )
        run.timer = None if first is None else self._loop.call_at(first, self._in_flight_late, run)

    def _in_flight_late(self, run: _Run) -> None:
        now = self._loop.time()
        for entry in run.entries:
            if entry.deadline <= now and not entry.item.answer.done():
                self.promises.kept(entry.item.expected_seconds, inf)
                self._reject(entry, 504, "DeadlinePassed", "the deadline passed while it ran")
        self._watch_deadlines(run)

    def _running_seconds(self, now: float) -> float:
        """Until a slot is free."""
        if len(self._runs) < self._slots:
            return 0.0
        return min(max(run.started + run.expected_seconds - now, 0.0) for run in self._runs)

    # ---- for others

    @property
    def pending(self) -> int:
        """Requests taken and not answered."""
        return (
            len(self.queues)
            + sum(len(run.entries) for runs in (self._runs, self._answering) for run in runs)
            + sum(len(entries) for _, entries in self._reruns)
        )

    def backlog_seconds(self) -> float:
        now = self._loop.time()
        return backlog_seconds(
            self.models.values(), self.queues,
            running_seconds=self._running_seconds(now), slots=self._slots,
        )  # fmt: skip

    def telemetry(self) -> PodTelemetry:
        return telemetry_of(
            self.models.values(), self.queues,
            backlog=self.backlog_seconds(), draining=self.draining, device=self.device,
        )  # fmt: skip

    def refresh_gauges(self) -> None:
        """Called when metrics are read."""
        self._metrics.queued_rows.set(self.queues.rows)
        self._metrics.queued_bytes.set(self.queues.size_bytes)
        self._metrics.pending.set(self.pending)
        self._metrics.backlog_seconds.set(self.backlog_seconds())
        self._metrics.model_server_up.set(self.up)
        for model in self.models.values():
            self._metrics.instances.labels(model.name).set(model.instances)

    def _rest(self) -> None:
        if not (self._runs or self._answering or self._reruns or len(self.queues)):
            self._idle.set()

    async def wait_idle(self) -> None:
        """Returns when nothing is queued or running."""
        await self._idle.wait()

    async def close(self) -> None:
        """Give up what is left, with a 503 each."""
        self.up = False
        for run in tuple(self._runs):
            self._release(run, self.models[run.key.model], self._loop.time())
            self._fail(run, 503, "ShuttingDown", "the pod is shutting down")
        for _, entries in self._reruns:
            for entry in entries:
                self._reject(entry, 503, "ShuttingDown", "the pod is shutting down")
        self._reruns.clear()
        for model in self.queues.models():
            for entry in self.queues.drain_model(model):
                self._reject(entry, 503, "ShuttingDown", "the pod is shutting down")
        if self._timer is not None:
            self._timer.cancel()


def limits_of(batching: Batching) -> QueueLimits:
    return QueueLimits(
        max_rows=batching.max_rows,
        queue_rows=batching.queue_rows,
        queue_bytes=batching.queue_bytes,
    )
