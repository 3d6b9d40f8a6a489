"""What the status of a SlimInference says of a bad spec, of pods that cannot start, and how often."""

from dataclasses import replace

import pytest

from slimscale.kubeapi.ports import Json
from tests.support.inference_world import FASHION, POOL, ROUTER, World, busy

pytestmark = pytest.mark.component


async def test_figures_alone_are_not_written_with_every_look() -> None:
    world = World()
    world.create(pools=[{"name": "cpu", "minReplicas": 1, "maxReplicas": 1}])
    await world.reconcile()
    world.pod("fashion-1")
    world.routers.reports = (busy(10.0),)
    await world.reconcile()
    await world.reconcile()
    world.routers.reports = (replace(busy(10.0), slo_attainment=0.5),)
    assert [c for c in await world.written() if c.resource.endswith("/status")] == []
    world.clock.advance(31)
    assert [c for c in await world.written() if c.resource.endswith("/status")]


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            {"containerStatuses": [{"name": "batcher", "state": {"waiting": {
                "reason": "ImagePullBackOff", "message": "Back-off pulling image data:1"}}}]},
            "ImagePullFailed", "data:1",
        ),
        (
            {"initContainerStatuses": [{"name": "model-server", "state": {"waiting": {
                "reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}]},
            "CrashLoop", "model-server ended with 3",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/3 nodes: insufficient nvidia.com/gpu"}]},
            "Unschedulable", "insufficient nvidia.com/gpu",
        ),
    ],
)  # fmt: skip
async def test_pods_that_cannot_start_appear_in_the_conditions(
    status: Json, reason: str, words: str
) -> None:
    """G8, E10: what the kubelet and the scheduler say is where the user looks."""
    world = World()
    world.create()
    await world.reconcile()
    world.kube.edit(ROUTER, lambda d: d.update(status={"readyReplicas": 2}))
    world.pod("fashion-1", ready=False, **status)
    await world.reconcile()
    for kind in ("PoolsAvailable", "Ready"):
        state, why, message = world.condition(kind)
        assert (state, why) == ("False", reason)
        assert words in message
    assert world.status()["pools"][0]["reason"] == reason


async def test_a_bad_spec_gets_a_condition_and_what_serves_goes_on() -> None:
    world = World()
    world.create()
    await world.reconcile()
    before = world.kube.peek(POOL)
    bad = [{"name": "cpu", "minReplicas": 9, "maxReplicas": 2}]
    world.kube.edit(FASHION, lambda thing: thing["spec"].update(pools=bad))
    await world.reconcile()
    state, reason, message = world.condition("SpecValid")
    assert (state, reason) == ("False", "Invalid")
    assert "spec.pools[0]: minReplicas 9 is above maxReplicas 2; lower minReplicas" in message
    assert world.kube.peek(POOL) == before
    assert await world.written() == []
