"""The event loop: arrivals, routes, batches, pods that come and go, and a scaler that is asked."""

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Protocol

from slimscale.domain.scaling import PoolObservation, ScalingObservation
from slimscale.routing.policy import RequestView, RoutingPolicy
from slimscale.simulate.serving.arrivals import Arrivals
from slimscale.simulate.serving.cluster import SimCluster
from slimscale.simulate.serving.demand import DemandMeter
from slimscale.simulate.serving.pod import Request, SimPod
from slimscale.simulate.serving.service import SimService

__all__ = ["Outcome", "PlaneView", "Scaler", "ServingRun", "simulate_serving"]

METRICS_SECONDS = 15.0
"""Metrics-server's resolution: how often a pod's CPU is read, and over how long."""
SAMPLE_SECONDS = 1.0
LEAST_SLACK = 1e-3


class Outcome:
    """How a request ended."""

    ANSWERED = 0
    LATE = 1
    """Given up by a pod because its deadline could not be kept."""
    REJECTED = 2
    """429 or 503: a queue or the buffer was full."""


@dataclass(frozen=True, slots=True)
class PlaneView:
    """What a scaler may look at."""

    now: float
    cluster: SimCluster
    observation: ScalingObservation
    cpu: Mapping[str, float]
    """Of each pod that metrics-server has read: share of its request, over the last window."""
    cpu_read_at: float


class Scaler(Protocol):
    """Sets replicas. `period_seconds`: how often it is asked; inf: never."""

    @property
    def period_seconds(self) -> float: ...

    def scale(self, view: PlaneView) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """(replicas by pool, deletion costs by pod)."""
        ...


@dataclass(slots=True)
class ServingRun:
    """What came of it. Lists are by request, in the order of arrival; seconds throughout."""

    duration_seconds: float
    outcomes: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """inf where there was no answer."""
    accuracies: list[float] = field(default_factory=list)
    """Of the width that answered; 0 where none did."""
    timeline: list[tuple[float, int, int]] = field(default_factory=list)
    """(second, replicas asked for, pods ready) of all pools together."""
    replicas: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """Each change."""
    pod_seconds: dict[str, float] = field(default_factory=dict)
    batches: int = 0
    batch_rows: int = 0

    def attainment(self, slo_seconds: float) -> float:
        """Share of all requests that were answered within the SLO."""
        good = sum(latency <= slo_seconds for latency in self.latencies)
        return good / max(1, len(self.latencies))


def simulate_serving(
    service: SimService,
    arrivals: Arrivals,
    policy: RoutingPolicy,
    scaler: Scaler,
    *,
    start: Mapping[str, int],
    seed: int,
    stable_seconds: float = 60.0,
    panic_seconds: float = 6.0,
) -> ServingRun:
    """Run every arrival to its end. The same arguments give the same run."""
    rng = Random(seed)  # noqa: S311 - a simulation is to be repeatable
    cluster = SimCluster(service, start, Random(rng.random()))  # noqa: S311
    meter = DemandMeter(stable_seconds=stable_seconds, panic_seconds=panic_seconds)
    return _Loop(cluster, meter, arrivals, policy, scaler, rng=rng).run()


class _Loop:
    def __init__(
        self,
        cluster: SimCluster,
        meter: DemandMeter,
        arrivals: Arrivals,
        policy: RoutingPolicy,
        scaler: Scaler,
        *,
        rng: Random,
    ) -> None:
        self.cluster, self.meter, self.service = cluster, meter, cluster.service
        self.arrivals, self.policy, self.scaler, self.rng = arrivals, policy, scaler, rng
        self.buffer: deque[Request] = deque()
        self.serving: dict[str, SimPod] = {pod.name: pod for pod in self.cluster.serving()}
        self.result = ServingRun(arrivals.last)
        total = len(arrivals.seconds)
        self.result.outcomes = [Outcome.LATE] * total
        self.result.latencies = [inf] * total
        self.result.accuracies = [0.0] * total
        self.result.replicas.append((0.0, dict(self.cluster.replicas)))
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._busy_read: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._cpu_read_at = 0.0

    def run(self) -> ServingRun:
        end = self.arrivals.last
        self._later(0.0, self._sample)
        self._later(0.0, self._read_cpu)
        self._later(self.service.telemetry_seconds, self._poll)
        if self.scaler.period_seconds < inf:
            self._later(self.scaler.period_seconds, self._scale)
        number, seconds, rows = 0, self.arrivals.seconds, self.arrivals.rows
        while number < len(seconds) or self._events:
            at = self._events[0][0] if self._events else inf
            if number < len(seconds) and seconds[number] <= at:
                self._arrive(Request(number, seconds[number], rows[number]))
                number += 1
                continue
            if number >= len(seconds) and at > end + self.service.deadline_seconds:
                break
            now, _, act = heapq.heappop(self._events)
            act(now)
        for pool in self.service.pools:
            self.result.pod_seconds[pool.name] = self.cluster.pod_seconds(pool.name, end)
        return self.result

    def _later(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), act))

    # ---- requests

    def _arrive(self, request: Request) -> None:
        self.meter.arrived(request.arrived, request.rows)
        if not self.serving:
            if len(self.buffer) >= self.service.buffer_requests:
                self._reject(request, request.arrived)
            else:
                self.buffer.append(request)
            return
        self._route(request, request.arrived)

    def _route(self, request: Request, now: float) -> None:
        waited = now - request.arrived
        view = RequestView(
            rows=request.rows,
            deadline_seconds=max(LEAST_SLACK, self.service.deadline_seconds - waited),
            slo_seconds=max(LEAST_SLACK, self.service.slo_seconds - waited),
            min_accuracy=self.service.min_accuracy,
        )
        pods = [pod.view(now) for pod in self.serving.values()]
        route = self.policy.choose(view, pods, self.service.widths, self.rng)
        pod = self.serving.get(route.pod) if route is not None else None
        if (
            route is None
            or pod is None
            or not pod.offer(request, route.width, route.batch_cap, now)
        ):
            self._reject(request, now)
        elif pod.running is None:
            self._work(pod, now)

    def _reject(self, request: Request, now: float) -> None:
        self.meter.rejected(now, request.rows)
        self.result.outcomes[request.number] = Outcome.REJECTED

    def _work(self, pod: SimPod, now: float) -> None:
        batch, _late = pod.begin(now, self.rng)  # late ones are noted as such from the start
        if batch is None:
            if pod.draining and pod.empty:
                self.cluster.end(pod, now)
            return
        self.result.batches += 1
        self.result.batch_rows += batch.rows

        def done(at: float) -> None:
            ended = pod.finish(at)
            for request in ended.requests:
                self.result.outcomes[request.number] = Outcome.ANSWERED
                self.result.latencies[request.number] = at - request.arrived
                self.result.accuracies[request.number] = ended.width.accuracy
            self._work(pod, at)

        self._later(batch.ends, done)

    # ---- pods

    def _start(self, pod: SimPod, now: float) -> None:
        if pod.ended is not None or pod.draining:
            return
        pod.ready = True
        pod.tell(now)
        self.serving[pod.name] = pod
        while self.buffer:
            request = self.buffer.popleft()
            if now - request.arrived < self.service.deadline_seconds:
                self._route(request, now)

    def _scale(self, now: float) -> None:
        if now > self.arrivals.last:
            return
        replicas, costs = self.scaler.scale(self._view(now))
        for pod in self.cluster.pods:
            pod.deletion_cost = costs.get(pod.name, pod.deletion_cost)
        before = dict(self.cluster.replicas)
        for name, wanted in replicas.items():
            for pod in self.cluster.scale(name, wanted, now):
                self._later(pod.ready_at, partial(self._start, pod))
        self.serving = {n: pod for n, pod in self.serving.items() if not pod.draining}
        if self.cluster.replicas != before:
            self.result.replicas.append((now, dict(self.cluster.replicas)))
        self._later(now + self.scaler.period_seconds, self._scale)

    def _view(self, now: float) -> PlaneView:
        self._forget_late(now)
        pools = tuple(
            PoolObservation(
                pool.name,
                self.cluster.replicas[pool.name],
                tuple(p.observed(now, self._cpu.get(p.name)) for p in self.cluster.of(pool.name)),
            )
            for pool in self.service.pools
        )
        demand = self.meter.observe(now, buffered_rows=sum(r.rows for r in self.buffer))
        observation = ScalingObservation(now, demand, pools)
        return PlaneView(now, self.cluster, observation, self._cpu, self._cpu_read_at)

    def _forget_late(self, now: float) -> None:
        limit = self.service.deadline_seconds
        while self.buffer and now - self.buffer[0].arrived >= limit:
            self.buffer.popleft()

    # ---- looks

    def _poll(self, now: float) -> None:
        every = self.service.telemetry_seconds
        for pod in self.serving.values():
            if now - pod.told_at >= every:
                pod.tell(now)
        if now <= self.arrivals.last:
            self._later(now + every, self._poll)

    def _read_cpu(self, now: float) -> None:
        busy = {pod.name: pod.busy_until(now) for pod in self.cluster.pods if pod.ready}
        self._cpu = {
            name: (seconds - self._busy_read[name]) / METRICS_SECONDS
            for name, seconds in busy.items()
            if name in self._busy_read
        }
        self._busy_read, self._cpu_read_at = busy, now
        if now <= self.arrivals.last:
            self._later(now + METRICS_SECONDS, self._read_cpu)

    def _sample(self, now: float) -> None:
        asked = sum(self.cluster.replicas.values())
        self.result.timeline.append((now, asked, len(self.serving)))
        if now + SAMPLE_SECONDS <= self.arrivals.last:
            self._later(now + SAMPLE_SECONDS, self._sample)
