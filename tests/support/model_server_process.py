"""The model server as a process of its own, which tests start, ask, kill and start again."""

import contextlib
import json
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

from tests.support.model_servers import WIDE, document_of
from tests.support.onnx_models import write_graph

__all__ = ["Process", "started"]

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
