"""Pools and demands for tests of scaling, and a cluster that obeys decisions with a delay."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from slimscale.domain.observation import Freshness
from slimscale.domain.scaling import (
    DemandObservation,
    PoolDecision,
    PoolObservation,
    PoolPod,
    PoolSpec,
    ScalingDecision,
    ScalingObservation,
    ScalingSpec,
)
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.scaling.decide import decide

MODEL = "digits-w100"
TIMES = (0.02, 0.03)
"""Seconds of a batch and of each of its rows."""

SPEC = ScalingSpec(
    pools=(PoolSpec("cpu", 1, 20, cost_per_hour=1.0),),
    target_model=MODEL,
    slo_seconds=0.5,
    down_stabilisation_seconds=180.0,
)


def make_telemetry(
    *,
    times: tuple[float, float] | None = TIMES,
    model: str = MODEL,
    queued: int = 0,
    running: int = 0,
    backlog: float = 0.0,
    utilisation: float | None = None,
    device: str | None = None,
) -> PodTelemetry:
    base, row = times if times is not None else (None, None)
    width = WidthTelemetry(model, 1, False, queued, running, base, row)
    return PodTelemetry((width,), backlog, utilisation=utilisation, device=device)


def make_pod(
    name: str,
    *,
    ready_since: float | None = 0.0,
    created: float = 0.0,
    telemetry: PodTelemetry | None = None,
    silent: bool = False,
    age: float = 1.0,
    unschedulable: bool = False,
    lost: bool = False,
    cost: int = 0,
) -> PoolPod:
    ready = ready_since is not None and not unschedulable
    told = telemetry if telemetry is not None else make_telemetry()
    return PoolPod(
        name=name,
        ready=ready,
        created_at_seconds=created,
        ready_since_seconds=ready_since,
        unschedulable=unschedulable,
        telemetry=told if ready and not silent else None,
        telemetry_age_seconds=age,
        device_lost=lost,
        deletion_cost=cost,
    )


def make_pool(name: str = "cpu", *pods: PoolPod, replicas: int | None = None) -> PoolObservation:
    return PoolObservation(name, len(pods) if replicas is None else replicas, tuple(pods))


def ready_pool(count: int, name: str = "cpu", **of_pod: object) -> PoolObservation:
    pods = [make_pod(f"{name}-{index}", **of_pod) for index in range(count)]  # type: ignore[arg-type]
    return make_pool(name, *pods)


def make_demand(
    stable: float | None = 0.0,
    panic: float | None = None,
    *,
    at: float = 1000.0,
    buffered: int = 0,
    idle: float | None = None,
    freshness: Freshness = Freshness.FRESH,
    routers: int = 1,
    answering: int | None = None,
) -> DemandObservation:
    return DemandObservation(
        sampled_at_seconds=at,
        freshness=freshness,
        stable_rows_per_second=stable,
        panic_rows_per_second=stable if panic is None else panic,
        buffered_rows=buffered,
        idle_seconds=idle,
        routers=routers,
        routers_answering=routers if answering is None else answering,
    )


def ask(
    demand: DemandObservation | None,
    *pools: PoolObservation,
    spec: ScalingSpec = SPEC,
    memo: Mapping[str, object] | None = None,
    at: float = 1000.0,
) -> ScalingDecision:
    return decide(ScalingObservation(at, demand, pools), spec, memo, at)


def watched(
    demand: DemandObservation,
    *pools: PoolObservation,
    spec: ScalingSpec = SPEC,
    until: float = 995.0,
) -> Mapping[str, object]:
    """The memo after a whole stabilisation window of this demand, with no change of late."""
    memo: Mapping[str, object] = {}
    at = until - spec.down_stabilisation_seconds - 30.0
    while at <= until:
        memo = ask(replace(demand, sampled_at_seconds=at), *pools, spec=spec, memo=memo, at=at).memo
        at += 5.0
    return {**memo, "up_at_seconds": None, "down_at_seconds": None}


def outcomes(decision: ScalingDecision) -> set[tuple[str, str]]:
    return {(step.stage, step.outcome) for step in decision.steps}


def of_pool(decision: ScalingDecision, name: str = "cpu") -> PoolDecision:
    return next(pool for pool in decision.pools if pool.name == name)


@dataclass(slots=True)
class Cluster:
    """Deployments whose pods become ready `start_seconds` after they were asked for."""

    spec: ScalingSpec
    start_seconds: float = 20.0
    replicas: dict[str, int] = field(default_factory=dict)
    times: tuple[float, float] = TIMES
    never_starts: frozenset[str] = frozenset()
    now: float = 0.0
    memo: Mapping[str, object] = field(default_factory=dict)
    history: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    _born: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pool in self.spec.pools:
            self.replicas.setdefault(pool.name, pool.min_replicas)
            self._born[pool.name] = [-1000.0] * self.replicas[pool.name]

    def pool(self, name: str) -> PoolObservation:
        pods = []
        for index, born in enumerate(self._born[name]):
            ready_at = born + self.start_seconds
            is_ready = name not in self.never_starts and self.now >= ready_at
            pods.append(
                make_pod(
                    f"{name}-{index}-{born:.0f}",
                    created=born,
                    ready_since=ready_at if is_ready else None,
                    unschedulable=name in self.never_starts,
                    telemetry=make_telemetry(times=self.times),
                )
            )
        return PoolObservation(name, self.replicas[name], tuple(pods))

    def tick(self, demand: DemandObservation | None, seconds: float = 5.0) -> ScalingDecision:
        pools = tuple(self.pool(pool.name) for pool in self.spec.pools)
        seen = ScalingObservation(self.now, demand, pools)
        decision = decide(seen, self.spec, self.memo, self.now)
        self.memo = decision.memo
        for name, count in decision.replicas().items():
            if count != self.replicas[name]:
                self.replicas[name] = count
                born = self._born[name]
                self._born[name] = (born + [self.now] * count)[: max(count, 0)]
        if not self.history or self.history[-1][1] != self.replicas:
            self.history.append((self.now, dict(self.replicas)))
        self.now += seconds
        return decision

    def run(
        self,
        demand: Callable[[float], DemandObservation | None],
        until: float,
        seconds: float = 5.0,
    ) -> ScalingDecision:
        decision = self.tick(demand(self.now), seconds)
        while self.now < until:
            decision = self.tick(demand(self.now), seconds)
        return decision

    @property
    def total(self) -> int:
        return sum(self.replicas.values())
