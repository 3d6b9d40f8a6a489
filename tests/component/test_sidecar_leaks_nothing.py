"""Thousands of requests, many of them given up or cut off, leave nothing behind in the sidecar."""

import asyncio
import gc
from pathlib import Path
from random import Random

import pytest

from slimscale.serving import headers as names
from tests.support.fake_model_server import FakeModelServer
from tests.support.raw_http import RawConnection
from tests.support.sidecars import Asker, until, with_sidecar

pytestmark = [pytest.mark.component, pytest.mark.slow]

BODY = b'{"inputs":[{"name":"image","shape":[1,2],"datatype":"FP32","data":[1,1]}]}'
POST = b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY), BODY,
)  # fmt: skip


async def one(asker: Asker, rng: Random) -> None:
    """In a hundred: 20 out of time at once, 5 whose client vanishes, 5 nonsense, 70 as they should."""
    dice = rng.random()
    if dice < 0.2:
        headers = {names.DEADLINE_MILLISECONDS: b"1"}
        assert (await asker.infer([1.0], headers=headers)).status in (200, 503, 504)
    elif dice < 0.25:
        connection = await RawConnection.open(asker.port)
        await connection.send(POST)
        await connection.vanish()
    elif dice < 0.3:
        assert (await asker.infer([1.0] * 99)).status == 413
    else:
        assert Asker.values(await asker.infer([2.0])) == [20.0]


async def round_of(asker: Asker, rng: Random, count: int) -> int:
    """Python's objects after so many requests."""
    for _ in range(count // 50):
        await asyncio.gather(*(one(asker, rng) for _ in range(50)))
    gc.collect()
    return len(gc.get_objects())


async def test_time_outs_and_vanished_clients_leave_nothing_behind(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    rng = Random(7)
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        await round_of(asker, rng, 500)
        before = await round_of(asker, rng, 500)
        after = await round_of(asker, rng, 2500)
        await until(lambda: sidecar.batcher.pending == 0)
        assert after < 1.02 * before
        queues = sidecar.batcher.queues
        assert (queues.rows, queues.size_bytes, queues.models()) == (0, 0, [])
        status = Asker(sidecar.status.port)
        text = (await status.raw(b"GET", "/metrics")).body
        await status.pool.close()
        assert b"slimscale_sidecar_pending_requests 0.0" in text
