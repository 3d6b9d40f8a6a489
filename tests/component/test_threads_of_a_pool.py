"""A SimWorkload on a pool of a SlimInference: each does its part, and neither undoes the other's."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slimscale.act.apply import Applier
from slimscale.act.inference_names import InferenceNames
from slimscale.act.metrics import OperatorMetrics
from slimscale.act.plan import plan
from slimscale.api.names import ANNOTATION_THREADS
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.inference_context import build_inference
from slimscale.domain.contract import ContractSample
from slimscale.domain.decision import PodTarget
from slimscale.domain.inference import RouterReport
from slimscale.domain.plan import Plan
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json
from slimscale.observe.observer import Observer
from slimscale.observe.scrape import SampleOutcome, ScrapeTarget
from slimscale.settings import OperatorSettings
from tests.support.decisions import make_decision
from tests.support.fake_kube import Call, FakeKube
from tests.support.inferences import sliminference

pytestmark = pytest.mark.component

NAMES = InferenceNames("fashion")
POOL = item("apps/v1", "deployments", NAMES.pool("cpu"), "ns")
NODES = collection("v1", "nodes")
PODS = collection("v1", "pods", "ns")
POD = item("v1", "pods", "p1", "ns")
SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")
KEY = ("ns", "fashion")


@dataclass
class FakeClock:
    seconds: float = 1_800_000_000.0

    def now_seconds(self) -> float:
        return self.seconds

    def monotonic_seconds(self) -> float:
        return self.seconds


@dataclass
class PodPages:
    """What the pods' metrics say of their threads."""

    threads: int = 1
    asked: list[ScrapeTarget] = field(default_factory=list)

    async def fetch(self, targets: Iterable[ScrapeTarget]) -> Sequence[SampleOutcome]:
        self.asked = list(targets)
        return [SampleOutcome(t.pod_uid, self._sample(t.pod_uid)) for t in self.asked]

    def _sample(self, uid: str) -> ContractSample:
        unknown = dict.fromkeys(
            name
            for name in ContractSample.__dataclass_fields__
            if name not in ("pod_uid", "sampled_at_seconds", "process_start_seconds")
        )
        known: dict[str, Any] = {**unknown, "threads_applied": self.threads, "tasks_total": 10.0}
        return ContractSample(uid, 1_800_000_000.0, 1.0, **known)


class NoRouters:
    async def fetch(
        self, routers: Iterable[Json], spec: SlimInferenceSpec
    ) -> tuple[RouterReport, ...]:
        return ()


class World:
    """Both controllers' parts over one API; the kubelet applies what is asked for at once."""

    def __init__(self, mode: str = "InPlace") -> None:
        self.kube = FakeKube()
        self.clock = FakeClock()
        self.pages = PodPages()
        self.observer = Observer(self.kube, self.clock, pods_source=self.pages)
        self.memo: dict[str, object] = {}
        self.raw: Json = {
            "metadata": {"name": "fashion-threads", "namespace": "ns", "uid": "w"},
            "spec": {
                "targetRef": {"kind": "Deployment", "name": NAMES.pool("cpu")},
                "containerName": "model-server",
                "updatePolicy": {"mode": mode},
            },
        }
        self.spec = SimWorkloadSpec.model_validate(self.raw["spec"])
        self.kube.add(SIMWORKLOADS, self.raw)
        registry = CollectorRegistry()
        self.inference = build_inference(
            self.kube, self.clock, OperatorSettings(), heartbeat=Heartbeat(self.clock),
            registry=registry, metrics=OperatorMetrics(registry), lease_held=lambda: True,
            rng=Random(1), closers=[], routers=NoRouters(),
        )  # fmt: skip
        pool = {
            "name": "cpu", "minReplicas": 1, "maxReplicas": 4,
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        }  # fmt: skip
        self.kube.add(
            collection("slimscale.dev/v1alpha1", "sliminferences", "ns"),
            sliminference(pools=[pool]),
        )

    async def reconcile(self) -> list[Call]:
        """One look of the SlimInference; what it wrote to deployments and pods."""
        before = len(self.kube.writes)
        await self.inference.controller.reconcile(KEY)
        return [c for c in self.kube.writes[before:] if c.resource in ("deployments", "pods")]

    def start_pod(self) -> None:
        """As the Deployment's controller and the kubelet make it of the template."""
        template = copy.deepcopy((self.kube.peek(POOL) or {})["spec"]["template"])
        metadata = template["metadata"]
        metadata["labels"]["pod-template-hash"] = "7f"
        owner = {"kind": "ReplicaSet", "name": f"{NAMES.pool('cpu')}-7f", "controller": True}
        status = {
            "phase": "Running", "podIP": "10.0.0.9", "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
        }  # fmt: skip
        self.kube.add(
            PODS,
            {
                "metadata": metadata
                | {"name": "p1", "namespace": "ns", "ownerReferences": [owner]},
                "spec": template["spec"] | {"nodeName": "n1"},
                "status": status,
            },
        )
        self.kube.add(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "16"}}})
        self.follow()

    def follow(self) -> None:
        """The kubelet applies, the model server takes up its thread count."""
        pod = self.kube.peek(POD) or {}
        self.pages.threads = int(pod["metadata"]["annotations"].get(ANNOTATION_THREADS, 1))
        [server] = pod["spec"]["initContainers"]
        state = [{"name": "model-server", "resources": server["resources"], "restartCount": 0}]
        self.kube.edit(POD, lambda p: p["status"].update(initContainerStatuses=state))

    async def tune(self, target: PodTarget) -> Plan:
        """One look of the SimWorkload that has decided for `target`."""
        await self.observer.forget(("ns", "fashion-threads"))  # sampled anew, without a clock
        observation = await self.observer.observe(self.raw, self.spec)
        made = plan(
            observation=observation, decision=make_decision(target), spec=self.spec,
            memo=self.memo, now_seconds=self.clock.seconds,
        )  # fmt: skip
        await Applier(self.kube).apply(made, namespace="ns", lease_held=lambda: True)
        self.memo = made.memo or self.memo
        self.follow()
        return made

    def server(self) -> Json:
        [server] = (self.kube.peek(POD) or {})["spec"]["initContainers"]
        return dict(server["resources"])


async def test_threads_and_cpu_of_a_pool_s_pod_are_set_and_stay() -> None:
    world = World()
    await world.reconcile()
    world.start_pod()
    await world.reconcile()
    template = copy.deepcopy((world.kube.peek(POOL) or {})["spec"]["template"])
    for _ in range(3):
        await world.tune(PodTarget(3, 2000, 3000))
    [asked] = world.pages.asked
    assert (asked.pod, asked.port) == ("p1", 9464)
    assert world.server() == {
        "requests": {"cpu": "2", "memory": "512Mi"},
        "limits": {"cpu": "3"},
    }
    annotations = (world.kube.peek(POD) or {})["metadata"]["annotations"]
    assert annotations[ANNOTATION_THREADS] == "3"
    assert await world.reconcile() == [], "the SlimInference leaves what is not its own"
    assert (await world.tune(PodTarget(3, 2000, 3000))).operations == ()
    assert (world.kube.peek(POOL) or {})["spec"]["template"] == template
    await world.observer.close()


async def test_a_changed_configuration_and_a_new_thread_count_live_on_one_pod() -> None:
    world = World()
    await world.reconcile()
    world.start_pod()
    for _ in range(3):
        await world.tune(PodTarget(3, 2000, 3000))
    fashion = item("slimscale.dev/v1alpha1", "sliminferences", "fashion", "ns")
    world.kube.edit(fashion, lambda o: o["spec"].update(batching={"maxRows": 8}))
    [noted] = [call for call in await world.reconcile() if call.resource == "pods"]
    assert ANNOTATION_THREADS not in (noted.body or {})["metadata"]["annotations"]
    annotations = (world.kube.peek(POD) or {})["metadata"]["annotations"]
    assert annotations[ANNOTATION_THREADS] == "3"
    assert (await world.tune(PodTarget(3, 2000, 3000))).operations == ()
    await world.observer.close()


async def test_a_rollout_on_a_pool_is_refused_and_its_template_stays() -> None:
    world = World("Rollout")
    await world.reconcile()
    world.start_pod()
    made = await world.tune(PodTarget(3, 2000, 3000))
    assert (made.operations, made.reason) == ((), "TemplateOwned")
    await world.observer.close()
