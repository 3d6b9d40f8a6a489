"""One simulated pod: the sidecar's queues in front of one device that runs a batch at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from slimscale.domain.scaling import PoolPod
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.batch_times import BatchTimes
from slimscale.routing.policy import PodView, Width
from slimscale.routing.queues import BatchQueues, Entry, QueueKey, QueueLimits
from slimscale.simulate.serving.service import SimPool, SimService

__all__ = ["Batch", "Request", "SimPod"]


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way. Times are seconds of the simulation."""

    number: int
    arrived: float
    rows: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What a pod works on."""

    width: Width
    requests: tuple[Request, ...]
    rows: int
    began: float
    ends: float


@dataclass(slots=True, eq=False)
class SimPod:
    """Asked for at `created`; serves once `ready_at` is reached; then drains and ends."""

    name: str
    pool: SimPool
    service: SimService
    created: float
    placed_at: float
    """When there is a node for it; before, it is unschedulable."""
    ready_at: float
    ready: bool = False
    draining: bool = False
    ended: float | None = None
    deletion_cost: int = 0
    busy_seconds: float = 0.0
    """Of the device, counted at the end of each batch."""
    running: Batch | None = None
    told_at: float = 0.0
    _times: dict[str, BatchTimes] = field(default_factory=dict)
    _queues: BatchQueues[Request] = field(init=False)
    _told: PodTelemetry | None = None
    _sent: dict[str, int] = field(default_factory=dict)
    """Rows by width's model that the router has sent and no telemetry counts yet."""
    _widths: dict[str, Width] = field(init=False)

    def __post_init__(self) -> None:
        limits = QueueLimits(self.service.max_batch_rows, self.service.queue_rows, 2**40)
        self._queues = BatchQueues(limits)
        self._widths = {width.model: width for width in self.service.widths}
        # The model server warms every batch size before it is ready: that is measured too.
        for width in self.service.widths:
            times = self._times[width.model] = BatchTimes()
            for _ in range(3):
                for rows in (1, 4, 16):
                    times.observe(rows, self._mean_seconds(width, rows))

    def _mean_seconds(self, width: Width, rows: int) -> float:
        return self.pool.base_seconds + rows * self.pool.row_seconds * width.flops_ratio

    # ---- as the router sees it

    def view(self, now: float) -> PodView:
        return PodView(
            name=self.name,
            pool=self.pool.name,
            telemetry=self._told,
            telemetry_age_seconds=now - self.told_at,
            in_flight_rows=self._sent,
            cost_per_hour=self.pool.cost_per_hour,
        )

    def tell(self, now: float) -> None:
        """Telemetry reaches the router: with an answer, or because it has asked."""
        self._told, self.told_at, self._sent = self.telemetry(now), now, {}

    def telemetry(self, now: float) -> PodTelemetry:
        running = self.running
        widths = []
        backlog = max(0.0, running.ends - now) if running is not None else 0.0
        for width in self.service.widths:
            times, queued = self._times[width.model], self._queues.rows_of(width.model)
            base, row = times.base_seconds or 0.0, times.row_seconds or 0.0
            if queued:
                backlog += -(-queued // self.service.max_batch_rows) * base + queued * row
            rows = running.rows if running is not None and running.width is width else 0
            widths.append(WidthTelemetry(width.model, 1, False, queued, rows, base, row, 0.0))
        return PodTelemetry(tuple(widths), backlog, draining=self.draining)

    def observed(self, now: float, utilisation: float | None) -> PoolPod:
        """As the operator sees it."""
        told = self.telemetry(now) if self.ready else None
        if told is not None:
            told = PodTelemetry(told.widths, told.backlog_seconds, told.draining, utilisation)
        return PoolPod(
            name=self.name,
            ready=self.ready and not self.draining,
            created_at_seconds=self.created,
            ready_since_seconds=self.ready_at if self.ready else None,
            unschedulable=now < self.placed_at,
            terminating=self.draining,
            telemetry=told,
            telemetry_age_seconds=0.0,
            deletion_cost=self.deletion_cost,
        )

    # ---- what it does

    def offer(self, request: Request, width: Width, cap: int, now: float) -> bool:
        """Queue a routed request; False: its queue is full and the client gets a 429."""
        if self._queues.refusal(request.rows, 1) is not None:
            return False
        deadline = request.arrived + self.service.deadline_seconds
        entry = Entry(request, request.rows, 1, cap, deadline, now)
        self._queues.add(QueueKey(width.model), entry)
        self._sent[width.model] = self._sent.get(width.model, 0) + request.rows
        return True

    def begin(self, now: float, rng: Random) -> tuple[Batch | None, Sequence[Request]]:
        """(the next batch where the device is idle, requests that were given up on the way)."""
        late: list[Request] = []
        while (key := self._queues.next_key()) is not None:
            width = self._widths[key.model]
            taken = self._queues.take(key, now, self._times[key.model].seconds)
            late += [entry.item for entry in taken.late]
            if not taken.batch:
                continue
            lasts = self._mean_seconds(width, taken.rows)
            lasts *= rng.lognormvariate(0.0, self.service.noise)
            requests = tuple(entry.item for entry in taken.batch)
            self.running = Batch(width, requests, taken.rows, now, now + lasts)
            return self.running, late
        return None, late

    def finish(self, now: float) -> Batch:
        """The running batch is done; its answers carry telemetry to the router."""
        batch = self.running
        if batch is None:
            raise RuntimeError(f"{self.name} runs nothing")
        self.running = None
        self.busy_seconds += batch.ends - batch.began
        self._times[batch.width.model].observe(batch.rows, batch.ends - batch.began)
        self.tell(now)
        return batch

    def busy_until(self, now: float) -> float:
        """Busy seconds of the device up to now, the running batch's part included."""
        part = now - self.running.began if self.running is not None else 0.0
        return self.busy_seconds + part

    @property
    def empty(self) -> bool:
        return self.running is None and not self._queues.live
