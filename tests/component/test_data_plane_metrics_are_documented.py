"""Every metric that router, sidecar and model server serve is in docs/reference/metrics.md."""

import re
from pathlib import Path

import pytest

from slimscale.cli.metric_references import metrics_reference
from slimscale.serving.http.client import ClientPool
from tests.support.fake_model_server import FakeModelServer
from tests.support.fake_sidecar import body_of, fake_sidecar
from tests.support.model_servers import with_model_server
from tests.support.routers import running_router
from tests.support.sidecars import with_sidecar

pytestmark = pytest.mark.component

DOCUMENTED = set(re.findall(r"^\| `(slimscale_\w+)` \|", metrics_reference(), re.MULTILINE))
_TYPE = re.compile(r"^# TYPE (slimscale_\w+) (\w+)$", re.MULTILINE)


def served(page: str) -> set[str]:
    """Without `_created`, which prometheus_client adds by itself."""
    return {name for name, _ in _TYPE.findall(page) if not name.endswith("_created")}


async def page_of(port: int) -> str:
    pool = ClientPool(per_host=1, connect_seconds=10.0)
    try:
        answer = await pool.request(b"GET", "127.0.0.1", port, b"/metrics", timeout_seconds=10)
    finally:
        await pool.close()
    return answer.body.decode()


@pytest.mark.parametrize("policy", ["ColdAwareSED", "Mixture"])
async def test_the_router_s_metrics_are_in_the_reference(tmp_path: Path, policy: str) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, policy=policy) as router:
        await router.infer(body_of(1))
        names = served(await page_of(router.router.status.port))
    assert len(names) > 20
    assert names - DOCUMENTED == set()
    assert ("slimscale_router_mixture_share" in names) == (policy == "Mixture")


async def test_the_sidecar_s_metrics_are_in_the_reference(tmp_path: Path) -> None:
    async with with_sidecar(tmp_path, FakeModelServer("digits-w100")) as (sidecar, asker):
        await asker.infer([1.0])
        names = served(await page_of(sidecar.status.port))
    assert len(names) > 10
    assert names - DOCUMENTED == set()


async def test_the_model_server_s_metrics_are_in_the_reference(tmp_path: Path) -> None:
    async with with_model_server(tmp_path) as (process, _):
        names = served(await page_of(process.status.port))
    assert {"slimscale_task_seconds", "slimscale_modelserver_instances"} <= names
    assert names - DOCUMENTED == set()
