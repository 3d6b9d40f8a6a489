"""The operator as a process of its own: how it starts, ends when told, and ends when it must."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slimscale.kubeapi.paths import collection, item
from tests.support.fake_api_server import FakeApiServer, fake_api_server
from tests.support.raw_objects import deployment, simworkload

pytestmark = [pytest.mark.component, pytest.mark.slow]

LEASE = item("coordination.k8s.io/v1", "leases", "slimscale-operator", "slimscale")
ANTS = item("slimscale.dev/v1alpha1", "simworkloads", "ants", "ns")


@asynccontextmanager
async def process(
    api: FakeApiServer, tmp_path: Path, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {"token": "S3CR3T"}}],
            }
        )
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLIMSCALE_")},
        "SLIMSCALE_KUBECONFIG": str(kubeconfig),
        "SLIMSCALE_BIND_ADDRESS": "127.0.0.1",
        "SLIMSCALE_HEALTH_PORT": "0",
        "SLIMSCALE_METRICS_PORT": "0",
        "SLIMSCALE_WEBHOOK_ENABLED": "false",
        "SLIMSCALE_LOG_LEVEL": "DEBUG",
        **settings,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slimscale.handlers", env=environment,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def _eventually(check: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.05)


def _with_status(api: FakeApiServer) -> Callable[[], object]:
    return lambda: (api.kube.peek(ANTS) or {}).get("status")


async def _log_of(running: asyncio.subprocess.Process, seconds: float = 20) -> str:
    end: Awaitable[tuple[bytes, bytes]] = running.communicate()
    _, log = await asyncio.wait_for(end, seconds)
    return log.decode()


async def test_told_to_end_it_gives_the_lease_back_and_ends_well(tmp_path: Path) -> None:
    async with fake_api_server() as api, process(api, tmp_path) as running:
        api.kube.add(collection("apps/v1", "deployments", "ns"), deployment())
        api.kube.add(collection("slimscale.dev/v1alpha1", "simworkloads", "ns"), simworkload())
        await _eventually(_with_status(api))
        # kopf, when it is stopped before it has begun to watch, tries again for a while.
        await _eventually(lambda: ("watch", "simworkloads") in api.kube.used)
        running.send_signal(signal.SIGTERM)
        log = await _log_of(running)
        assert running.returncode == 0, log
        lease = api.kube.peek(LEASE) or {}
        assert lease["spec"]["holderIdentity"] == ""
        lines = [json.loads(line) for line in log.splitlines()]
        assert all(line["level"] != "error" for line in lines), log
        assert "S3CR3T" not in log


async def test_a_lease_that_was_taken_ends_the_process_at_once(tmp_path: Path) -> None:
    """A12: no clean-up, no last write."""
    async with fake_api_server() as api, process(api, tmp_path) as running:
        await _eventually(lambda: (api.kube.peek(LEASE) or {}).get("spec"))
        api.kube.edit(LEASE, lambda lease: lease["spec"].update(holderIdentity="another"))
        log = await _log_of(running)
        assert running.returncode == 75, log
        lease = api.kube.peek(LEASE) or {}
        assert lease["spec"]["holderIdentity"] == "another"


async def test_a_second_process_waits_and_takes_over_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    """A11, with processes that are really killed."""
    async with fake_api_server() as api:
        api.kube.add(collection("apps/v1", "deployments", "ns"), deployment())
        async with process(api, tmp_path, SLIMSCALE_POD_NAME="first") as first:
            await _eventually(lambda: (api.kube.peek(LEASE) or {}).get("spec"))
            async with process(api, tmp_path, SLIMSCALE_POD_NAME="second"):
                await asyncio.sleep(2)
                holder = (api.kube.peek(LEASE) or {})["spec"]["holderIdentity"]
                assert holder.startswith("first_")
                first.send_signal(signal.SIGKILL)
                await first.wait()
                api.kube.add(
                    collection("slimscale.dev/v1alpha1", "simworkloads", "ns"), simworkload()
                )
                await _eventually(_with_status(api), 40)
                holder = (api.kube.peek(LEASE) or {})["spec"]["holderIdentity"]
                assert holder.startswith("second_")
