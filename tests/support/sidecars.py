"""A sidecar in front of a fake model server, and a client that asks it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.serving.http.client import ClientPool, ClientResponse
from slimscale.serving.protocol import Tensor, encode_request, parse_response
from slimscale.serving.sidecar.process import Sidecar
from slimscale.serving.sidecar.settings import SidecarSettings
from tests.support.fake_model_server import FakeModelServer

__all__ = ["Asker", "config_document", "until", "with_sidecar"]


def config_document(**batching: Any) -> dict[str, Any]:
    return {
        "service": "digits",
        "widths": [
            {"ratio": 0.5, "model": "digits-w050", "accuracy": 0.8},
            {"ratio": 1.0, "model": "digits-w100", "accuracy": 0.9},
        ],
        "batching": batching,
    }


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until it holds; the test's own time-out ends a wait for nothing."""
    while not condition():  # noqa: ASYNC110 - conditions of others' state have no event
        await asyncio.sleep(0.001)


class Asker:
    """Asks a sidecar for the rows `values`, two numbers each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pool = ClientPool(per_host=1000, connect_seconds=30.0)

    async def raw(
        self, method: bytes, path: str, *, headers: dict[bytes, bytes] | None = None,
        body: bytes = b"", seconds: float = 30.0,
    ) -> ClientResponse:  # fmt: skip
        return await self.pool.request(
            method, "127.0.0.1", self.port, path.encode(),
            headers=tuple((headers or {}).items()), body=body, timeout_seconds=seconds,
        )  # fmt: skip

    async def infer(
        self, values: list[float], *, model: str = "digits-w100",
        headers: dict[bytes, bytes] | None = None, seconds: float = 30.0,
    ) -> ClientResponse:  # fmt: skip
        rows = np.array([[value, value] for value in values], np.float32)
        own, parts = encode_request([Tensor("image", "FP32", rows)])
        return await self.raw(
            b"POST", f"/v2/models/{model}/infer", headers=dict(own) | (headers or {}),
            body=b"".join(parts), seconds=seconds,
        )  # fmt: skip

    @staticmethod
    def values(response: ClientResponse) -> list[float]:
        assert response.status == 200, response.body
        return [float(row[0]) for row in parse_response(response.headers, response.body)[0].array]

    @staticmethod
    def error(response: ClientResponse) -> str:
        return str(json.loads(response.body)["error"])


@asynccontextmanager
async def with_sidecar(
    folder: Path, model_server: FakeModelServer, *, ready: bool = True, settings: Any = None,
    document: dict[str, Any] | None = None, **batching: Any,
) -> AsyncIterator[tuple[Sidecar, Asker]]:  # fmt: skip
    """A started sidecar (and model server, unless it is started already), ready for requests."""
    config = folder / "sidecar.json"
    config.write_text(json.dumps(document or config_document(**batching)))
    if not model_server.port:
        await model_server.start()
    sidecar = Sidecar(
        SidecarSettings(
            config=config,
            host="127.0.0.1",
            port=0,
            status_port=0,
            pod_name="pod-1",
            pool="cpu",
            modelserver_port=model_server.port,
            **(settings or {}),
        )
    )
    await sidecar.start()
    asker = Asker(sidecar.server.port)
    try:
        if ready:
            await until(lambda: sidecar.ready() is None)
        yield sidecar, asker
    finally:
        await asker.pool.close()
        await sidecar.close()
        await model_server.stop()
