"""The router as its own process: starts from its files, serves, and ends on SIGTERM without a loss."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slimscale.serving.http import ClientPool
from tests.support.fake_sidecar import body_of, fake_sidecar, number_in
from tests.support.fake_slices import fake_slices
from tests.support.helm import ROOT
from tests.support.routers import router_config, until

pytestmark = [pytest.mark.component, pytest.mark.slow]


@asynccontextmanager
async def router_process(**environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slimscale.serving.router",
        cwd=ROOT / "operator",
        env={"PATH": os.environ["PATH"], "SLIMSCALE_HOST": "127.0.0.1", **environment},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def port_of(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        found = re.search(rb"on port (\d+)", line)
        if found:
            return int(found[1])
    raise AssertionError("the router has ended")


async def test_a_request_in_flight_at_sigterm_is_answered_and_the_process_ends_well(
    tmp_path: Path,
) -> None:
    config = tmp_path / "router.json"
    config.write_text(json.dumps(router_config()))
    client = ClientPool()
    async with (
        fake_sidecar("a") as pod,
        router_process(
            SLIMSCALE_CONFIG=str(config), SLIMSCALE_PORT="0", SLIMSCALE_STATUS_PORT="0",
            SLIMSCALE_ENDPOINTS=f"a=127.0.0.1:{pod.port}", SLIMSCALE_DRAIN_WAIT_SECONDS="0.2",
        ) as process,
    ):  # fmt: skip
        port = await port_of(process)
        pod.open.clear()
        tasks = [
            asyncio.create_task(
                client.request(
                    b"POST", "127.0.0.1", port, b"/v2/models/digits/infer",
                    body=body_of(number), timeout_seconds=20,
                )
            )
            for number in range(10)
        ]  # fmt: skip
        await until(lambda: len(pod.bodies) == 10)
        process.send_signal(signal.SIGTERM)
        pod.open.set()
        replies = await asyncio.gather(*tasks)
        assert [number_in(reply.body) for reply in replies] == list(range(10))
        assert await process.wait() == 0
    await client.close()


def listening_ports(pid: int) -> set[int]:
    """TCP ports that a process listens on."""
    own = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc")
async def test_the_process_listens_on_its_data_and_status_ports_alone(tmp_path: Path) -> None:
    config = tmp_path / "router.json"
    config.write_text(json.dumps(router_config()))
    async with router_process(
        SLIMSCALE_CONFIG=str(config), SLIMSCALE_PORT="0", SLIMSCALE_STATUS_PORT="0"
    ) as process:
        port = await port_of(process)
        ports = listening_ports(process.pid)
        assert port in ports
        assert len(ports) == 2


async def test_pods_come_from_the_api_server_that_the_environment_names(tmp_path: Path) -> None:
    config = tmp_path / "router.json"
    config.write_text(json.dumps(router_config()))
    client = ClientPool()
    async with fake_sidecar("a") as pod, fake_slices() as api:
        api.slices = [
            {
                "metadata": {"name": "s", "resourceVersion": "1"},
                "endpoints": [{"addresses": ["127.0.0.1"], "targetRef": {"name": "a"}}],
                "ports": [{"name": "http", "port": pod.port}],
            }
        ]
        async with router_process(
            SLIMSCALE_CONFIG=str(config), SLIMSCALE_PORT="0", SLIMSCALE_STATUS_PORT="0",
            KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT=str(api.port),
            SLIMSCALE_SERVICE_ACCOUNT=str(tmp_path), SLIMSCALE_DRAIN_WAIT_SECONDS="0",
        ) as process:  # fmt: skip
            port = await port_of(process)
            reply = await client.request(
                b"POST", "127.0.0.1", port, b"/v2/models/digits/infer",
                body=body_of(5), timeout_seconds=20,
            )  # fmt: skip
            assert number_in(reply.body) == 5
    await client.close()


@pytest.mark.parametrize(
    ("content", "environment", "code", "says"),
    [
        (None, {}, 1, "router.json"),
        ("{", {}, 1, "router.json"),
        ('{"service": "x"}', {}, 1, "widths: Field required"),
        ("{}", {"SLIMSCALE_PORT": "99999"}, 2, "setting port"),
        ("{}", {"SLIMSCALE_ENDPOINTS": "nonsense"}, 2, "write name=host:port"),
    ],
)
async def test_a_start_that_cannot_be_says_why_in_a_line(
    tmp_path: Path, content: str | None, environment: dict[str, str], code: int, says: str
) -> None:
    config = tmp_path / "router.json"
    if content is not None:
        config.write_text(content)
    async with router_process(SLIMSCALE_CONFIG=str(config), **environment) as process:
        _, errors = await process.communicate()
        assert process.returncode == code
        assert says in errors.decode()
        assert "Traceback" not in errors.decode()
