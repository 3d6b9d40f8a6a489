"""Children of a SlimInference against an API in memory: made, kept, taken back, never taken over."""

import pytest

from slimscale.act.permissions import allowed
from slimscale.api.sliminference import SlimInference
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json
from tests.support.inference_world import FASHION, NAMES, POOL, World
from tests.support.inferences import inference_spec

pytestmark = pytest.mark.component


async def test_one_resource_becomes_a_router_pools_and_all_that_they_need() -> None:
    world = World()
    world.create()
    await world.reconcile()
    made = {call.resource for call in world.kube.writes}
    assert made == {
        "configmaps", "serviceaccounts", "roles", "rolebindings", "services", "networkpolicies",
        "poddisruptionbudgets", "deployments", "sliminferences/status",
    }  # fmt: skip
    pool = world.kube.peek(POOL) or {}
    assert pool["spec"]["replicas"] == 1
    assert world.status()["url"] == "http://fashion.ns.svc"
    assert world.condition("Applied")[:2] == ("True", "ChildrenApplied")
    assert world.condition("Ready")[:2] == ("False", "Progressing")
    SlimInference.model_validate(world.kube.peek(FASHION))


async def test_a_second_look_writes_nothing() -> None:
    world = World()
    world.create()
    await world.reconcile()
    await world.reconcile()
    assert await world.written() == []


async def test_a_restart_writes_nothing() -> None:
    world = World()
    world.create()
    await world.reconcile()
    await world.reconcile()
    world.start()
    assert await world.written() == []


async def test_every_call_is_one_that_the_operator_may_make() -> None:
    world = World()
    world.create(pools=[{"name": "cpu"}, {"name": "old"}])
    await world.reconcile()
    world.pod("fashion-1")
    world.kube.edit(FASHION, lambda thing: thing["spec"].update(inference_spec()))
    await world.reconcile()
    assert ("delete", "deployments") in world.kube.used
    assert [use for use in world.kube.used if not allowed(*use)] == []


async def test_a_manual_edit_of_a_child_is_taken_back() -> None:
    world = World()
    world.create()
    await world.reconcile()
    world.kube.edit(
        POOL, lambda d: d["spec"]["template"]["spec"]["containers"][0].update(image="evil")
    )
    await world.reconcile()
    pod = (world.kube.peek(POOL) or {})["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "data:1"


async def test_somebody_who_keeps_changing_a_child_back_is_not_fought_for_ever() -> None:
    world = World()
    world.create()
    await world.reconcile()

    def theirs(deployment: Json) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs"

    writes = 0
    for _ in range(30):
        world.kube.edit(POOL, theirs)
        writes += len([c for c in await world.written() if c.path == POOL])
        world.clock.advance(10)
    assert writes == 5
    state, reason, message = world.condition("Applied")
    assert (state, reason) == ("False", "OtherManagerReverts")
    assert NAMES.pool("cpu") in message
    world.clock.advance(900)
    await world.reconcile()
    pod = (world.kube.peek(POOL) or {})["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "data:1"


async def test_a_deleted_child_comes_back() -> None:
    world = World()
    world.create()
    await world.reconcile()
    world.kube.remove(item("v1", "services", "fashion", "ns"))
    await world.reconcile()
    assert world.kube.peek(item("v1", "services", "fashion", "ns"))


async def test_a_new_limit_reaches_pods_by_file_and_annotation_without_a_rollout() -> None:
    world = World()
    world.create()
    await world.reconcile()
    world.pod("fashion-1")
    await world.reconcile()
    pod = item("v1", "pods", "fashion-1", "ns")
    first = (world.kube.peek(pod) or {})["metadata"]["annotations"]["slimscale.dev/config-digest"]
    template = (world.kube.peek(POOL) or {})["spec"]["template"]
    world.kube.edit(FASHION, lambda thing: thing["spec"].update(batching={"maxRows": 4}))
    calls = await world.written()
    order = [call.resource for call in calls]
    assert order.index("configmaps") < order.index("pods"), "the file is there before the word"
    second = (world.kube.peek(pod) or {})["metadata"]["annotations"]["slimscale.dev/config-digest"]
    assert second != first
    assert world.status()["configDigest"] == second
    assert (world.kube.peek(POOL) or {})["spec"]["template"] == template


async def test_a_service_of_somebody_else_is_never_taken_over() -> None:
    world = World()
    theirs = {"metadata": {"name": "fashion", "namespace": "ns"}, "spec": {"selector": {"a": "b"}}}
    world.kube.add(collection("v1", "services", "ns"), theirs)
    world.create()
    await world.reconcile()
    assert (world.kube.peek(item("v1", "services", "fashion", "ns")) or {})["spec"] == {
        "selector": {"a": "b"}
    }
    state, reason, message = world.condition("Applied")
    assert (state, reason) == ("False", "NameTaken")
    assert "services fashion" in message
    assert world.kube.peek(POOL), "the rest is made nevertheless"


async def test_a_refused_child_is_told_in_the_servers_words() -> None:
    world = World()
    world.kube.forbidden.add(("patch", "networkpolicies"))
    world.create()
    await world.reconcile()
    assert world.condition("Applied")[:2] == ("False", "NotPermitted")
