"""The controller of SlimInferences as one process, with an API, routers and a clock in memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from slimscale.act.inference_names import InferenceNames
from slimscale.act.metrics import OperatorMetrics
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.inference_context import InferencePart, build_inference
from slimscale.domain.inference import RouterReport, TelemetryOfPod
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json
from slimscale.settings import OperatorSettings
from tests.support.fake_kube import Call, FakeKube
from tests.support.inferences import sliminference

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
