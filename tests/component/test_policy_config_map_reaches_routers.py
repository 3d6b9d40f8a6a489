"""A policy in a ConfigMap: mounted into the routers, watched by its revision, missed in words."""

from typing import Any

import pytest

from slimscale.domain.inference import PolicyReport, RouterReport
from slimscale.kubeapi.paths import collection
from tests.support.inference_world import ROUTER, World

pytestmark = pytest.mark.component

MAPS = collection("v1", "configmaps", "ns")
ROUTING = {"policy": "PPO", "learned": {"policyConfigMap": "tuned"}}


def policy(**parts: Any) -> dict[str, Any]:
    full = {"binaryData": {"policy.safetensors": "AA=="}, "data": {"policy.json": "{}"}}
    return {"metadata": {"name": "tuned", "namespace": "ns"}} | full | parts


def reported(**fields: Any) -> tuple[RouterReport, ...]:
    told = PolicyReport("PPO", "PPO", stage="Active", version="3")
    return (RouterReport("r", policy=told, **fields),)


async def test_the_routers_mount_it_and_start_without_it() -> None:
    world = World()
    world.create(routing=ROUTING)
    await world.reconcile()
    template = (world.kube.peek(ROUTER) or {})["spec"]["template"]["spec"]
    [volume] = [v for v in template["volumes"] if "projected" in v]
    [source] = [
        s["configMap"] for s in volume["projected"]["sources"]
        if s.get("configMap", {}).get("name") == "tuned"
    ]  # fmt: skip
    assert source["optional"] is True
    assert [item["path"] for item in source["items"]] == [
        "policy/policy.safetensors", "policy/policy.json",
    ]  # fmt: skip


async def test_a_missing_one_is_told_and_keeps_nobody_from_being_served() -> None:
    world = World()
    world.create(routing=ROUTING)
    world.routers.reports = reported()
    await world.reconcile()
    status, reason, message = world.condition("PolicyInUse")
    assert (status, reason) == ("False", "PolicyNotFound")
    assert "there is no ConfigMap tuned" in message
    assert world.condition("Ready")[1] == "Progressing"  # for the pods alone
    world.kube.add(MAPS, policy(data={}))
    await world.reconcile()
    assert "has no policy.json in data" in world.condition("PolicyInUse")[2]


async def test_new_content_makes_the_kubelet_look_and_rolls_nothing() -> None:
    world = World()
    world.create(routing=ROUTING)
    world.kube.add(MAPS, policy())
    world.routers.reports = reported()
    await world.reconcile()
    assert world.condition("PolicyInUse") == ("True", "InUse", "PPO 3 on 1 router")
    assert world.status()["routing"]["version"] == "3"
    template = (world.kube.peek(ROUTER) or {})["spec"]["template"]
    digest = world.status()["configDigest"]
    assert not await world.written()
    world.kube.add(MAPS, policy(binaryData={"policy.safetensors": "AQ=="}))
    await world.reconcile()
    assert world.status()["configDigest"] != digest
    assert (world.kube.peek(ROUTER) or {})["spec"]["template"] == template
