"""The model server as a process of its own: killed and started again, and with a GPU that gets lost."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_servers import WIDE, document_of
from tests.support.nvml_stub import GPU, GPU_IS_LOST, build, environment, settings
from tests.support.onnx_models import write_graph

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

pytestmark = [pytest.mark.component, pytest.mark.slow]


class Process:
    """One model server; its address stays the same when it is started again."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        write_graph(folder / "models", WIDE)
        file = folder / "modelserver.json"
        file.write_text(json.dumps(document_of(folder / "models")))
        self.port, self.status_port = _free_port(), _free_port()
        self.env = env | {
            "SLIMSCALE_CONFIG": str(file),
            "SLIMSCALE_MODELSERVER_PORT": str(self.port),
            "SLIMSCALE_METRICS_PORT": str(self.status_port),
            "SLIMSCALE_HOST": "127.0.0.1",
        }
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "slimscale.serving.modelserver"],
            env=self.env,
            stderr=subprocess.PIPE,
        )
        return self.child

    def get(self, path: str, *, port: int | None = None) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{port or self.port}{path}"
        try:
            with OPENER.open(url, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def wait(self, path: str, status: int) -> bytes:
        """Until `path` answers so; the test's time-out ends a wait for nothing."""
        while True:
            with contextlib.suppress(urllib.error.URLError, OSError):
                found, body = self.get(path)
                if found == status:
                    return body
            assert self.child is not None
            assert self.child.poll() is None, "the model server has ended"
            time.sleep(0.05)

    def infer(self, value: float) -> list[float]:
        body = json.dumps(
            {
                "inputs": [
                    {"name": "image", "datatype": "FP32", "shape": [1, 2], "data": [value] * 2}
                ]
            }
        ).encode()
        url = f"http://127.0.0.1:{self.port}/v2/models/{WIDE}/infer"
        with OPENER.open(url, body, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
        data: list[float] = answer["outputs"][0]["data"]
        return data

    def end(self, number: int) -> int:
        assert self.child is not None
        self.child.send_signal(number)
        code = self.child.wait(20)
        assert self.child.stderr is not None
        self.child.stderr.close()
        return code


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(folder: Path, env: dict[str, str]) -> Iterator[Process]:
    process = Process(folder, env)
    process.start()
    try:
        yield process
    finally:
        assert process.child is not None
        if process.child.poll() is None:
            process.end(signal.SIGKILL)


def test_a_killed_server_starts_again_at_the_same_address_and_a_term_ends_it_well(
    tmp_path: Path,
) -> None:
    with started(tmp_path, dict(os.environ)) as process:
        process.wait("/v2/health/ready", 200)
        assert process.infer(2.0) == [4.0, 4.0]
        process.end(signal.SIGKILL)
        process.start()
        process.wait("/v2/health/ready", 200)
        assert process.infer(3.0) == [6.0, 6.0]
        assert process.end(signal.SIGTERM) == 0


def test_the_memory_of_a_gpu_is_served_and_a_lost_one_takes_no_traffic_until_it_is_back(
    tmp_path: Path,
) -> None:
    """F4: the library is the stub, everything else is real."""
    stub = tmp_path / "stub.txt"
    stub.write_text(settings(GPU))
    env = environment(build(tmp_path / "nvml"), stub) | {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}
    with started(tmp_path, env) as process:
        process.wait("/v2/health/ready", 200)
        device = json.loads(process.get("/device")[1])
        assert device["memory_free_bytes"] == 6_000_000_000
        assert device["utilisation"] == 0.37
        stub.write_text(settings({**GPU, "gpu0.error": GPU_IS_LOST}))
        assert b"GPU-a is lost" in process.wait("/v2/health/ready", 503)
        page = process.get("/metrics", port=process.status_port)[1].decode()
        assert 'slimscale_device_lost{device="GPU-a",kind="gpu"} 1.0' in page
        assert "slimscale_device_utilisation{" not in page
        assert process.get("/v2/health/live")[0] == 200
        stub.write_text(settings(GPU))
        process.wait("/v2/health/ready", 200)


def test_a_configuration_that_is_missing_or_wrong_ends_with_its_name(tmp_path: Path) -> None:
    for content in (None, '{"service": "x"}'):
        file = tmp_path / "modelserver.json"
        if content is not None:
            file.write_text(content)
        ended = subprocess.run(
            [sys.executable, "-m", "slimscale.serving.modelserver"],
            env=dict(os.environ) | {"SLIMSCALE_CONFIG": str(file)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode == 1
        assert str(file) in ended.stderr
        assert content is None or "widths" in ended.stderr
        assert "Traceback" not in ended.stderr
