"""The whole operator, nothing canned but the pods' numbers: from a CR to a pod that changes."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from slimscale.act.permissions import allowed
from slimscale.controllers.clock import SystemClock
from slimscale.controllers.context import build_context
from slimscale.controllers.wiring import make_stages
from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.handlers.main import serve
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json
from slimscale.observe.scrape import SampleOutcome, ScrapeTarget
from slimscale.settings import OperatorSettings
from tests.component.test_operator_loop import eventually
from tests.support.fake_api_server import FakeApiServer, fake_api_server
from tests.support.raw_objects import deployment, pod, simworkload

pytestmark = pytest.mark.component

SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")
ANTS = item("slimscale.dev/v1alpha1", "simworkloads", "ants", "ns")
POD = item("v1", "pods", "ants-7f-a", "ns")
FAST: dict[str, Any] = {
    "metrics": {"intervalSeconds": 1, "maxAgeSeconds": 5},
    "tuning": {"windowSeconds": 2},
}


@dataclass
class PretendPods:
    """A pod whose tasks block nine tenths of their time: more threads than CPUs pay."""

    api: FakeApiServer
    broken: str = ""
    tasks: float = 1000.0
    _last: float = field(default_factory=lambda: SystemClock().now_seconds())

    async def fetch(self, targets: Iterable[ScrapeTarget]) -> Sequence[SampleOutcome]:
        if self.broken:
            return [
                SampleOutcome(t.pod_uid, problem=self.broken, invalid=self.broken == "NaN")
                for t in targets
            ]
        return [SampleOutcome(target.pod_uid, sample=self._sample(target)) for target in targets]

    def _sample(self, target: ScrapeTarget) -> ContractSample:
        now = SystemClock().now_seconds()
        annotations = (self.api.kube.peek(POD) or {})["metadata"].get("annotations") or {}
        threads = int(annotations.get("slimscale.dev/threads", 2))
        self.tasks += (now - self._last) * min(threads / 0.1, 200.0)
        self._last = now
        return ContractSample(
            pod_uid=target.pod_uid, sampled_at_seconds=now, process_start_seconds=1.0,
            threads_applied=threads, tasks_total=self.tasks, tasks_outstanding=100.0,
            task=_histogram(self.tasks, 0.1), dispatch=_histogram(self.tasks, 0.0005),
            task_cpu_seconds_total=0.01 * self.tasks, task_runqueue_seconds_total=0.0,
            cpu_quota_cores=2.0, cpu_usage_seconds_total=0.01 * self.tasks, cpu_periods_total=None,
            cpu_throttled_periods_total=None, cpu_throttled_seconds_total=None,
        )  # fmt: skip


def _histogram(count: float, mean_seconds: float) -> HistogramSnapshot:
    bounds = (mean_seconds * 0.9, mean_seconds * 1.1, float("inf"))
    return HistogramSnapshot(bounds, (0.0, count, count), count * mean_seconds)


@dataclass
class Running:
    api: FakeApiServer
    pods: PretendPods
    stop: asyncio.Event
    task: asyncio.Task[None]

    def status(self) -> Json:
        return (self.api.kube.peek(ANTS) or {}).get("status") or {}

    def reason(self, condition: str) -> str:
        found = {c["type"]: c["reason"] for c in self.status().get("conditions") or []}
        return str(found.get(condition, ""))

    def pod_writes(self) -> list[Json]:
        return [c.body or {} for c in self.api.kube.writes if c.resource.startswith("pods")]


@asynccontextmanager
async def cluster() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as api:
        api.kube.add(collection("apps/v1", "deployments", "ns"), deployment())
        settled = pod()
        settled["status"]["containerStatuses"][0]["resources"] = settled["spec"]["containers"][0][
            "resources"
        ]
        api.kube.add(collection("v1", "pods", "ns"), settled)
        yield api


@asynccontextmanager
async def operator(api: FakeApiServer) -> AsyncIterator[Running]:
    pods = PretendPods(api)
    context = await build_context(
        OperatorSettings(
            bind_address="127.0.0.1", health_port=0, metrics_port=0, webhook_enabled=False
        ),
        make_stages=make_stages,
        configuration=Configuration(host=api.url),
        pods_source=pods,
        on_lease_lost=lambda _reason: None,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(serve(context, stop))
    try:
        await eventually(lambda: ("watch", "simworkloads") in api.kube.used)
        yield Running(api, pods, stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, 15)
        await context.close()


@pytest.mark.slow
async def test_a_guessed_thread_count_is_replaced_in_the_running_pod() -> None:
    async with cluster() as api, operator(api) as running:
        api.kube.add(SIMWORKLOADS, simworkload(**FAST))
        await eventually(lambda: running.status().get("target", {}).get("threads", 0) > 2, 20)
        wanted = running.status()["target"]["threads"]
        await eventually(
            lambda: (
                (api.kube.peek(POD) or {})["metadata"]["annotations"].get("slimscale.dev/threads")
                == str(wanted)
            )
        )
        await eventually(lambda: running.status().get("current", {}).get("threads") == wanted, 10)
        used = {(verb, resource) for verb, resource in api.kube.used if resource != "leases"}
        assert all(allowed(verb, resource) for verb, resource in used)


@pytest.mark.slow
async def test_mode_off_recommends_and_touches_no_pod() -> None:
    async with cluster() as api, operator(api) as running:
        api.kube.add(SIMWORKLOADS, simworkload(**FAST, updatePolicy={"mode": "Off"}))
        await eventually(lambda: running.status().get("target", {}).get("threads", 0) > 2, 20)
        assert running.reason("Ready") == "RecommendationOnly"
        assert running.pod_writes() == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["NaN", "port 9464: no connection"])
async def test_metrics_that_fail_hold_what_was_reached(fault: str) -> None:
    async with cluster() as api, operator(api) as running:
        api.kube.add(SIMWORKLOADS, simworkload(**FAST))
        await eventually(lambda: running.status().get("current", {}).get("threads", 0) > 2, 25)
        running.pods.broken = fault
        await eventually(lambda: running.reason("MetricsAvailable") not in ("", "MetricsFound"), 15)
        reached = running.status()["target"]
        writes = len(running.pod_writes())
        await asyncio.sleep(2.5)
        assert running.status()["target"] == reached
        assert len(running.pod_writes()) == writes


@pytest.mark.slow
async def test_an_operator_that_starts_again_goes_on_where_the_last_one_was() -> None:
    async with cluster() as api:
        async with operator(api) as running:
            api.kube.add(SIMWORKLOADS, simworkload(**FAST))
            await eventually(lambda: running.status().get("current", {}).get("threads", 0) > 2, 25)
            reached = running.status()["target"]
        memos = [c for c in api.kube.writes if c.resource == "configmaps"]
        assert memos
        learned = json.loads((memos[-1].body or {})["data"]["decide.json"])
        assert learned["target"]["threads"] == reached["threads"]
        writes = len(running.pod_writes())
        async with operator(api) as again:
            await asyncio.sleep(2.5)
            assert again.status()["target"] == reached
            assert len(again.pod_writes()) == writes


async def test_a_bad_spec_is_refused_in_words_and_nothing_is_written_to_its_pods() -> None:
    async with cluster() as api, operator(api) as running:
        api.kube.add(SIMWORKLOADS, simworkload(threads={"min": 9, "max": 2}))
        await eventually(lambda: running.reason("SpecValid") == "Invalid")
        said = {c["type"]: c["message"] for c in running.status()["conditions"]}
        assert "threads.min 9 is above threads.max 2" in said["SpecValid"]
        assert running.pod_writes() == []
        api.kube.edit(ANTS, lambda thing: thing["spec"].update(threads={"min": 1, "max": 2}))
        await eventually(lambda: running.reason("SpecValid") == "Valid")


async def test_missing_rights_become_a_condition_not_a_crash() -> None:
    """A13."""
    async with cluster() as api, operator(api) as running:
        api.kube.forbidden.add(("get", "deployments"))
        api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(lambda: running.reason("TargetResolved") == "NotPermitted")
        api.kube.forbidden.clear()


async def test_a_password_in_the_template_reaches_neither_log_nor_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """H7."""
    caplog.set_level("DEBUG")
    async with cluster() as api, operator(api) as running:

        def add_password(thing: Json) -> None:
            container = thing["spec"]["template"]["spec"]["containers"][0]
            container["env"] = [{"name": "PASSWORD", "value": "S3CR3T"}]

        api.kube.edit(item("apps/v1", "deployments", "ants", "ns"), add_password)
        api.kube.add(SIMWORKLOADS, simworkload(updatePolicy={"mode": "Rollout"}, **FAST))
        await eventually(lambda: running.reason("TargetResolved") == "TargetFound")
        await asyncio.sleep(1)
        written: list[Any] = [call.body for call in api.kube.writes]
        assert "S3CR3T" not in json.dumps(written)
    records = [json.dumps(vars(record), default=str) for record in caplog.records]
    assert "S3CR3T" not in "".join(records)
    assert records
