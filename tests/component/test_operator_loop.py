"""kopf, the queue and our client together, against an API server in this process.

What is decided is canned here; how triggers become reconciles and what reaches the API is real.
Deciding and planning have tests of their own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.context import AppContext, build_context
from slimscale.controllers.simworkload import Stages
from slimscale.domain.clock import Clock
from slimscale.domain.decision import Action, Confidence, Decision, ModelView, PodTarget
from slimscale.domain.observation import Observation
from slimscale.domain.plan import ApplyResult, Plan
from slimscale.handlers.main import serve
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.observer import Observer
from slimscale.settings import OperatorSettings
from tests.support.fake_api_server import FakeApiServer, WatchFault, fake_api_server
from tests.support.raw_objects import deployment, pod, simworkload

pytestmark = pytest.mark.component

SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")
ANTS = item("slimscale.dev/v1alpha1", "simworkloads", "ants", "ns")
PODS = collection("v1", "pods", "ns")
POD = item("v1", "pods", "ants-7f-a", "ns")


@dataclass
class CannedStages:
    """Decides `threads.max` for everything; writes generation and that number as the status."""

    client: KubeClient
    observer: Observer
    reconciles: int = 0
    refused: list[list[str]] = field(default_factory=list)

    def stages(self) -> Stages:
        return Stages(
            observer=self.observer,
            decide=self.decide,
            plan=lambda **_: Plan(),
            applier=self,
            fold=lambda plan, result, *, now_seconds: plan,
            memo=self,
            status=self,
            reporter=self,
        )

    def decide(
        self, *, observation: Observation, spec: SimWorkloadSpec, memo: Json, now_seconds: float
    ) -> Decision:
        self.reconciles += 1
        return Decision(
            decision_id="d", decided_at_seconds=now_seconds, action=Action.NO_CHANGE,
            target=PodTarget(spec.threads.max), uncapped=None, lower=None, upper=None,
            confidence=Confidence.LOW, reason="", message="", metrics_reason="",
            metrics_message="", may_write=True, model=ModelView("canned"),
        )  # fmt: skip

    async def apply(
        self, plan: Plan, *, namespace: str, lease_held: Callable[[], bool]
    ) -> ApplyResult:
        return ApplyResult()

    async def load(self, simworkload: Json) -> tuple[Json, Json]:
        return {}, {}

    async def save(self, simworkload: Json, *, decided: Json, planned: Json | None) -> None:
        pass

    def keep(self, simworkload: Json, *, decided: Json) -> None:
        pass

    def kept(self, simworkload: Json) -> Json | None:
        return None

    async def flush(self) -> None:
        pass

    async def update(self, simworkload: Json, *, decision: Decision, **_: Any) -> Json:
        metadata = simworkload["metadata"]
        assert decision.target is not None
        status: Json = {
            "observedGeneration": metadata["generation"],
            "target": {"threads": decision.target.threads},
        }
        if simworkload.get("status") != status:
            body = {"metadata": {"uid": metadata["uid"]}, "status": status}
            await self.client.merge_patch(f"{ANTS}/status", body)
        return status

    async def refuse(self, simworkload: Json, problems: list[str]) -> None:
        self.refused.append(problems)

    async def report(self, simworkload: Json, **_: Any) -> None:
        pass

    def stage_seconds(self, stage: str, seconds: float) -> None:
        pass

    def forget(self, key: tuple[str, str]) -> None:
        pass


@dataclass
class Running:
    api: FakeApiServer
    context: AppContext
    canned: CannedStages
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def settled(self) -> int:
        """Wait until the start is over: list, watch and pods each tell of the object once."""
        seen = -1
        while seen != self.canned.reconciles:
            seen = self.canned.reconciles
            await asyncio.sleep(0.3)
        return seen

    def status(self) -> Json:
        return (self.api.kube.peek(ANTS) or {}).get("status") or {}


@asynccontextmanager
async def operator(**settings: Any) -> AsyncIterator[Running]:
    """document_at: a path and what the API server answers there; the rest are settings."""
    path, document = settings.pop("document_at", ("", {}))
    async with fake_api_server() as api:
        api.documents[path] = document
        api.kube.add(collection("apps/v1", "deployments", "ns"), deployment())
        api.kube.add(PODS, pod())
        canned: list[CannedStages] = []

        def make(
            client: KubeClient, _clock: Clock, observer: Observer, *_: Any, **_given: Any
        ) -> Stages:
            canned.append(CannedStages(client, observer))
            return canned[0].stages()

        context = await build_context(
            OperatorSettings(
                bind_address="127.0.0.1", health_port=0, metrics_port=0, webhook_enabled=False,
                scrape_timeout_seconds=0.2, resync_seconds=settings.pop("resync_seconds", 600),
                **settings,
            ),
            make_stages=make,
            configuration=Configuration(host=api.url),
            on_lease_lost=lambda _reason: None,
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(serve(context, stop))
        try:
            await eventually(lambda: ("watch", "simworkloads") in api.kube.used)
            yield Running(api, context, canned[0], stop, task)
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)
            await context.close()


async def eventually(check: Callable[[], Any], seconds: float = 5) -> None:
    """Return as soon as it holds; fail when it never does."""
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 - what is waited for is on the other side of HTTP
            await asyncio.sleep(0.01)


async def test_a_new_simworkload_gets_its_status_and_a_change_is_followed() -> None:
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload(threads={"max": 4}))
        await eventually(lambda: running.status().get("target") == {"threads": 4})
        running.api.kube.edit(ANTS, lambda thing: thing["spec"]["threads"].update(max=6))
        await eventually(lambda: running.status().get("target") == {"threads": 6})
        assert running.status()["observedGeneration"] == 2


async def test_nothing_of_ours_or_of_kopf_s_is_left_on_the_user_s_object() -> None:
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(running.status)
        metadata = (running.api.kube.peek(ANTS) or {})["metadata"]
        assert "finalizers" not in metadata
        assert not metadata.get("annotations")
        assert {call.resource for call in running.api.kube.writes} == {
            "leases",
            "simworkloads/status",
        }


async def test_an_update_right_after_creation_is_never_swallowed() -> None:
    """A8."""
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload(threads={"max": 2}))
        for threads in range(3, 40):
            await asyncio.sleep(0.002)
            wanted = {"max": threads}
            running.api.kube.edit(ANTS, lambda thing: thing["spec"].update(threads=wanted))  # noqa: B023
        await eventually(lambda: running.status().get("target") == {"threads": 39})
        assert running.status()["observedGeneration"] == 38


@pytest.mark.parametrize(
    "fault", [WatchFault.GONE_AS_STATUS, WatchFault.GONE_IN_STREAM, WatchFault.CUT]
)
async def test_a_change_during_a_broken_watch_is_found_when_the_watch_is_back(
    fault: WatchFault,
) -> None:
    """A1 and A2, for kopf's watch."""
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload(threads={"max": 2}))
        await eventually(lambda: running.status().get("target") == {"threads": 2})
        running.api.break_watches(fault)
        await eventually(lambda: running.api.faults_met)
        running.api.kube.edit(ANTS, lambda thing: thing["spec"]["threads"].update(max=7))
        running.api.kube.expire()
        running.api.fault = WatchFault.NONE
        await eventually(lambda: running.status().get("target") == {"threads": 7}, seconds=30)


async def test_a_watch_that_died_silently_does_not_keep_changes_from_being_found() -> None:
    """A1: the resync finds the change; the audit tells that the watch did not."""
    async with operator(resync_seconds=1) as running:
        running.api.kube.add(SIMWORKLOADS, simworkload(threads={"max": 2}))
        await eventually(lambda: running.status().get("target") == {"threads": 2})
        running.api.break_watches(WatchFault.BLACK_HOLE)
        running.api.kube.edit(ANTS, lambda thing: thing["spec"]["threads"].update(max=7))
        await eventually(lambda: running.status().get("target") == {"threads": 7})
        heard = running.context.heartbeat.ages_seconds()["simworkloads"]
        await eventually(
            lambda: running.context.heartbeat.ages_seconds()["simworkloads"] > heard + 1.5
        )


async def test_a_change_of_a_target_s_pod_wakes_the_reconcile_and_noise_does_not() -> None:
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(running.status)
        await eventually(lambda: ("watch", "pods") in running.api.kube.used)
        before = await running.settled()
        running.api.kube.edit(POD, lambda p: p["status"].update(hostIP="10.9.9.9"))
        await asyncio.sleep(0.1)
        assert running.canned.reconciles == before
        ready = [{"type": "Ready", "status": "False"}]
        running.api.kube.edit(POD, lambda p: p["status"].update(conditions=ready))
        await eventually(lambda: running.canned.reconciles > before)


async def test_a_steady_state_makes_no_writes_and_few_reconciles() -> None:
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(running.status)
        reconciles = await running.settled()
        writes = [call for call in running.api.kube.writes if call.resource != "leases"]
        await asyncio.sleep(0.5)
        after = [call for call in running.api.kube.writes if call.resource != "leases"]
        assert after == writes, "our own status must not wake us"
        assert running.canned.reconciles == reconciles


async def test_a_bad_spec_is_refused_once_and_its_neighbours_go_on() -> None:
    async with operator() as running:
        bad = simworkload("bad", threads={"min": 9, "max": 2})
        running.api.kube.add(SIMWORKLOADS, bad)
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(running.status)
        await eventually(lambda: running.canned.refused)
        assert "threads.min 9 is above threads.max 2" in running.canned.refused[0][0]
        await running.settled()
        refused = len(running.canned.refused)
        await asyncio.sleep(0.3)
        assert len(running.canned.refused) == refused, "only the user can mend it: no retries"


async def test_the_operator_starts_before_its_crd_and_serves_it_once_it_is_there() -> None:
    async with fake_api_server() as api:
        api.served.discard("/apis/slimscale.dev/v1alpha1")
        context = await build_context(
            OperatorSettings(lease_enabled=False),
            make_stages=lambda client, _c, observer, *_, **_k: CannedStages(
                client, observer
            ).stages(),
            configuration=Configuration(host=api.url),
        )
        waiting = asyncio.create_task(context.wait_for_api())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        api.served.add("/apis/slimscale.dev/v1alpha1")
        await asyncio.wait_for(waiting, 5)
        await context.close()


async def test_no_cluster_wide_list_is_needed_when_namespaces_are_named() -> None:
    """A15: a Role in the namespace is enough; other API groups may be broken."""
    async with operator(namespaces="ns") as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(running.status)
        paths = {path for _, path in running.api.requests}
        assert "/apis/slimscale.dev/v1alpha1/simworkloads" not in paths
        assert not any(path.rsplit("/", 1)[-1] == "namespaces" for path in paths)
        assert not any(path.endswith("customresourcedefinitions") for path in paths)


async def test_probes_answer_and_metrics_are_served(free_ports: tuple[int, int]) -> None:
    health, metrics = free_ports
    async with fake_api_server() as api:
        context = await build_context(
            OperatorSettings(
                bind_address="127.0.0.1", health_port=health, metrics_port=metrics,
                webhook_enabled=False, lease_enabled=False,
            ),
            make_stages=lambda client, _c, observer, *_, **_k: CannedStages(client, observer).stages(),
            configuration=Configuration(host=api.url),
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(serve(context, stop))

        async def get(port: int, path: str) -> int:
            url = f"http://127.0.0.1:{port}{path}"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status

        async with asyncio.timeout(5):
            while await _soon(lambda: get(health, "/readyz")) != 200:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        assert await get(health, "/healthz") == 200
        assert await get(metrics, "/metrics") == 200
        assert await get(metrics, "/healthz") == 404
        await eventually(lambda: ("watch", "simworkloads") in api.kube.used)
        stop.set()
        await asyncio.wait_for(task, 10)
        await context.close()


async def _soon(ask: Callable[[], Awaitable[int]]) -> int:
    try:
        return await ask()
    except aiohttp.ClientConnectionError:
        return 0


@pytest.fixture
def free_ports() -> tuple[int, int]:
    import socket

    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
