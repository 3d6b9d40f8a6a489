"""The batcher: takes requests, runs batches as soon as an instance is free, answers each request.

Greedy: what has queued when an instance becomes free goes as the next batch. The next batch is sent
before the last one's answers are written, so that the model never waits for us. There is no loop
that could end: `pump` runs at each event, and `_ended` gives a batch's slot back before all else.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from slimscale.api.serving_config import Batching
from slimscale.domain.serving import PodTelemetry
from slimscale.routing.holding import fire_at
from slimscale.routing.promises import Promises
from slimscale.routing.queues import BatchQueues, Entry, QueueKey, QueueLimits
from slimscale.serving.protocol.backend import encode_batch
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import Tensor
from slimscale.serving.sidecar.admission import Refusal, Situation, judge
from slimscale.serving.sidecar.answers import Answers
from slimscale.serving.sidecar.backend import Backend, ModelNotLoaded, ModelServerGone, Outcome
from slimscale.serving.sidecar.backlog import backlog_seconds, telemetry_of
from slimscale.serving.sidecar.endings import Endings, Run
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import ModelState, Pending
from slimscale.serving.sidecar.shares import Mismatch
from slimscale.serving.telemetry import encode_telemetry
from slimscale.weights.batching import shipped_batching_table

__all__ = ["Batcher"]

_log = logging.getLogger(__name__)

_STUCK_FACTOR = 20.0
_STUCK_SECONDS = 5.0
"""A batch that takes this long, and so many times what was expected, is given up as stuck."""
_FIRST_SECONDS = 60.0
"""The same for a model that has not been measured yet."""


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
        self._endings = Endings(self.queues, self.promises, metrics)
        self._runs: set[Run] = set()
        self._answering: set[Run] = set()
        """The batch that has run and whose answers are written next."""
        self._pumping = False
        self._pump_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._late_timer: asyncio.TimerHandle | None = None
        self._late_at = 0.0
        self._told: list[object] = []
        self._told_bytes = b""
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
        """As `admission.judge`, now."""
        now = self._loop.time()
        if self._at_once(model) and now >= model.refused_until:
            expected = model.times.safe_seconds(rows)
            if expected is not None and now + expected <= deadline:
                return expected  # as below, at a fraction of the cost
        situation = Situation(
            now=now,
            up=self.up,
            busy=bool(self._runs),
            running_seconds=self._running_seconds(now),
            slots=self._slots,
            models=self.models.values(),
            queues=self.queues,
            promises=self.promises,
        )
        return judge(situation, model, rows=rows, size_bytes=size_bytes, deadline=deadline)

    def _at_once(self, model: ModelState) -> bool:
        """Whether a request would run at once and alone: the pod is idle and holds nothing back."""
        return (
            self.up
            and model.instances > 0
            and not self._runs
            and not self.queues.live
            and not self._endings.reruns
            and not self.batching.hold_milliseconds
        )

    def submit(
        self, model: ModelState, pending: Pending, *, cap: int, size_bytes: int, deadline: float
    ) -> Callable[[], None]:
        """Queue a request. The result takes it back: for when its client has gone."""
        now = self._loop.time()
        request = pending.request
        tensor = request.inputs[0]
        key = QueueKey(model.name, tensor.array.shape[1:])
        entry = Entry(pending, request.rows, size_bytes, cap, deadline, now)
        self._idle.clear()
        at_once = self._at_once(model) and not self._pumping and not pending.hold_seconds
        if at_once and deadline > now:
            self._start(key, [entry], now)
            return _nothing
        self.queues.add(key, entry)
        if self.batching.hold_milliseconds:
            model.arrivals.arrived(now)
        if not model.instances:
            self._wake()
        self.pump()

        def withdraw() -> None:
            if self.queues.remove(key, entry):
                self._metrics.refused("ClientGone")
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
        reruns = self._endings.reruns
        if not self.queues.live and not reruns:  # a timer that is left fires once for nothing
            self._rest()
            return
        self._endings.expire(now)
        held: set[str] = set()
        hold_until = None
        while self.up and len(self._runs) < self._slots:
            if reruns:
                self._start(*reruns.popleft(), now)
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
                self._endings.late(entry)
        if self.queues.live or reruns:
            self._set_timer(now, hold_until)
        self._rest()

    def _fire_at(self, key: QueueKey, now: float) -> float:
        head = self.queues.head(key)
        if head is None or self.draining:
            return now
        hold_seconds = self.batching.hold_milliseconds / 1000.0
        own = head.item.hold_seconds
        if not hold_seconds and not own:
            return now
        model = self.models[key.model]
        full = min(self.batching.max_rows, head.own_cap)
        # who may wait by the router's word: it knows the rate, and how many rows are worth it
        arrivals = None if own > hold_seconds else model.arrivals.per_second(now)
        return fire_at(
            now=now,
            rows=self.queues.rows_in(key),
            full_rows=full
            if own > hold_seconds
            else self._worth_waiting_for(model, full, arrivals),
            oldest_arrival=head.arrived,
            first_deadline=head.deadline,
            hold_seconds=max(hold_seconds, own),
            full_seconds=model.times.safe_seconds(full),
            arrivals_per_second=arrivals,
        )

    def _worth_waiting_for(self, model: ModelState, full: int, arrivals: float | None) -> int:
        """Rows that a hold waits for: a full batch, or what the batching table says."""
        base, row = model.times.base_seconds, model.times.row_seconds
        if not self.batching.busy_cost or base is None or row is None:
            return full
        return shipped_batching_table().limit(
            base_seconds=base,
            row_seconds=row,
            rows_per_second=arrivals or 0.0,
            busy_cost=self.batching.busy_cost,
            max_rows=full,
        )

    def _start(self, key: QueueKey, entries: list[Entry[Pending]], now: float) -> None:
        entries = [entry for entry in entries if not entry.item.answer.done()]
        if not entries:
            return
        model = self.models[key.model]
        rows = sum(entry.rows for entry in entries)
        run = Run(key, entries, rows, now, model.times.seconds(rows) or 0.0)
        self._runs.add(run)
        model.running += 1
        model.running_rows += rows
        self._watch_deadlines(min([entry.deadline for entry in entries]))
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
            self._endings.fail(run, 500, "Internal", "internal error; see the sidecar's log")

    def _ended(self, run: Run, outcome: Outcome) -> None:
        """The one end of every batch: its slot is free again, whatever happens after."""
        if run not in self._runs:
            return
        model = self.models[run.key.model]
        ended = self._loop.time()
        self._release(run, model, ended)
        if isinstance(outcome, Exception):
            if isinstance(outcome, ModelServerGone):
                self.up = False
            elif isinstance(outcome, ModelNotLoaded):
                model.instances = 0
            self._endings.batch_failed(run, outcome, ended)
            if not (self.up and model.instances):
                self._wake()
            self.pump()
            return
        model.times.observe(run.rows, ended - run.started)
        self._answering.add(run)
        self.pump()  # what is sent leaves at once, before the answers are written
        self._answer(run, outcome, ended)

    def _answer(self, run: Run, outputs: list[Tensor], ended: float) -> None:
        self._answering.discard(run)
        specs = self.metadata.outputs if self.metadata is not None else ()
        try:
            self._answers.write(
                specs, run.entries, outputs, model=run.key.model, rows=run.rows,
                started=run.started, ended=ended, telemetry=self._telemetry_bytes(),
            )  # fmt: skip
            now = self._loop.time()
            for entry in run.entries:
                self.promises.kept(entry.item.expected_seconds, now - entry.arrived)
        except Mismatch as error:
            _log.error("the model server's answer to a batch of %s: %s", run.key.model, error)
            self._endings.fail(run, 502, "RowMismatch", f"the model server's answer: {error}")
        except Exception:
            _log.exception("the answers of a batch of %s failed", run.key.model)
            self._endings.fail(run, 500, "Internal", "internal error; see the sidecar's log")
        self._rest()

    def _release(self, run: Run, model: ModelState, now: float) -> None:
        self._runs.discard(run)
        model.running -= 1
        model.running_rows -= run.rows
        model.idle_since = now

    def refuse_model(self, model: ModelState, message: str, seconds: float) -> None:
        """It can't be loaded: answer what waits for it, and refuse what comes for `seconds`."""
        model.refused_until = self._loop.time() + seconds
        model.refused_because = message
        for entry in list(self.queues.drain_model(model.name)):
            self._endings.reject(entry, 503, "ModelUnavailable", message)
        self._rest()

    # ---- time

    def _set_timer(self, now: float, hold_until: float | None) -> None:
        """One timer: the first deadline of what is queued, or the end of a hold."""
        first = self._endings.first_deadline()
        at = max(first if hold_until is None else min(first, hold_until), now)
        if at == inf:
            return
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

    def _watch_deadlines(self, first: float) -> None:
        """One timer for all that runs, left as it is when a batch ends: it fires for nothing then."""
        timer = self._late_timer
        if timer is not None:
            if self._late_at <= first:
                return
            timer.cancel()
        self._late_at = first
        self._late_timer = self._loop.call_at(first, self._in_flight_late)

    def _in_flight_late(self) -> None:
        self._late_timer = None
        now = self._loop.time()
        first = inf
        for run in tuple(self._runs):
            for entry in run.unanswered():
                if entry.deadline <= now:
                    self._endings.late(entry)
                else:
                    first = min(first, entry.deadline)
        if first < inf:
            self._watch_deadlines(first)

    def _running_seconds(self, now: float) -> float:
        """Until a slot is free."""
        if len(self._runs) < self._slots:
            return 0.0
        return min(max(run.started + run.expected_seconds - now, 0.0) for run in self._runs)

    # ---- for others

    @property
    def pending(self) -> int:
        """Requests taken and not answered."""
        return self._endings.pending + sum(
            len(run.entries) for runs in (self._runs, self._answering) for run in runs
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

    def _telemetry_bytes(self) -> bytes:
        """What stands on each reply. The same bytes as long as there is nothing new to tell: writing
        them anew, and reading them, would cost more than the answer."""
        backlog = self.backlog_seconds() if self._runs or self.queues.live else 0.0
        queues = self.queues
        facts: list[object] = [backlog, self.draining, self.device]
        for model in self.models.values():
            base, row = model.told_times()
            facts += (
                model.instances, model.loading, queues.rows_of(model.name), model.running_rows,
                base, row, model.load_seconds,
            )  # fmt: skip
        if facts != self._told:
            self._told, self._told_bytes = facts, encode_telemetry(self.telemetry())
        return self._told_bytes

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
        if not (self._runs or self._answering or self._endings.reruns or len(self.queues)):
            self._idle.set()

    async def wait_idle(self) -> None:
        """Returns when nothing is queued or running."""
        await self._idle.wait()

    async def close(self) -> None:
        """Give up what is left, with a 503 each."""
        self.up = False
        for run in tuple(self._runs):
            self._release(run, self.models[run.key.model], self._loop.time())
            self._endings.fail(run, 503, "ShuttingDown", "the pod is shutting down")
        self._endings.give_up("the pod is shutting down")
        for timer in (self._timer, self._late_timer):
            if timer is not None:
                timer.cancel()


def _nothing() -> None:
    """What runs already can't be taken back."""


def limits_of(batching: Batching) -> QueueLimits:
    return QueueLimits(
        max_rows=batching.max_rows,
        queue_rows=batching.queue_rows,
        queue_bytes=batching.queue_bytes,
    )
