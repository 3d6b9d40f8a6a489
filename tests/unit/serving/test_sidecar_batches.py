"""Greedy batches: what queues while one runs goes next, and each caller gets exactly its rows."""

import asyncio
from pathlib import Path

from tests.support.fake_model_server import FakeModelServer
from tests.support.sidecars import Asker, until, with_sidecar


async def test_what_queues_while_a_batch_runs_is_the_next_batch(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        server.hold()
        before = len(server.batches)
        first = asyncio.create_task(asker.infer([1.0]))
        await server.arrived.wait()
        rest = [asyncio.create_task(asker.infer([value])) for value in (2.0, 3.0, 4.0)]
        await until(lambda: sidecar.batcher.queues.rows == 3)
        server.release()
        answers = [Asker.values(await task) for task in (first, *rest)]
        assert answers == [[10.0], [20.0], [30.0], [40.0]]
        assert server.batches[before:] == [1, 3]
