"""The baseline: window batching as KServe's agent does it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from slimscale.bench.serving.servers.tensors import Asked
from slimscale.bench.serving.servers.window import WindowBatcher

Rows = NDArray[np.float32]


def asked(value: float, rows: int = 1) -> Asked:
    return Asked(str(value), np.full((rows, 2), value, np.float32), binary=False)


@asynccontextmanager
async def batching(
    *, rows: int, window_seconds: float, hold: asyncio.Event | None = None
) -> AsyncIterator[tuple[WindowBatcher, list[int]]]:
    sizes: list[int] = []

    async def predict(batch: Rows) -> Any:
        sizes.append(len(batch))
        if hold is not None:
            await hold.wait()
        return batch * 10

    batcher = WindowBatcher(predict, rows=rows, window_seconds=window_seconds, model="m")
    task = asyncio.get_running_loop().create_task(batcher.run())
    try:
        yield batcher, sizes
    finally:
        task.cancel()


async def test_a_full_batch_fires_without_waiting_for_the_window() -> None:
    async with batching(rows=3, window_seconds=3600.0) as (batcher, sizes):
        answers = await asyncio.gather(*(batcher.take(asked(v)) for v in (1.0, 2.0, 3.0)))
    assert sizes == [3]
    assert [answer.status for answer in answers] == [200] * 3
    assert b"[20.0, 20.0]" in bytes(answers[1].body)  # type: ignore[arg-type]


async def test_an_idle_server_still_waits_for_the_window() -> None:
    async with batching(rows=3, window_seconds=3600.0) as (batcher, sizes):
        answer = batcher.take(asked(1.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not answer.done()
        assert sizes == []


async def test_a_window_that_is_over_fires_what_there_is() -> None:
    async with batching(rows=32, window_seconds=0.01) as (batcher, sizes):
        await asyncio.gather(batcher.take(asked(1.0)), batcher.take(asked(2.0)))
    assert sizes == [2]


async def test_a_window_ends_though_the_clock_is_behind_its_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    stopped = loop.time()
    async with batching(rows=32, window_seconds=0.001) as (batcher, sizes):
        answer = batcher.take(asked(1.0))
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "_clock_resolution", 1.0)
        monkeypatch.setattr(loop, "time", lambda: stopped)
        for _ in range(20):
            await asyncio.sleep(0)
        monkeypatch.undo()
        assert answer.done()
    assert sizes == [1]


async def test_nothing_is_taken_in_while_a_batch_runs() -> None:
    hold = asyncio.Event()
    async with batching(rows=2, window_seconds=3600.0, hold=hold) as (batcher, sizes):
        answers = [batcher.take(asked(float(v))) for v in range(6)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert sizes == [2]
        hold.set()
        await asyncio.gather(*answers)
    assert sizes == [2, 2, 2]


async def test_each_request_gets_its_own_rows_back() -> None:
    async with batching(rows=4, window_seconds=3600.0) as (batcher, _):
        first, second = await asyncio.gather(
            batcher.take(asked(1.0, rows=3)), batcher.take(asked(2.0))
        )
    assert b'"shape": [3, 2]' in bytes(first.body)  # type: ignore[arg-type]
    assert b'"shape": [1, 2]' in bytes(second.body)  # type: ignore[arg-type]
    assert b"20.0" in bytes(second.body)  # type: ignore[arg-type]
