"""The controller of SlimInferences against an API in memory: what is made, kept and told."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slimscale.act.inference_names import InferenceNames
from slimscale.act.metrics import OperatorMetrics
from slimscale.act.permissions import allowed
from slimscale.api.sliminference import SlimInference, SlimInferenceSpec
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.inference_context import InferencePart, build_inference
from slimscale.domain.inference import RouterReport, TelemetryOfPod
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json
from slimscale.settings import OperatorSettings
from tests.support.fake_kube import Call, FakeKube
from tests.support.inferences import inference_spec, sliminference

pytestmark = pytest.mark.component

KIND = collection("slimscale.dev/v1alpha1", "sliminferences", "ns")
FASHION = item("slimscale.dev/v1alpha1", "sliminferences", "fashion", "ns")
NAMES = InferenceNames("fashion")
POOL = item("apps/v1", "deployments", NAMES.pool("cpu"), "ns")
ROUTER = item("apps/v1", "deployments", NAMES.router, "ns")
PODS = collection("v1", "pods", "ns")
KEY = ("ns", "fashion")


@dataclass
class FakeClock:
    seconds: float = 1_800_000_000.0

    def now_seconds(self) -> float:
        return self.seconds

    def monotonic_seconds(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Routers:
    """What routers would say."""

    reports: tuple[RouterReport, ...] = ()

    async def fetch(
        self, routers: Iterable[Json], spec: SlimInferenceSpec
    ) -> tuple[RouterReport, ...]:
        return self.reports


@dataclass
class World:
    kube: FakeKube = field(default_factory=FakeKube)
    clock: FakeClock = field(default_factory=FakeClock)
    routers: Routers = field(default_factory=Routers)
    lease: bool = True
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    part: InferencePart | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new process: nothing in memory."""
        self.registry = CollectorRegistry()
        self.part = build_inference(
            self.kube,
            self.clock,
            OperatorSettings(dataplane_image="data:1", modelserver_image="model:1"),
            heartbeat=Heartbeat(self.clock),
            registry=self.registry,
            metrics=OperatorMetrics(self.registry),
            lease_held=lambda: self.lease,
            rng=Random(1),
            closers=[],
            routers=self.routers,
        )

    def create(self, **fields: Any) -> None:
        self.kube.add(KIND, sliminference(**fields))

    async def reconcile(self) -> float | None:
        assert self.part is not None
        return await self.part.controller.reconcile(KEY)

    async def written(self) -> list[Call]:
        """What one more look writes, children and status."""
        before = len(self.kube.writes)
        await self.reconcile()
        return self.kube.writes[before:]

    def status(self) -> Json:
        return (self.kube.peek(FASHION) or {}).get("status") or {}

    def condition(self, kind: str) -> tuple[str, str, str]:
        [found] = [c for c in self.status()["conditions"] if c["type"] == kind]
        return found["status"], found["reason"], found["message"]

    def pod(self, name: str, *, ready: bool = True, **status: Any) -> None:
        template = (self.kube.peek(POOL) or {})["spec"]["template"]["metadata"]
        state = "True" if ready else "False"
        conditions = [
            {"type": "Ready", "status": state, "lastTransitionTime": "2026-01-01T00:00:10Z"}
        ]
        self.kube.add(
            PODS,
            {
                "metadata": {
                    "name": name, "namespace": "ns", "labels": template["labels"],
                    "annotations": dict(template["annotations"]),
                },
                "status": {"phase": "Running", "conditions": conditions} | status,
            },
        )  # fmt: skip


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


def busy(rows: float) -> RouterReport:
    width = WidthTelemetry("fashion-w100", 1, False, 0, 0, base_seconds=0.01, row_seconds=0.005)
    telemetry = PodTelemetry((width,), 0.0, utilisation=0.5, memory_free_bytes=10**9)
    return RouterReport(
        router="r", pods=(TelemetryOfPod("fashion-1", telemetry, 0.1),),
        stable_rows_per_second=rows, panic_rows_per_second=rows, requests_per_second=rows,
        rejected_rows_per_second=0.0, idle_seconds=0.0, slo_attainment=0.97,
        latency_seconds=0.2104,
        width_requests_per_second={"fashion-w100": rows},
    )  # fmt: skip


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


async def test_without_the_lease_nothing_is_written() -> None:
    """A12: the lease is asked before the plan and before each write."""
    world = World(lease=False)
    world.create()
    await world.reconcile()
    assert world.kube.writes == []
    world.lease = True

    def lose(call: Call) -> Exception | None:
        if call.verb == "patch":
            world.lease = False
        return None

    world.kube.before = lose
    await world.reconcile()
    assert len(world.kube.writes) == 1


async def test_an_outage_in_the_middle_is_made_good_by_the_next_look() -> None:
    world = World()
    world.create()
    calls = iter(range(1000))

    def fail_some(call: Call) -> Exception | None:
        return Unavailable("503") if call.verb == "patch" and next(calls) in (2, 3, 5) else None

    world.kube.before = fail_some
    assert await world.reconcile() == 5.0
    assert world.condition("Applied")[:2] == ("False", "ChildNotWritten")
    await world.reconcile()
    assert world.condition("Applied")[:2] == ("True", "ChildrenApplied")


async def test_deletion_leaves_no_finalizer_and_no_work() -> None:
    world = World()
    world.create()
    await world.reconcile()
    assert "finalizers" not in (world.kube.peek(FASHION) or {})["metadata"]
    world.kube.remove(FASHION)
    assert await world.reconcile() is None
    sample = world.registry.get_sample_value(
        "slimscale_sliminference_ready", {"namespace": "ns", "name": "fashion"}
    )
    assert sample is None


async def test_children_and_pods_wake_their_owner() -> None:
    world = World()
    world.create()
    await world.reconcile()
    assert world.part is not None
    woken: list[tuple[str, str]] = []
    world.part.watches._wake = woken.append
    task = asyncio.create_task(world.part.watches.run())
    try:
        await _until(lambda: KEY in woken)
        await _until(lambda: len({c.path for c in world.kube.calls if c.verb == "watch"}) >= 4)
        woken.clear()
        world.pod("fashion-1")
        await _until(lambda: KEY in woken)
        woken.clear()
        world.kube.edit(POOL, lambda d: d["spec"].update(replicas=3))
        await _until(lambda: KEY in woken)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110 - the condition is on the fake's own records
            await asyncio.sleep(0)
