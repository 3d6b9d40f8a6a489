"""What must hold while the operator is busy, asked for too much, or looked at by strangers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import kopf
import pytest
from kubernetes.aio.client import Configuration
from prometheus_client import CollectorRegistry

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.context import build_context
from slimscale.controllers.heartbeat import Health
from slimscale.controllers.injection_catalog import InjectionCatalog
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.handlers.admission import AdmissionServer, serving_context
from slimscale.handlers.main import serve
from slimscale.handlers.probes import ProbeServer
from slimscale.handlers.startup import kopf_settings
from slimscale.kubeapi.ports import Json
from slimscale.settings import OperatorSettings
from tests.component.test_operator_loop import (
    ANTS,
    SIMWORKLOADS,
    CannedStages,
    eventually,
    operator,
)
from tests.support.fake_api_server import WatchFault, fake_api_server
from tests.support.raw_objects import deployment, pod, simworkload

pytestmark = pytest.mark.component
METHODS = ("POST", "PUT", "PATCH", "DELETE")
PROBING = ("/", "/debug", "/shutdown", "/config", "/quitquitquit", "/healthz/x")


class SlowToDecide(CannedStages):
    """A fit that goes on until the test lets it end."""

    begun = threading.Event()
    may_end = threading.Event()

    def decide(
        self, *, observation: Observation, spec: SimWorkloadSpec, memo: Json, now_seconds: float
    ) -> Decision:
        self.begun.set()
        self.may_end.wait(timeout=10)
        return super().decide(
            observation=observation, spec=spec, memo=memo, now_seconds=now_seconds
        )


async def status_of(url: str, method: str = "GET") -> int:
    limit = aiohttp.ClientTimeout(total=3)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.request(method, url) as answer,
    ):
        return answer.status


async def test_probes_are_answered_while_a_decision_computes(free_port: int) -> None:
    """A10: a kubelet that gets no answer would kill a process that is only busy."""
    async with fake_api_server() as api:
        api.kube.add("/apis/apps/v1/namespaces/ns/deployments", deployment())
        api.kube.add("/api/v1/namespaces/ns/pods", pod())
        context = await build_context(
            OperatorSettings(
                bind_address="127.0.0.1", health_port=free_port, metrics_port=0,
                webhook_enabled=False, lease_enabled=False, scrape_timeout_seconds=0.2,
            ),
            make_stages=lambda client, _c, observer, *_, **_k: SlowToDecide(client, observer).stages(),
            configuration=Configuration(host=api.url),
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(serve(context, stop))
        try:
            await eventually(lambda: ("watch", "simworkloads") in api.kube.used)
            api.kube.add(SIMWORKLOADS, simworkload())
            await eventually(SlowToDecide.begun.is_set)
            assert await status_of(f"http://127.0.0.1:{free_port}/healthz") == 200
            assert not SlowToDecide.may_end.is_set()
        finally:
            SlowToDecide.may_end.set()
            stop.set()
            await asyncio.wait_for(task, 10)
            await context.close()


async def test_a_simworkload_beside_the_operator_is_refused_even_without_the_webhook() -> None:
    """H3: the webhook lets everything through when it is down."""
    async with operator(own_namespace="ns") as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        await eventually(lambda: running.canned.refused)
        [problem] = running.canned.refused[0]
        assert problem.startswith("metadata.namespace ns: ")
        assert "another namespace" in problem
        assert running.canned.reconciles == 0
        assert not [c for c in running.api.kube.writes if c.resource.startswith("pods")]


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_namespaces_of_the_system_are_among_those_never_changed(namespace: str) -> None:
    assert namespace in OperatorSettings().never_namespaces


@asynccontextmanager
async def probe_server() -> AsyncIterator[tuple[str, str]]:
    server = ProbeServer(health=lambda: Health(alive=True, ready=True), metrics=CollectorRegistry())
    health, metrics = await server.start(host="127.0.0.1", health_port=0, metrics_port=0)
    try:
        yield f"http://127.0.0.1:{health}", f"http://127.0.0.1:{metrics}"
    finally:
        await server.stop()


async def test_no_port_of_the_operator_takes_an_order() -> None:
    """H5: what listens can be read from and nothing else."""
    async with probe_server() as (health, metrics):
        for url in (f"{health}/healthz", f"{health}/readyz", f"{metrics}/metrics"):
            assert await status_of(url) == 200
            for method in METHODS:
                assert await status_of(url, method) == 405
        for base in (health, metrics):
            for path in PROBING:
                for method in ("GET", *METHODS):
                    assert await status_of(base + path, method) in (404, 405)


async def test_the_admission_server_has_its_three_paths_alone() -> None:
    server = AdmissionServer(catalog=InjectionCatalog(), never_namespaces=())
    await server.start(host="127.0.0.1", port=0, context=serving_context())
    try:
        assert server._runner is not None
        routes = [
            (r.method, r.resource.canonical)
            for r in server._runner.app.router.routes()
            if r.resource
        ]
    finally:
        await server.stop()
    assert routes == [
        ("POST", "/inject-pod"),
        ("POST", "/validate-simworkload"),
        ("POST", "/validate-sliminference"),
    ]


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def test_kopf_s_own_watch_recovers_from_a_silent_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A1: with the resync far away, only a new watch can tell of the change."""

    def impatient() -> kopf.OperatorSettings:
        settings = kopf_settings()
        settings.watching.inactivity_timeout = 0.5
        settings.watching.reconnect_backoff = 0.1
        return settings

    monkeypatch.setattr("slimscale.handlers.kopf_thread.kopf_settings", impatient)
    async with operator(resync_seconds=3600) as running:
        running.api.kube.add(SIMWORKLOADS, simworkload(threads={"max": 2}))
        await eventually(lambda: running.status().get("target") == {"threads": 2})
        running.api.break_watches(WatchFault.BLACK_HOLE)
        await eventually(lambda: running.api.faults_met)
        running.api.kube.edit(ANTS, lambda thing: thing["spec"]["threads"].update(max=7))
        running.api.fault = WatchFault.NONE
        await eventually(lambda: running.status().get("target") == {"threads": 7}, seconds=8)


async def test_metrics_tell_how_long_each_watch_has_been_silent() -> None:
    async with operator() as running:
        running.api.kube.add(SIMWORKLOADS, simworkload())
        value = running.context.registry.get_sample_value
        for watch in ("simworkloads", "pods"):
            name, labels = "slimscale_watch_age_seconds", {"watch": watch}
            await eventually(lambda: value(name, labels) is not None)  # noqa: B023
