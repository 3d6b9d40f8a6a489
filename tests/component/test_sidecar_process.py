"""The sidecar as a process of its own: starts, serves, drains on SIGTERM, refuses a bad start."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from slimscale.serving.http import ExchangeFailed
from tests.support.fake_model_server import FakeModelServer
from tests.support.sidecars import Asker, config_document

pytestmark = [pytest.mark.component, pytest.mark.slow]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def start(config: Path, **environment: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slimscale.serving.sidecar",
        env={
            **os.environ,
            "SLIMSCALE_CONFIG": str(config),
            "SLIMSCALE_HOST": "127.0.0.1",
            **{f"SLIMSCALE_{name.upper()}": str(value) for name, value in environment.items()},
        },
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def wait_ready(asker: Asker) -> None:
    while True:
        with suppress(ExchangeFailed):
            if (await asker.raw(b"GET", "/v2/health/ready")).status == 200:
                return
        await asyncio.sleep(0.05)


async def test_sigterm_answers_everything_that_was_taken_and_exits_clean(tmp_path: Path) -> None:
    config = tmp_path / "sidecar.json"
    config.write_text(json.dumps(config_document()))
    server = await FakeModelServer("digits-w100").start()
    port, status_port = free_port(), free_port()
    process = await start(
        config, port=port, status_port=status_port, modelserver_port=server.port,
        drain_grace_seconds=2,
    )  # fmt: skip
    asker = Asker(port)
    await wait_ready(asker)
    server.hold()
    tasks = [asyncio.create_task(asker.infer([float(n)])) for n in range(50)]
    await server.arrived.wait()
    process.send_signal(signal.SIGTERM)
    status = Asker(status_port)
    while (await status.raw(b"GET", "/readyz")).status == 200:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    tasks += [asyncio.create_task(asker.infer([float(n)])) for n in range(50, 60)]
    await asyncio.sleep(0)
    server.release()
    answers = await asyncio.gather(*tasks)
    assert [Asker.values(answer) for answer in answers] == [[10.0 * n] for n in range(60)]
    _, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors
    assert server.running == 0
    for client in (asker, status):
        await client.pool.close()
    await server.stop()


async def test_a_bad_configuration_ends_the_start_and_names_the_field(tmp_path: Path) -> None:
    config = tmp_path / "sidecar.json"
    config.write_text(json.dumps(config_document(queueRows=0)))
    process = await start(config, port=0, status_port=0)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"batching.queueRows" in errors
    assert b"Traceback" not in errors
