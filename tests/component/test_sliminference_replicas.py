"""Replicas of a SlimInference against an API in memory: who writes them, from which figures."""

from dataclasses import replace

import pytest

from slimscale.api.sliminference import SlimInference
from slimscale.domain.inference import RouterReport, TelemetryOfPod
from slimscale.domain.serving import PodTelemetry
from slimscale.kubeapi.ports import Json
from tests.support.inference_world import FASHION, PODS, POOL, ROUTER, World, busy

pytestmark = pytest.mark.component


async def test_handing_the_replicas_over_drops_no_pod() -> None:
    """E6: SlimScale, then External, then an HPA that owns the field."""
    world = World()
    world.create()
    await world.reconcile()
    world.kube.edit(POOL, lambda d: d["spec"].update(replicas=4))

    world.kube.edit(FASHION, lambda t: t["spec"].update(scaling={"owner": "External"}))
    await world.reconcile()
    assert (world.kube.peek(POOL) or {})["spec"]["replicas"] == 4

    def hpa(deployment: Json) -> None:
        deployment["spec"]["replicas"] = 7
        fields: Json = {"f:spec": {"f:replicas": {}}}
        manager = {"manager": "kube-controller-manager", "fieldsV1": fields}
        deployment["metadata"]["managedFields"] = [manager]

    world.kube.edit(POOL, hpa)
    world.kube.edit(FASHION, lambda t: t["spec"].update(imagePullSecrets=[{"name": "reg"}]))
    world.start()
    calls = [c for c in await world.written() if c.path == POOL]
    assert calls
    assert all("replicas" not in (call.body or {})["spec"] for call in calls)
    assert (world.kube.peek(POOL) or {})["spec"]["replicas"] == 7


async def test_missing_figures_scale_nothing_and_say_so() -> None:
    world = World()
    world.create(pools=[{"name": "cpu", "minReplicas": 1, "maxReplicas": 9}])
    await world.reconcile()
    assert world.condition("MetricsAvailable")[:2] == ("Unknown", "WarmingUp")
    world.kube.edit(ROUTER, lambda d: d.update(status={"readyReplicas": 2}))
    world.kube.edit(POOL, lambda d: d["spec"].update(replicas=5))
    for _ in range(5):
        world.clock.advance(600)
        await world.reconcile()
    assert (world.kube.peek(POOL) or {})["spec"]["replicas"] == 5
    assert world.condition("MetricsAvailable")[:2] == ("False", "MetricsMissing")


async def test_an_empty_service_is_looked_at_again_once_a_request_waits() -> None:
    world = World()
    world.create(pools=[{"name": "cpu", "minReplicas": 0, "maxReplicas": 2}])
    await world.reconcile()
    router = (world.kube.peek(ROUTER) or {})["spec"]["template"]["metadata"]
    ready = [{"type": "Ready", "status": "True"}]
    world.kube.add(
        PODS,
        {
            "metadata": {"name": "router-1", "namespace": "ns"} | router,
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": ready},
        },
    )
    await world.reconcile()
    assert world.part is not None
    await world.part.pulse.beat()
    assert world.part.queue.depth == 0
    world.routers.reports = (RouterReport("router-1", buffered_rows=1),)
    await world.part.pulse.beat()
    assert world.part.queue.depth == 1
    world.clock.advance(2)
    await world.reconcile()
    assert (world.kube.peek(POOL) or {})["spec"]["replicas"] == 1


async def test_a_pod_whose_gpu_is_lost_is_named_and_replaced() -> None:
    """F4."""
    world = World()
    world.create()
    await world.reconcile()
    world.pod("fashion-1", ready=False)
    lost = PodTelemetry((), 0.0, device="GPU-a", device_lost=True)
    report = replace(busy(1.0), pods=(TelemetryOfPod("fashion-1", lost, 0.1),))
    world.routers.reports = (report,)
    writes = await world.written()
    assert [c.path for c in writes if c.verb == "delete"] == [f"{PODS}/fashion-1"]
    status, reason, message = world.condition("PoolsAvailable")
    assert (status, reason) == ("False", "DeviceLost")
    assert "fashion-1 its GPU GPU-a" in message
    [pool] = world.status()["pools"]
    assert pool["reason"] == "DeviceLost"


async def test_load_adds_pods_and_the_status_says_why() -> None:
    world = World()
    world.create()
    await world.reconcile()
    world.pod("fashion-1")
    world.routers.reports = (busy(2000.0),)
    world.clock.advance(60)
    await world.reconcile()
    replicas = (world.kube.peek(POOL) or {})["spec"]["replicas"]
    assert replicas > 1
    [decision] = world.status()["decisions"]
    assert (decision["fromReplicas"], decision["toReplicas"]) == (1, replicas)
    assert decision["reason"]
    [pool] = world.status()["pools"]
    assert pool["warmWidths"] == [{"model": "fashion-w100", "pods": 1}]
    assert world.status()["slo"]["attainment"] == 0.97
    assert world.status()["slo"]["latencyMilliseconds"] == 210.0
    shares = {width["model"]: width["share"] for width in world.status()["widths"]}
    assert shares == {"fashion-w025": 0.0, "fashion-w100": 1.0}
    SlimInference.model_validate(world.kube.peek(FASHION))
    value = world.registry.get_sample_value(
        "slimscale_pool_desired_replicas", {"namespace": "ns", "name": "fashion", "pool": "cpu"}
    )
    assert value == replicas
