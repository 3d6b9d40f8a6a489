"""One look at everything, in virtual time: what is missing is said, never guessed."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from slimscale.act.permissions import allowed
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import ConflictKind, Freshness, Observation, OtherOwner
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json
from slimscale.observe.nodes import NodeReader
from slimscale.observe.observer import Observer
from slimscale.observe.scrape import SampleOutcome, ScrapeTarget
from tests.support.fake_kube import Call, FakeKube
from tests.support.observations import make_sample
from tests.support.raw_objects import deployment, pod, simworkload
from tests.support.virtual_time import LoopClock, run_virtual

DEPLOYMENTS = collection("apps/v1", "deployments", "ns")
PODS = collection("v1", "pods", "ns")
SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")


@dataclass
class Source:
    """Serves a sample of each pod, unless it is down."""

    clock: LoopClock
    down: bool = False
    fetched: list[set[str]] = field(default_factory=list)

    async def fetch(self, targets: Iterable[ScrapeTarget]) -> Sequence[SampleOutcome]:
        wanted = list(targets)
        self.fetched.append({target.pod for target in wanted})
        if self.down:
            raise Unavailable("the source gives no answer in time")
        return [SampleOutcome(t.pod_uid, sample=self._sample(t)) for t in wanted]

    def _sample(self, target: ScrapeTarget) -> ContractSample:
        return make_sample(self.clock.now_seconds(), tasks=10.0, pod_uid=target.pod_uid, threads=3)


@dataclass
class World:
    kube: FakeKube
    source: Source
    observer: Observer
    raw: Json

    async def look(self) -> Observation:
        spec = SimWorkloadSpec.model_validate(self.raw["spec"])
        return await self.observer.observe(self.raw, spec)


def _world(**spec: Any) -> World:
    kube, clock = FakeKube(), LoopClock()
    kube.add(DEPLOYMENTS, deployment())
    kube.add(PODS, pod("ants-7f-a"))
    kube.add(PODS, pod("ants-7f-b", ip="10.0.0.2"))
    node = {"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "8"}}}
    kube.add(collection("v1", "nodes"), node)
    raw = kube.add(SIMWORKLOADS, simworkload(**spec))
    source = Source(clock)
    return World(kube, source, Observer(kube, clock, pods_source=source), raw)


def _run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


def test_a_settled_workload_is_seen_whole_with_the_rights_of_the_table() -> None:
    async def main() -> None:
        world = _world()
        seen = await world.look()
        await world.observer.close()
        assert seen.target is not None
        assert [p.name for p in seen.pods] == ["ants-7f-a", "ants-7f-b"]
        assert [p.acknowledged_threads for p in seen.pods] == [3, 3]
        assert {p.freshness for p in seen.pods} == {Freshness.FRESH}
        assert seen.nodes["node-1"].free_millicores == 8000 - 2 * 1000
        assert world.kube.writes == []
        assert all(allowed(verb, resource) for verb, resource in world.kube.used)

    _run(main())


def test_pods_are_sampled_each_interval_and_new_ones_at_once() -> None:
    async def main() -> None:
        world = _world(metrics={"intervalSeconds": 10}, tuning={"windowSeconds": 20})
        await world.look()
        await asyncio.sleep(35)
        assert len(world.source.fetched) == 4
        world.kube.add(PODS, pod("ants-7f-c", ip="10.0.0.3"))
        world.kube.remove(f"{PODS}/ants-7f-a")
        await world.look()
        await asyncio.sleep(0.1)
        assert world.source.fetched[-1] == {"ants-7f-b", "ants-7f-c"}
        seen = await world.look()
        await world.observer.close()
        assert [len(p.samples) for p in seen.pods] == [5, 1]

    _run(main())


def test_a_glance_takes_new_samples_of_the_same_pods_and_asks_the_api_server_nothing() -> None:
    async def main() -> None:
        world = _world()
        before = await world.look()
        spec = SimWorkloadSpec.model_validate(world.raw["spec"])
        calls = len(world.kube.calls)
        await asyncio.sleep(2.0)
        seen = await world.observer.glance(before, spec)
        assert seen is not None
        assert [p.name for p in seen.pods] == ["ants-7f-a", "ants-7f-b"]
        assert [len(p.samples) for p in seen.pods] == [2, 2]
        await world.observer.glance(before, spec)
        assert len(world.source.fetched) == 2, "the same moment is not sampled twice"
        await asyncio.sleep(4.9)
        assert len(world.source.fetched) == 2, "a glance's samples are a round like any other"
        assert len(world.kube.calls) == calls
        await world.observer.forget(("ns", "ants"))
        assert await world.observer.glance(before, spec) is None
        await world.observer.close()

    _run(main())


def test_without_quick_looks_pods_are_sampled_at_their_interval_alone() -> None:
    async def main() -> None:
        world = _world(metrics={"quickIntervalSeconds": 0})
        before = await world.look()
        spec = SimWorkloadSpec.model_validate(world.raw["spec"])
        for _ in range(4):
            await asyncio.sleep(1.0)
            await world.observer.glance(before, spec)
        assert len(world.source.fetched) == 1
        await world.observer.close()

    _run(main())


def test_a_source_that_fails_makes_samples_stale_and_says_why() -> None:
    async def main() -> None:
        world = _world()
        await world.look()
        world.source.down = True
        await asyncio.sleep(45)
        fresh = await world.look()
        assert fresh.metrics_problem == "the source gives no answer in time"
        assert {p.freshness for p in fresh.pods} == {Freshness.FRESH}
        await asyncio.sleep(30)
        stale = await world.look()
        await world.observer.close()
        assert {p.freshness for p in stale.pods} <= {Freshness.STALE, Freshness.MISSING}

    _run(main())


def test_prometheus_without_an_address_is_a_problem_that_names_the_remedy() -> None:
    async def main() -> None:
        world = _world(metrics={"source": "Prometheus"})
        seen = await world.look()
        assert "prometheus.url" in seen.metrics_problem
        assert world.source.fetched == []

    _run(main())


def test_a_target_that_is_missing_or_not_permitted_is_told_apart() -> None:
    async def main() -> None:
        world = _world(targetRef={"name": "gone"})
        seen = await world.look()
        assert (seen.target, seen.target_problem) == (None, "TargetNotFound")
        assert "spec.targetRef" in seen.target_message
        world = _world()
        world.kube.forbidden.add(("list", "pods"))
        assert (await world.look()).target_problem == "NotPermitted"

    _run(main())


def test_what_may_not_be_read_is_unknown_and_stops_nothing() -> None:
    """A15: installed for a namespace, the operator reads neither nodes nor other pods."""

    async def main() -> None:
        world = _world()
        for resource in (
            "limitranges",
            "resourcequotas",
            "horizontalpodautoscalers",
            "verticalpodautoscalers",
        ):
            world.kube.forbidden.add(("list", resource))
        world.kube.forbidden.add(("get", "nodes"))
        seen = await world.look()
        for _ in range(20):
            seen = await world.look()
            await asyncio.sleep(20)
        await world.observer.close()
        assert seen.target is not None
        assert seen.nodes == {}
        assert seen.quota_free_limit_millicores is None
        asked = [call for call in world.kube.calls if call.resource == "nodes"]
        assert len(asked) == 1, "a refusal is not asked for again each time"

    _run(main())


def test_an_hpa_and_an_elder_simworkload_are_seen_by_kind_and_name() -> None:
    async def main() -> None:
        world = _world()
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ants"}
        world.kube.add(
            collection("autoscaling/v2", "horizontalpodautoscalers", "ns"),
            {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": reference}},
        )
        elder = simworkload("elder")
        elder["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        world.kube.add(SIMWORKLOADS, elder)
        seen = await world.look()
        await world.observer.close()
        assert seen.other_owners == (
            OtherOwner(ConflictKind.HPA_ON_CPU, "h"),
            OtherOwner(ConflictKind.SECOND_SIMWORKLOAD, "elder"),
        )

    _run(main())


def test_another_owner_does_not_vanish_because_a_list_gets_no_answer() -> None:
    async def main() -> None:
        world = _world()
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ants"}
        hpa = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": reference}}
        world.kube.add(collection("autoscaling/v2", "horizontalpodautoscalers", "ns"), hpa)

        def no_answer(call: Call) -> Exception | None:
            return Unavailable("busy") if "autoscalers" in call.resource else None

        world.kube.before = no_answer
        with pytest.raises(Unavailable):
            await world.look()
        world.kube.before = None
        assert (await world.look()).other_owners
        world.kube.before = no_answer
        assert (await world.look()).other_owners
        await world.observer.close()

    _run(main())


def test_sampling_ends_with_its_object() -> None:
    async def main() -> None:
        world = _world()
        await world.look()
        await world.observer.forget(("ns", "ants"))
        rounds = len(world.source.fetched)
        await asyncio.sleep(60)
        assert len(world.source.fetched) == rounds

    _run(main())


def test_an_object_made_anew_under_its_name_starts_without_old_samples() -> None:
    async def main() -> None:
        world = _world()
        await world.look()
        await asyncio.sleep(30)
        world.raw["metadata"]["uid"] = "another"
        seen = await world.look()
        await world.observer.close()
        assert [len(p.samples) for p in seen.pods] == [1, 1]

    _run(main())


def test_room_of_a_node_is_read_seldom_and_finished_pods_take_none() -> None:
    async def main() -> None:
        world, clock = _world(), LoopClock()
        done = pod("done")
        done["status"]["phase"] = "Succeeded"
        world.kube.add(PODS, done)
        reader = NodeReader(world.kube, clock)
        rooms = await reader.read([])
        for _ in range(5):
            rooms = await reader.read(["node-1", "node-1", "", "gone"])
            await asyncio.sleep(1)
        assert rooms["node-1"].free_millicores == 6000
        assert "gone" not in rooms
        asked = [c for c in world.kube.calls if c.path.endswith("nodes/node-1")]
        assert len(asked) == 1

    _run(main())
