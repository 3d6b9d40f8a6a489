"""Between two reconciles the pods alone are asked, and the API server hears nothing of it."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from slimscale.act.outcome import fold_results
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.injection_catalog import InjectionCatalog
from slimscale.controllers.memo_keeper import MemoKeeper
from slimscale.controllers.pod_watch import PodWatches
from slimscale.controllers.queue import Key
from slimscale.controllers.simworkload import SimWorkloadController, Stages
from slimscale.domain.decision import Action, Confidence, Decision, ModelView, PodTarget
from slimscale.domain.observation import ContainerResources, Observation, TargetObservation
from slimscale.domain.plan import ApplyResult, Plan
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json
from tests.support.fake_kube import Call, FakeKube
from tests.support.observations import make_pod, make_sample
from tests.support.raw_objects import simworkload

KEY: Key = ("ns", "ants")
SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")
SEEN = Observation(
    "ns", "ants", "u", 1, 0.0,
    TargetObservation(
        kind="Deployment", name="ants", uid="d", generation=1, selector="app=ants",
        desired_replicas=1, container="sim", template_resources=ContainerResources(),
    ),
    pods=(make_pod(samples=(make_sample(0.0, tasks=1.0, threads=4),)),),
)  # fmt: skip


WATCHING = {("list", "pods"), ("watch", "pods")}


class SteppedClock:
    seconds = 0.0

    def now_seconds(self) -> float:
        return 1_800_000_000.0 + self.seconds

    def monotonic_seconds(self) -> float:
        return self.seconds


@dataclass
class World:
    """A real controller and memory around fake stages; nothing happens but time."""

    kube: FakeKube = field(default_factory=FakeKube)
    clock: SteppedClock = field(default_factory=SteppedClock)
    log: list[str] = field(default_factory=list)
    woken: bool = True
    lease: bool = True
    threads: int = 4
    glanced: Observation | None = SEEN
    learned: Json = field(default_factory=lambda: {"version": 1, "trends": {"looks": 0}})

    def __post_init__(self) -> None:
        self.kube.add(SIMWORKLOADS, simworkload())
        stages = Stages(
            observer=Eyes(self), decide=self.decide, plan=lambda **_: Plan(memo={"version": 1}),
            applier=self, fold=fold_results, memo=MemoKeeper(self.kube), status=self,
            reporter=self,
        )  # fmt: skip
        self.controller = SimWorkloadController(
            self.kube, self.clock, stages=stages,
            pods=PodWatches(
                self.kube, wake=lambda _key: None, heartbeat=Heartbeat(self.clock), rng=Random(1)
            ),
            catalog=InjectionCatalog(), lease_held=lambda: self.lease, resync_seconds=60,
            was_woken=lambda _key: self.woken,
        )  # fmt: skip

    async def look(self, *, after_seconds: float = 0.0, woken: bool = False) -> float | None:
        self.clock.seconds += after_seconds
        self.woken = woken
        self.log.clear()
        self.kube.calls.clear()
        return await self.controller.reconcile(KEY)

    def asked(self) -> list[Call]:
        """Of the API server, but for the watch of the pods, which waits for events."""
        return [c for c in self.kube.calls if (c.verb, c.resource) not in WATCHING]

    def decide(self, *, memo: Json, **_: Any) -> Decision:
        looks = memo.get("trends", {}).get("looks", 0) + 1
        self.learned = {"version": 1, "target": {"threads": 4}, "trends": {"looks": looks}}
        return Decision(
            decision_id="d", decided_at_seconds=0, action=Action.NO_CHANGE, target=PodTarget(self.threads),
            uncapped=None, lower=None, upper=None, confidence=Confidence.LOW, reason="",
            message="", metrics_reason="", metrics_message="", may_write=True,
            model=ModelView("x"), memo=self.learned, next_look_seconds=2.0,
        )  # fmt: skip

    async def apply(self, plan: Plan, **_: Any) -> ApplyResult:
        return ApplyResult()

    async def update(self, simworkload: Json, **_: Any) -> Json:
        self.log.append("status")
        return {}

    async def refuse(self, simworkload: Json, problems: list[str]) -> None:
        raise AssertionError(problems)

    async def report(self, simworkload: Json, **_: Any) -> None:
        self.log.append("report")

    def stage_seconds(self, stage: str, seconds: float) -> None:
        pass

    def forget(self, key: Key) -> None:
        self.log.append("forget")


@dataclass
class Eyes:
    """The observer's part."""

    world: World

    async def observe(self, simworkload: Json, spec: SimWorkloadSpec) -> Observation:
        self.world.log.append("observe")
        return SEEN

    async def glance(self, before: Observation, spec: SimWorkloadSpec) -> Observation | None:
        self.world.log.append("glance")
        return self.world.glanced

    async def forget(self, key: Key) -> None:
        self.world.log.append("forget")


async def test_a_look_that_is_merely_due_asks_the_api_server_for_nothing() -> None:
    world = World()
    assert await world.look(woken=True) == 2.0
    for _ in range(5):
        assert await world.look(after_seconds=2.0) == 2.0
        assert world.log == ["glance"]
        assert world.asked() == []
    assert world.learned["trends"]["looks"] == 6, "each look goes on from the one before"


async def test_after_a_window_everything_is_read_anew() -> None:
    world = World()
    await world.look(woken=True)
    assert await world.look(after_seconds=14.5) == 1.0, "in time for the next reconcile"
    await world.look(after_seconds=1.0)
    assert world.log == ["observe", "status", "report"]


async def test_a_look_that_would_change_the_target_becomes_a_reconcile() -> None:
    world = World()
    await world.look(woken=True)
    world.threads = 8
    await world.look(after_seconds=2.0)
    assert world.log == ["glance", "observe", "status", "report"]
    assert world.learned["trends"]["looks"] == 2, "what the glance learned is not learned twice"


async def test_what_happens_to_the_object_or_its_pods_is_never_answered_from_memory() -> None:
    world = World()
    await world.look(woken=True)
    await world.look(after_seconds=2.0, woken=True)
    assert world.log == ["observe", "status", "report"]


async def test_a_thread_count_that_pods_acknowledge_is_reported_at_once() -> None:
    world = World()
    await world.look(woken=True)
    world.glanced = replace(
        SEEN, pods=(make_pod(samples=(make_sample(2.0, tasks=9.0, threads=8),)),)
    )
    await world.look(after_seconds=2.0)
    assert world.log == ["glance", "observe", "status", "report"]


async def test_pods_that_cannot_be_asked_are_looked_at_properly() -> None:
    world = World()
    await world.look(woken=True)
    world.glanced = None
    await world.look(after_seconds=2.0)
    assert world.log == ["glance", "observe", "status", "report"]


async def test_without_the_lease_nothing_is_decided_from_memory() -> None:
    world = World()
    await world.look(woken=True)
    world.lease = False
    await world.look(after_seconds=2.0)
    assert world.log == ["observe"]


async def test_a_reconcile_that_failed_is_not_followed_by_looks_at_what_it_saw() -> None:
    world = World()
    await world.look(woken=True)
    world.kube.before = lambda _call: SlimError("no answer")
    with_error = asyncio.create_task(world.look(after_seconds=2.0, woken=True))
    assert isinstance((await asyncio.gather(with_error, return_exceptions=True))[0], SlimError)
    world.kube.before = None
    await world.look(after_seconds=2.0)
    assert world.log == ["observe", "status", "report"]
