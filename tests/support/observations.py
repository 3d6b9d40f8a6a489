"""Builders of observations, and a synthetic workload that serves the contract's samples.

The plant is the closed network itself with noise, a CPU quota and, if wanted, a hidden serial
section or a cliff, so that `decide` can be driven in a closed loop without a clock.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.domain.decision import Decision, PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    Freshness,
    NodeRoom,
    Observation,
    PodObservation,
    QosClass,
    ResizeCondition,
    TargetObservation,
)
from slimscale.threads.closed_network import NetworkParameters, solve_network, throughput_curve

__all__ = [
    "SyntheticWorkload",
    "drive",
    "make_histogram",
    "make_node",
    "make_observation",
    "make_pod",
    "make_sample",
    "make_spec",
    "make_target",
]

BOUNDS_SECONDS = tuple(10 ** (-6 + i / 4) for i in range(33))
"""1 µs to 100 s, four buckets a decade."""


def make_spec(**fields: object) -> SimWorkloadSpec:
    """A spec that writes in place; keys as in YAML: `make_spec(threads={"max": 8})`."""
    document: dict[str, object] = {
        "targetRef": {"name": "sim"},
        "updatePolicy": {"mode": "InPlace"},
        **fields,
    }
    return SimWorkloadSpec.model_validate(document)


def make_histogram(count: float, mean_seconds: float) -> HistogramSnapshot:
    """As if all observations were exponential with that mean."""
    cumulative = [count * -math.expm1(-b / max(mean_seconds, 1e-12)) for b in BOUNDS_SECONDS]
    return HistogramSnapshot(
        (*BOUNDS_SECONDS, math.inf), (*cumulative, count), count * mean_seconds
    )


def make_sample(
    at_seconds: float,
    *,
    tasks: float,
    pod_uid: str = "uid-0",
    threads: int | None = 4,
    task_seconds: float = 0.01,
    cpu_seconds: float = 0.008,
    dispatch_seconds: float = 50e-6,
    outstanding: float | None = 100.0,
    quota: float | None = 2.0,
    **changes: object,
) -> ContractSample:
    """Counters of a process that has done `tasks` tasks of that size since it started."""
    sample = ContractSample(
        pod_uid=pod_uid,
        sampled_at_seconds=at_seconds,
        process_start_seconds=1.0,
        threads_applied=threads,
        tasks_total=tasks,
        tasks_outstanding=outstanding,
        task=make_histogram(tasks, task_seconds),
        dispatch=make_histogram(tasks, dispatch_seconds),
        task_cpu_seconds_total=tasks * cpu_seconds,
        task_runqueue_seconds_total=0.0,
        cpu_quota_cores=quota,
        cpu_usage_seconds_total=tasks * (cpu_seconds + dispatch_seconds),
        cpu_periods_total=at_seconds * 10,
        cpu_throttled_periods_total=0.0,
        cpu_throttled_seconds_total=0.0,
    )
    return replace(sample, **changes)  # type: ignore[arg-type]


def make_pod(index: int = 0, **changes: object) -> PodObservation:
    """A ready Burstable pod with a CPU request of 1 and a limit of 2 on node-0."""
    pod = PodObservation(
        name=f"sim-{index}",
        uid=f"uid-{index}",
        node="node-0",
        phase="Running",
        ready=True,
        terminating=False,
        created_at_seconds=0.0,
        qos_class=QosClass.BURSTABLE,
        resource_version="1",
        spec_resources=ContainerResources(1000, 2000, 2**28, 2**29),
        applied_resources=ContainerResources(1000, 2000, 2**28, 2**29),
        other_cpu_request_millicores=0,
        other_containers_guaranteed=False,
        resize=ResizeCondition(),
        resize_restarts_container=False,
        restart_count=0,
        last_restart_seconds=None,
        crash_looping=False,
        desired_threads=None,
        has_live_channel=True,
        freshness=Freshness.FRESH,
    )
    return replace(pod, **changes)  # type: ignore[arg-type]


def make_node(name: str = "node-0", *, cores: float = 4.0, requested: float = 1.0) -> NodeRoom:
    return NodeRoom(name, round(cores * 1000), round(requested * 1000))


def make_target(**changes: object) -> TargetObservation:
    target = TargetObservation(
        kind="Deployment",
        name="sim",
        uid="uid-target",
        generation=1,
        selector="app=sim",
        desired_replicas=1,
        container="sim",
        template_resources=ContainerResources(1000, 2000, 2**28, 2**29),
    )
    return replace(target, **changes)  # type: ignore[arg-type]


def make_observation(
    pods: tuple[PodObservation, ...], at_seconds: float, **changes: object
) -> Observation:
    observation = Observation(
        namespace="team",
        name="sim",
        uid="uid-cr",
        generation=1,
        sampled_at_seconds=at_seconds,
        target=make_target(desired_replicas=len(pods)),
        pods=pods,
        nodes={"node-0": make_node()},
    )
    return replace(observation, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class SyntheticWorkload:
    """One pod under saturated demand. `truth` may be changed at any time: a new phase."""

    truth: NetworkParameters
    threads: int
    limit_millicores: int | None = 2000
    node_cores: float = 4.0
    request_millicores: int | None = 1000
    noise: float = 0.0
    seed: int = 1
    serial_seconds: float = 0.0
    """Of a lock inside the tasks, in their CPU part: looks like blocking when it is contended."""
    cliff_above: int | None = None
    """Beyond so many threads the throughput falls to a third."""
    interval_seconds: float = 5.0
    horizon_seconds: float = 120.0
    saturated: bool = True
    arrivals_per_second: float = 0.0
    schedstat: bool = True
    now_seconds: float = 1_000_000.0
    samples: list[ContractSample] = field(default_factory=list)
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.samples.append(
            replace(
                make_sample(self.now_seconds, tasks=0.0, threads=self.threads, quota=self._quota()),
                task_runqueue_seconds_total=0.0 if self.schedstat else None,
                cpu_periods_total=0.0,
            )
        )

    def _quota(self) -> float | None:
        return None if self.limit_millicores is None else self.limit_millicores / 1000

    def cores(self, limit_millicores: int | None) -> float:
        quota = math.inf if limit_millicores is None else limit_millicores / 1000
        return min(quota, self.node_cores)

    def rate(self, threads: int, limit_millicores: int | None) -> float:
        """True mean throughput: the network, the serial section, the CPU's law, the cliff."""
        cores = self.cores(limit_millicores)
        p = replace(self.truth, cpu_servers=cores)
        if self.serial_seconds:
            p = replace(
                p,
                cpu_seconds=max(p.cpu_seconds - self.serial_seconds, 1e-9),
                dispatch_seconds=p.dispatch_seconds + self.serial_seconds,
            )
        rate = float(throughput_curve(p, threads)[-1])
        rate = min(rate, cores / (self.truth.cpu_seconds + self.truth.dispatch_seconds))
        if self.cliff_above is not None and threads > self.cliff_above:
            rate /= 3
        return rate

    def _dispatcher_seconds(self) -> float:
        """Time a task spends at the dispatcher, waiting included: outside the task's own time."""
        if self.serial_seconds:
            return self.truth.dispatch_seconds  # the queue is at the lock inside the tasks
        cores = self.cores(self.limit_millicores)
        network = solve_network(replace(self.truth, cpu_servers=cores), self.threads)
        at_dispatcher = float(network.mean_at_dispatcher[-1])
        return at_dispatcher / float(network.throughput_per_second[-1])

    def best_rate(self, limit_millicores: int | None, most: int = 128) -> float:
        return max(self.rate(k, limit_millicores) for k in range(1, most + 1))

    def tick(self) -> None:
        """One scrape interval later: the counters have grown by what the pod has done."""
        last = self.samples[-1]
        cores = self.cores(self.limit_millicores)
        capacity = self.rate(self.threads, self.limit_millicores)
        rate = capacity if self.saturated else min(capacity, self.arrivals_per_second)
        # The machine and the engine are slower or faster as a whole: rate down, all times up.
        slower = math.exp(self._random.gauss(0, self.noise))
        rate /= slower
        done = rate * self.interval_seconds
        cpu, dispatch = self.truth.cpu_seconds * slower, self.truth.dispatch_seconds * slower
        own = cpu + dispatch
        busy = 1.0 if self.saturated else rate / max(capacity, 1e-9)
        # Little's law for the time in the thread; what is neither CPU nor outside is queueing.
        cycle = self.threads * busy / max(rate, 1e-9)
        wall = max(cycle - max(dispatch, busy * self._dispatcher_seconds()), cpu)
        queued = max(0.0, wall - cpu - self.truth.blocking_seconds * slower)
        for_cpu = queued if not self.serial_seconds else 0.0
        throttled = rate * own > 0.95 * cores
        size = math.exp(self._random.gauss(0, self.noise / 5))

        def plus(value: float | None, growth: float) -> float | None:
            return None if value is None else value + growth

        self.now_seconds += self.interval_seconds
        self.samples.append(
            replace(
                last,
                sampled_at_seconds=self.now_seconds,
                threads_applied=self.threads,
                tasks_total=plus(last.tasks_total, done),
                tasks_outstanding=float(2 * self.threads) if self.saturated else 0.5,
                task=_grown(last.task, done, wall),
                dispatch=_grown(last.dispatch, done, dispatch),
                task_cpu_seconds_total=plus(last.task_cpu_seconds_total, done * cpu * size),
                task_runqueue_seconds_total=plus(last.task_runqueue_seconds_total, done * for_cpu),
                cpu_quota_cores=self._quota(),
                cpu_usage_seconds_total=plus(last.cpu_usage_seconds_total, done * own),
                cpu_periods_total=plus(last.cpu_periods_total, 10 * self.interval_seconds),
                cpu_throttled_periods_total=plus(
                    last.cpu_throttled_periods_total,
                    6 * self.interval_seconds if throttled else 0.0,
                ),
            )
        )
        oldest = self.now_seconds - self.horizon_seconds
        self.samples = [s for s in self.samples if s.sampled_at_seconds >= oldest]

    def pod(self, **changes: object) -> PodObservation:
        resources = ContainerResources(self.request_millicores, self.limit_millicores, 2**28, 2**29)
        pod = make_pod(
            spec_resources=resources, applied_resources=resources, samples=tuple(self.samples)
        )
        return replace(pod, **changes)  # type: ignore[arg-type]

    def observe(self, **changes: object) -> Observation:
        requested = (self.request_millicores or 0) / 1000
        observation = make_observation(
            (self.pod(),),
            self.now_seconds,
            nodes={"node-0": make_node(cores=self.node_cores, requested=requested)},
        )
        return replace(observation, **changes)  # type: ignore[arg-type]

    def follow(self, target: PodTarget) -> None:
        """What the operator and the program do with a target."""
        self.threads = target.threads
        if target.cpu_limit_millicores is not None:
            self.limit_millicores = target.cpu_limit_millicores
        if target.cpu_request_millicores is not None:
            self.request_millicores = target.cpu_request_millicores


def _grown(
    histogram: HistogramSnapshot | None, count: float, mean_seconds: float
) -> HistogramSnapshot | None:
    if histogram is None:
        return None
    more = make_histogram(count, mean_seconds)
    return HistogramSnapshot(
        histogram.upper_bounds_seconds,
        tuple(
            a + b for a, b in zip(histogram.cumulative_counts, more.cumulative_counts, strict=True)
        ),
        histogram.sum_seconds + more.sum_seconds,
    )


def drive(
    plant: SyntheticWorkload,
    spec: SimWorkloadSpec,
    ticks: int,
    *,
    memo: Mapping[str, object] | None = None,
    decide: Callable[..., Decision],
    each: Callable[[Decision], None] | None = None,
) -> dict[str, object]:
    """The closed loop: tick, decide, follow. Returns the memo, for the next phase."""
    state: dict[str, object] = dict(memo or {})
    for _ in range(ticks):
        plant.tick()
        decision = decide(
            observation=plant.observe(), spec=spec, memo=state, now_seconds=plant.now_seconds
        )
        state = decision.memo
        if each is not None:
            each(decision)
        if decision.may_write and decision.target is not None:
            plant.follow(decision.target)
    return state
