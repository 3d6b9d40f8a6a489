"""What the controller does around the stages: who may write, in which order, what is kept."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from slimscale.act.outcome import fold_results
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.injection_catalog import InjectionCatalog
from slimscale.controllers.memo_keeper import MemoKeeper
from slimscale.controllers.pod_watch import PodWatches
from slimscale.controllers.queue import Key
from slimscale.controllers.simworkload import SimWorkloadController, Stages, next_look_seconds
from slimscale.domain.decision import Action, Confidence, Decision, ModelView, PodTarget
from slimscale.domain.observation import (
    ConflictKind,
    ContainerResources,
    Observation,
    OtherOwner,
    TargetObservation,
)
from slimscale.domain.plan import (
    ApplyResult,
    Operation,
    OperationResult,
    Plan,
    ResizePod,
    SetThreads,
)
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json
from tests.support.fake_kube import FakeKube
from tests.support.raw_objects import simworkload

KEY: Key = ("ns", "ants")
SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")
ANTS = f"{SIMWORKLOADS}/ants"
TARGET = TargetObservation(
    kind="Deployment", name="ants", uid="d", generation=1, selector="app=ants", desired_replicas=1,
    container="sim", template_resources=ContainerResources(),
)  # fmt: skip
SET = SetThreads("p", "u", 4, "up")
REVERT = ResizePod("p", "u", "sim", 1000, 2000, "back", reverts=True)
RESIZE = ResizePod("p", "u", "sim", 1000, 2000, "up")


class RealClock:
    def now_seconds(self) -> float:
        return 1_800_000_000.0

    def monotonic_seconds(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class World:
    """Fake stages around a real controller; `log` is the order of what happened."""

    kube: FakeKube = field(default_factory=FakeKube)
    log: list[str] = field(default_factory=list)
    observation: Observation = field(
        default_factory=lambda: Observation("ns", "ants", "u", 1, 0.0, TARGET)
    )
    may_write: bool = True
    operations: tuple[Operation, ...] = (SET,)
    lease: bool = True
    applied: list[tuple[Operation, ...]] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    catalog: InjectionCatalog = field(default_factory=InjectionCatalog)
    forgotten: list[Key] = field(default_factory=list)

    def controller(self) -> SimWorkloadController:
        return SimWorkloadController(
            self.kube,
            RealClock(),
            stages=Stages(
                observer=Eyes(self), decide=self.decide, plan=self.plan, applier=self,
                fold=fold_results, memo=self, status=self, reporter=self,
            ),
            pods=PodWatches(
                self.kube, wake=lambda _key: None, heartbeat=Heartbeat(RealClock()), rng=Random(1)
            ),
            catalog=self.catalog,
            lease_held=lambda: self.lease,
            resync_seconds=60,
            forget_key=self.forgotten.append,
        )  # fmt: skip

    def decide(self, **_: Any) -> Decision:
        self.log.append("decide")
        return Decision(
            decision_id="d", decided_at_seconds=0, action=Action.NO_CHANGE, target=PodTarget(4),
            uncapped=None, lower=None, upper=None, confidence=Confidence.LOW, reason="",
            message="", metrics_reason="", metrics_message="", may_write=self.may_write,
            model=ModelView("x"), memo={"version": 1},
        )  # fmt: skip

    def plan(self, **_: Any) -> Plan:
        return Plan(operations=self.operations, memo={"version": 1, "pods": {}})

    async def apply(
        self, plan: Plan, *, namespace: str, lease_held: Callable[[], bool]
    ) -> ApplyResult:
        self.log.append("apply")
        self.applied.append(plan.operations)
        return ApplyResult(
            tuple(OperationResult(o, ok=True, changed=True) for o in plan.operations)
        )

    async def load(self, simworkload: Json) -> tuple[Json, Json]:
        return {}, {}

    async def save(self, simworkload: Json, *, decided: Json, planned: Json | None) -> None:
        self.log.append("save")

    def keep(self, simworkload: Json, *, decided: Json) -> None:
        self.log.append("keep")

    def kept(self, simworkload: Json) -> Json | None:
        return None

    async def flush(self) -> None:
        self.log.append("flush")

    async def update(self, simworkload: Json, **_: Any) -> Json:
        self.log.append("status")
        return {}

    async def refuse(self, simworkload: Json, problems: list[str]) -> None:
        self.refused.append(problems)

    async def report(self, simworkload: Json, **_: Any) -> None:
        self.log.append("report")

    def stage_seconds(self, stage: str, seconds: float) -> None:
        assert seconds >= 0

    def forget(self, key: Key) -> None:
        self.log.append("forget")


@dataclass
class Eyes:
    """The observer's part."""

    world: World

    async def observe(self, simworkload: Json, spec: SimWorkloadSpec) -> Observation:
        self.world.log.append("observe")
        return self.world.observation

    async def glance(self, before: Observation, spec: SimWorkloadSpec) -> Observation | None:
        return None

    async def forget(self, key: Key) -> None:
        self.world.log.append("release")


async def _reconcile(world: World, **spec: Any) -> float | None:
    world.kube.add(SIMWORKLOADS, simworkload(**spec))
    return await world.controller().reconcile(KEY)


async def test_what_will_be_asked_for_is_remembered_before_it_is_asked() -> None:
    world = World()
    await _reconcile(world)
    assert world.log == ["observe", "decide", "save", "apply", "status", "report"]


async def test_without_the_lease_nothing_is_written_by_anyone() -> None:
    """A11."""
    world = World(lease=False)
    await _reconcile(world)
    assert world.log == ["observe", "decide"]
    bad = World(lease=False)
    await _reconcile(bad, threads={"min": 9, "max": 2})
    assert bad.refused == []


async def test_a_hold_only_takes_back_what_was_asked_for() -> None:
    world = World(may_write=False, operations=(SET, RESIZE, REVERT))
    await _reconcile(world)
    assert world.applied == [(REVERT,)]


async def test_a_bad_spec_is_said_once_in_words_and_not_retried() -> None:
    """A13."""
    world = World()
    wait = await _reconcile(world, threads={"min": 9, "max": 2}, cpu={"max": "many"})
    assert wait == 60
    assert world.log.count("observe") == 0
    [problems] = world.refused
    assert any("threads.min 9" in problem for problem in problems)
    assert any("many" in problem for problem in problems)


async def test_a_fault_of_the_api_server_reaches_the_queue() -> None:
    world = World()
    world.kube.before = lambda _call: Unavailable("busy")
    world.kube.add(SIMWORKLOADS, simworkload())
    with pytest.raises(Unavailable):
        await world.controller().reconcile(KEY)


@pytest.mark.parametrize("gone", ["absent", "being deleted"])
async def test_an_object_that_goes_is_forgotten_and_its_pods_are_left_alone(gone: str) -> None:
    world = World()
    controller = world.controller()
    if gone == "being deleted":
        thing = simworkload()
        thing["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
        world.kube.add(SIMWORKLOADS, thing)
    assert await controller.reconcile(KEY) is None
    assert world.forgotten == [KEY]
    assert world.kube.writes == []


async def test_new_pods_get_the_target_unless_another_owner_has_them() -> None:
    world = World()
    await _reconcile(world)
    choice = world.catalog.lookup(namespace="ns", labels={"app": "ants"})
    assert choice is not None
    assert (choice.threads, choice.set_values) == (4, True)
    rival = OtherOwner(ConflictKind.HPA_ON_CPU, "h")
    world.observation = replace(world.observation, other_owners=(rival,))
    await world.controller().reconcile(KEY)
    choice = world.catalog.lookup(namespace="ns", labels={"app": "ants"})
    assert choice is not None
    assert not choice.set_values


async def test_a_target_that_vanished_is_looked_for_again_and_no_longer_injected() -> None:
    world = World()
    await _reconcile(world)
    world.observation = replace(world.observation, target=None)
    wait = await world.controller().reconcile(KEY)
    assert wait is not None
    assert wait <= 60
    assert world.catalog.lookup(namespace="ns", labels={"app": "ants"}) is None


async def test_a_long_decision_does_not_hold_up_the_event_loop() -> None:
    """A10: a fit takes its time; probes answer meanwhile."""
    import threading

    release, turns = threading.Event(), 0
    world = World()
    decide = world.decide

    def slow(**arguments: Any) -> Decision:
        assert release.wait(10)
        return decide(**arguments)

    world.decide = slow  # type: ignore[method-assign]
    task = asyncio.create_task(_reconcile(world))
    for _ in range(50):
        await asyncio.sleep(0.001)
        turns += 1
    assert not task.done()
    release.set()
    await task
    assert turns == 50


def test_the_next_look_comes_with_the_window_or_earlier_for_a_deadline_or_a_failure() -> None:
    seen = Observation("ns", "ants", "u", 1, 0.0, TARGET)
    spec = SimWorkloadSpec.model_validate({"targetRef": {"name": "a"}})
    failed = ApplyResult((OperationResult(SET, ok=False, changed=False),))

    def wait(plan: Plan, result: ApplyResult) -> float:
        return next_look_seconds(observation=seen, plan=plan, result=result, spec=spec)

    assert wait(Plan(), ApplyResult()) == 15
    assert wait(Plan(wake_after_seconds=4.0), ApplyResult()) == 4
    assert wait(Plan(wake_after_seconds=0.0), ApplyResult()) >= 1, "never a hot loop"
    assert wait(Plan(), failed) == 5


# Memory


def _owner(kube: FakeKube) -> Json:
    return kube.peek(ANTS) or kube.add(SIMWORKLOADS, simworkload())


def _memos(kube: FakeKube) -> int:
    return len([call for call in kube.writes if call.resource == "configmaps"])


DECIDED: Json = {"version": 1, "target": {"threads": 4}, "trends": {"cpu": {"count": 1}}}


async def test_what_was_learned_survives_the_process() -> None:
    kube = FakeKube()
    first = MemoKeeper(kube)
    await first.load(_owner(kube))
    await first.save(_owner(kube), decided=DECIDED, planned={"version": 1})
    assert await MemoKeeper(kube).load(_owner(kube)) == (DECIDED, {"version": 1})


async def test_running_figures_are_kept_in_memory_and_written_only_at_the_end() -> None:
    kube, owner = FakeKube(), None
    keeper = MemoKeeper(kube)
    for count in range(20):
        owner = _owner(kube)
        await keeper.load(owner)
        running = {**DECIDED, "trends": {"cpu": {"count": count}}}
        await keeper.save(owner, decided=running, planned=None)
    assert _memos(kube) == 1
    decided, _ = await keeper.load(_owner(kube))
    assert decided["trends"]["cpu"]["count"] == 19
    await keeper.flush()
    decided, _ = await MemoKeeper(kube).load(_owner(kube))
    assert decided["trends"]["cpu"]["count"] == 19


async def test_deleting_the_config_map_forgets_at_once() -> None:
    kube = FakeKube()
    keeper = MemoKeeper(kube)
    await keeper.load(_owner(kube))
    await keeper.save(_owner(kube), decided=DECIDED, planned=None)
    await keeper.load(_owner(kube))
    path = next(call.path for call in kube.writes if call.resource == "configmaps")
    kube.remove(path)
    assert await keeper.load(_owner(kube)) == ({}, {})


async def test_without_the_right_to_write_memory_has_to_do() -> None:
    kube = FakeKube(forbidden={("patch", "configmaps"), ("get", "configmaps")})
    keeper = MemoKeeper(kube)
    await keeper.load(_owner(kube))
    await keeper.save(_owner(kube), decided=DECIDED, planned=None)
    assert (await keeper.load(_owner(kube)))[0] == DECIDED


async def test_another_object_of_the_same_name_inherits_nothing() -> None:
    kube = FakeKube()
    keeper = MemoKeeper(kube)
    await keeper.load(_owner(kube))
    await keeper.save(_owner(kube), decided=DECIDED, planned=None)
    kube.remove(ANTS)
    assert await keeper.load(_owner(kube)) == ({}, {})
    assert await MemoKeeper(kube).load(_owner(kube)) == ({}, {})
