"""Greedy batches: what queues while one runs goes next, and each caller gets exactly its rows."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slimscale.routing.batching_table import BatchingTable
from slimscale.serving import headers as names
from slimscale.serving.sidecar import batcher
from slimscale.serving.telemetry import decode_telemetry
from tests.support.fake_model_server import FakeModelServer
from tests.support.sidecars import Asker, until, with_sidecar


def cap(rows: int) -> dict[bytes, bytes]:
    return {names.BATCH_CAP: b"%d" % rows}


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


async def test_rows_are_counted_not_requests_and_the_smallest_cap_holds(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, maxRows=8) as (sidecar, asker):
        server.hold()
        before = len(server.batches)
        tasks = [asyncio.create_task(asker.infer([0.0]))]
        await server.arrived.wait()
        for number, (rows, headers) in enumerate(
            [(4, {}), (3, {}), (2, cap(4)), (1, {}), (2, {}), (5, cap(2))]
        ):
            tasks.append(asyncio.create_task(asker.infer([float(number)] * rows, headers=headers)))
            await until(lambda expected=number + 1: len(sidecar.batcher.queues) == expected)  # type: ignore[misc]
        server.release()
        for task in tasks:
            Asker.values(await task)
        # 4 + 3 fit into 8, then a cap of 4 takes 2 + 1, not 2 more; a cap below its own rows runs alone
        assert server.batches[before:] == [1, 7, 3, 2, 5]


async def test_the_earliest_deadline_goes_first(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, maxRows=1) as (sidecar, asker):
        order: list[float] = []

        def compute(rows: Any) -> Any:
            order.append(float(rows[0, 0]))
            return rows

        server.compute = compute
        server.hold()
        tasks = [asyncio.create_task(asker.infer([0.0]))]
        await server.arrived.wait()
        for value, left in ((1.0, 30_000), (2.0, 10_000), (3.0, 20_000)):
            headers = {names.DEADLINE_MILLISECONDS: b"%d" % left}
            tasks.append(asyncio.create_task(asker.infer([value], headers=headers)))
        await until(lambda: len(sidecar.batcher.queues) == 3)
        server.release()
        await asyncio.gather(*tasks)
        assert order == [0.0, 2.0, 3.0, 1.0]


async def test_widths_never_share_a_batch_and_one_batch_runs_at_a_time(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100", "digits-w050")
    async with with_sidecar(tmp_path, server) as (_, asker):
        models = ["digits-w100", "digits-w050"] * 4
        answers = await asyncio.gather(*(asker.infer([1.0], model=model) for model in models))
        assert [dict(answer.headers)[names.MODEL].decode() for answer in answers] == models
        assert server.most_running == 1


async def test_replies_tell_how_the_pod_is_doing(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    server.device = {"utilisation": 0.5, "memory_free_bytes": 10, "device": "GPU-1"}
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        await until(lambda: sidecar.batcher.device is not None)
        answer = await asker.infer([1.0, 2.0])
        assert answer.headers[names.POD] == b"pod-1"
        assert answer.headers[names.POOL] == b"cpu"
        assert answer.headers[names.BATCH_ROWS] == b"2"
        assert float(answer.headers[names.QUEUE_MILLISECONDS]) >= 0
        assert float(answer.headers[names.COMPUTE_MILLISECONDS]) > 0
        telemetry = decode_telemetry(answer.headers[names.TELEMETRY])
        assert [(width.model, width.instances) for width in telemetry.widths] == [
            ("digits-w050", 0), ("digits-w100", 1)
        ]  # fmt: skip
        assert (telemetry.utilisation, telemetry.memory_free_bytes) == (0.5, 10)
        assert telemetry.power_watts is None
        assert telemetry.widths[1].base_seconds is not None
        polled = decode_telemetry((await asker.raw(b"GET", "/telemetry")).body)
        assert polled.queued_rows == polled.running_rows == 0


async def test_json_and_binary_requests_share_a_batch_each_answered_in_its_own_form(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        server.hold()
        before = len(server.batches)
        tasks = [asyncio.create_task(asker.infer([0.0]))]
        await server.arrived.wait()
        text = (
            b'{"id":"x","inputs":[{"name":"image","shape":[1,2],"datatype":"FP32","data":[5,5]}]}'
        )
        tasks.append(asyncio.create_task(asker.raw(b"POST", "/v2/models/digits/infer", body=text)))
        tasks.append(asyncio.create_task(asker.infer([6.0])))
        await until(lambda: sidecar.batcher.queues.rows == 2)
        server.release()
        _, plain, binary = await asyncio.gather(*tasks)
        assert server.batches[before:] == [1, 2]
        assert b'"data":[50.0,50.0]' in plain.body
        assert b'"id":"x"' in plain.body
        assert Asker.values(binary) == [60.0]


async def test_a_full_batch_never_waits_and_a_lone_request_waits_no_longer_than_allowed(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, maxRows=2, holdMilliseconds=60, queueRows=100) as (
        sidecar,
        asker,
    ):
        loop = asyncio.get_running_loop()
        model = sidecar.batcher.models["digits-w100"]
        model.times.observe(1, 0.001)
        for at in range(20):  # as if many came: a wait is worth while
            model.arrivals.arrived(loop.time() - (20 - at) / 1000)
        server.hold()
        before = len(server.batches)
        lone = asyncio.create_task(asker.infer([1.0]))
        await until(lambda: sidecar.batcher.queues.rows == 1)
        assert server.batches[before:] == []
        full = asyncio.create_task(asker.infer([2.0]))
        await server.arrived.wait()
        assert server.batches[before:] == [2]
        server.release()
        await asyncio.gather(lone, full)
        await asker.infer([3.0])  # alone: the timer sends it
        assert server.batches[before:] == [2, 1]


async def test_with_a_busy_cost_an_idle_instance_waits_for_the_tables_rows_and_serves_all_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = BatchingTable((0.0,), (0.01,), (0.5,), (((3,),),), 32)
    monkeypatch.setattr(batcher, "shipped_batching_table", lambda: table)
    server = FakeModelServer("digits-w100")
    settings: dict[str, Any] = {"maxRows": 32, "holdMilliseconds": 10_000, "busyCost": 1}
    async with with_sidecar(tmp_path, server, **settings) as (sidecar, asker):
        loop = asyncio.get_running_loop()
        model = sidecar.batcher.models["digits-w100"]
        model.times.observe(1, 0.001)
        for at in range(20):
            model.arrivals.arrived(loop.time() - (20 - at) / 1000)
        before = len(server.batches)
        tasks = [asyncio.create_task(asker.infer([float(n)])) for n in range(2)]
        await until(lambda: sidecar.batcher.queues.rows == 2)
        assert server.batches[before:] == []  # two are too few
        server.hold()
        tasks.append(asyncio.create_task(asker.infer([2.0])))
        await server.arrived.wait()
        tasks += [asyncio.create_task(asker.infer([float(n)])) for n in range(3, 8)]
        await until(lambda: sidecar.batcher.queues.rows == 5)
        server.release()
        await asyncio.gather(*tasks)
        assert server.batches[before:] == [3, 5]  # what queued meanwhile goes as one batch


@pytest.mark.parametrize("hold", [0, 1, 10_000])
async def test_batches_of_one_row_never_wait(tmp_path: Path, hold: int) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, maxRows=1, holdMilliseconds=hold) as (_, asker):
        answers = await asyncio.gather(*(asker.infer([float(n)]) for n in range(5)))
        assert [Asker.values(answer) for answer in answers] == [[10.0 * n] for n in range(5)]


def hold(milliseconds: int, rows: int) -> dict[bytes, bytes]:
    return {names.HOLD_MILLISECONDS: b"%d" % milliseconds} | cap(rows)


async def test_a_request_that_may_wait_is_batched_with_those_that_come_meanwhile(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        for rows in (1, 2, 3, 4) * 3:  # how long a batch takes has to be known
            await asker.infer([0.0] * rows)
        before = len(server.batches)
        waiting = [asyncio.create_task(asker.infer([1.0], headers=hold(10_000, 3)))]
        await until(lambda: sidecar.batcher.queues.rows == 1)
        waiting.append(asyncio.create_task(asker.infer([2.0], headers=hold(10_000, 3))))
        await until(lambda: sidecar.batcher.queues.rows == 2)
        assert server.batches[before:] == []
        waiting.append(asyncio.create_task(asker.infer([3.0], headers=hold(10_000, 3))))
        answers = [Asker.values(await task) for task in waiting]
        assert answers == [[10.0], [20.0], [30.0]]
        assert server.batches[before:] == [3]


async def test_a_hold_ends_by_itself_and_by_one_that_does_not_wait(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        for rows in (1, 2, 3, 4) * 3:
            await asker.infer([0.0] * rows)
        before = len(server.batches)
        assert Asker.values(await asker.infer([1.0], headers=hold(1, 32))) == [10.0]
        first = asyncio.create_task(asker.infer([2.0], headers=hold(10_000, 32)))
        await until(lambda: sidecar.batcher.queues.rows == 1)
        sooner = {names.DEADLINE_MILLISECONDS: b"5000"}
        assert Asker.values(await asker.infer([3.0], headers=sooner)) == [30.0]
        assert Asker.values(await first) == [20.0]
        assert server.batches[before:] == [1, 2]


async def test_a_hold_that_is_no_number_is_refused_by_name(tmp_path: Path) -> None:
    async with with_sidecar(tmp_path, FakeModelServer("digits-w100")) as (_, asker):
        answer = await asker.infer([1.0], headers={names.HOLD_MILLISECONDS: b"soon"})
        assert answer.status == 400
        assert b"slimscale-hold-ms: 'soon'; send whole milliseconds" in answer.body
