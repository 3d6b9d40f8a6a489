"""Our model server in this process, on small graphs; a client; devices that say what a test wants."""

import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from slimscale.devices.nvml import Nvml
from slimscale.devices.reading import DeviceReading
from slimscale.serving.http.client import ClientPool, ClientResponse
from slimscale.serving.modelserver import instances, runtime
from slimscale.serving.modelserver.cpu_device import CpuDevice
from slimscale.serving.modelserver.device import DeviceWatch
from slimscale.serving.modelserver.process import ModelServerProcess
from slimscale.serving.modelserver.settings import ModelServerSettings
from slimscale.serving.protocol import Tensor, encode_request, parse_response
from tests.support.onnx_models import write_graph
from tests.support.sidecars import until

__all__ = ["NARROW", "WIDE", "Asks", "FakeDevices", "Gate", "document_of", "with_model_server"]

NARROW, WIDE = "digits-w050", "digits-w100"


def document_of(models: Path, **more: Any) -> dict[str, Any]:
    return {
        "service": "digits",
        "widths": [
            {"ratio": 0.5, "model": NARROW, "accuracy": 0.8},
            {"ratio": 1.0, "model": WIDE, "accuracy": 0.9},
        ],
        "directory": str(models),
        "preload": [WIDE],
        "warmRows": [1, 2, 4],
        "threads": 1,
        **more,
    }


class Gate:
    """Holds up batches whose first number is `HELD`, until `open` is set."""

    HELD = 99.0

    def __init__(self, monkeypatch: Any) -> None:
        self.open = threading.Event()
        self.inside = 0
        monkeypatch.setattr(instances, "run_rows", self._run)

    def _run(self, opened: runtime.Opened, inputs: Sequence[Tensor]) -> list[Tensor]:
        if inputs[0].array[0, 0] == self.HELD:
            self.inside += 1
            assert self.open.wait(20)
            self.inside -= 1
        return runtime.run_rows(opened, inputs)


class FakeDevices:
    """In place of NVML and of the cgroup. `gpus` are what the next look sees."""

    def __init__(self, *gpus: DeviceReading) -> None:
        self.gpus = gpus
        self.seconds = 0.0

    def read(self) -> tuple[DeviceReading, ...]:
        return self.gpus

    def close(self) -> None:
        pass

    def watch(self) -> DeviceWatch:
        return DeviceWatch(cast(Nvml, self), cast(CpuDevice, _FakeCpu()), now=lambda: self.seconds)


class _FakeCpu:
    def read(self) -> DeviceReading:
        return DeviceReading(device="cpu", kind="cpu", utilisation=0.25)


class Asks:
    """Asks a model server; rows of two numbers each."""

    def __init__(self, port: int, status_port: int) -> None:
        self.port, self.status_port = port, status_port
        self.pool = ClientPool(per_host=100)

    async def raw(
        self, method: bytes, path: str, body: bytes = b"", *, status: bool = False,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> ClientResponse:  # fmt: skip
        port = self.status_port if status else self.port
        return await self.pool.request(
            method, "127.0.0.1", port, path.encode(), headers=headers, body=body, timeout_seconds=30
        )

    async def get(self, path: str) -> Any:
        response = await self.raw(b"GET", path)
        return json.loads(response.body)

    async def status(self, path: str) -> int:
        return (await self.raw(b"GET", path)).status

    async def load(self, model: str, count: int | None = None) -> ClientResponse:
        body = b"" if count is None else b'{"parameters":{"instances":%d}}' % count
        return await self.raw(b"POST", f"/v2/repository/models/{model}/load", body)

    async def unload(self, model: str) -> ClientResponse:
        return await self.raw(b"POST", f"/v2/repository/models/{model}/unload")

    async def infer(self, values: list[float], model: str = WIDE) -> ClientResponse:
        rows = np.array([[value, value] for value in values], np.float32)
        headers, parts = encode_request([Tensor("image", "FP32", rows)])
        path = f"/v2/models/{model}/infer"
        return await self.raw(b"POST", path, b"".join(parts), headers=headers)

    async def metrics(self) -> str:
        return (await self.raw(b"GET", "/metrics", status=True)).body.decode()

    @staticmethod
    def values(response: ClientResponse) -> list[float]:
        assert response.status == 200, response.body
        return [float(row[0]) for row in parse_response(response.headers, response.body)[0].array]

    @staticmethod
    def error(response: ClientResponse) -> str:
        return str(json.loads(response.body)["error"])


@asynccontextmanager
async def with_model_server(
    folder: Path, *, devices: FakeDevices | None = None, ready: bool = True, graphs: bool = True,
    **config: Any,
) -> AsyncIterator[tuple[ModelServerProcess, Asks]]:  # fmt: skip
    """A started server on doubling graphs, ready unless asked otherwise."""
    models = folder / "models"
    if graphs:
        for model in (NARROW, WIDE):
            write_graph(models, model)
    file = folder / "modelserver.json"
    file.write_text(json.dumps(document_of(models, **config)))
    process = ModelServerProcess(
        ModelServerSettings(config=file, modelserver_port=0, metrics_port=0, host="127.0.0.1"),
        device=(devices or FakeDevices()).watch(),
    )
    await process.start()
    asks = Asks(process.server.port, process.status.port)
    try:
        if ready:
            await until(lambda: process.ready() is None)
        yield process, asks
    finally:
        await asks.pool.close()
        await process.close()
