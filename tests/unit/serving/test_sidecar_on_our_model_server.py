"""Batching sidecar and model server, both real, as they stand in a pod."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from slimscale.serving.sidecar.process import Sidecar
from slimscale.serving.sidecar.settings import SidecarSettings
from tests.support.model_servers import NARROW, WIDE, Asks, with_model_server
from tests.support.onnx_models import write_graph
from tests.support.sidecars import Asker, config_document, until


@asynccontextmanager
async def pod(folder: Path) -> AsyncIterator[tuple[Asker, Asks]]:
    """The sidecar's client, and the model server's."""
    async with with_model_server(folder) as (_, model_server):
        config = folder / "sidecar.json"
        config.write_text(json.dumps(config_document()))
        sidecar = Sidecar(
            SidecarSettings(
                config=config, host="127.0.0.1", port=0, status_port=0, pod_name="pod-1",
                pool="cpu", modelserver_port=model_server.port,
            )
        )  # fmt: skip
        await sidecar.start()
        asker = Asker(sidecar.server.port)
        try:
            await until(lambda: sidecar.ready() is None)
            yield asker, model_server
        finally:
            await asker.pool.close()
            await sidecar.close()


async def test_requests_of_many_clients_get_their_own_rows(tmp_path: Path) -> None:
    async with pod(tmp_path) as (asker, _):
        answers = await asyncio.gather(
            *(asker.infer([float(n), n + 0.5], model=WIDE) for n in range(40))
        )
        assert [asker.values(answer) for answer in answers] == [
            [2.0 * n, 2.0 * n + 1] for n in range(40)
        ]


async def test_a_cold_width_is_loaded_by_the_first_request_for_it(tmp_path: Path) -> None:
    async with pod(tmp_path) as (asker, model_server):
        assert await model_server.status(f"/v2/models/{NARROW}/ready") == 503
        assert asker.values(await asker.infer([4.0], model=NARROW)) == [8.0]
        assert await model_server.status(f"/v2/models/{NARROW}/ready") == 200


async def test_a_row_that_is_not_finite_spoils_no_neighbour(tmp_path: Path) -> None:
    """D8."""
    async with pod(tmp_path) as (asker, _):
        write_graph(tmp_path / "models", NARROW, "log")
        good, bad = await asyncio.gather(
            asker.infer([1.0], model=NARROW), asker.infer([-1.0], model=NARROW)
        )
        assert asker.values(good) == [0.0]
        assert all(math.isnan(value) for value in asker.values(bad))


async def test_a_broken_graph_is_an_error_with_its_reason_and_other_widths_go_on(
    tmp_path: Path,
) -> None:
    async with pod(tmp_path) as (asker, _):
        (tmp_path / "models" / NARROW / "model.onnx").write_bytes(b"none")
        refused = await asker.infer([1.0], model=NARROW)
        assert refused.status == 503
        assert "can't be loaded" in asker.error(refused)
        assert asker.values(await asker.infer([1.0], model=WIDE)) == [2.0]
