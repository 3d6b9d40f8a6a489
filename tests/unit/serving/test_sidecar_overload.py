"""More work than a pod can do is refused early; what is taken is done in time or never run."""

import asyncio
import time
from pathlib import Path
from typing import Any

from slimscale.serving import headers as names
from tests.support.fake_model_server import FakeModelServer
from tests.support.raw_http import RawConnection
from tests.support.sidecars import Asker, until, with_sidecar


def within(milliseconds: int) -> dict[bytes, bytes]:
    return {names.DEADLINE_MILLISECONDS: b"%d" % milliseconds}


def sample(sidecar: Any, name: str, **labels: str) -> float:
    return float(
        sidecar.metrics.registry.get_sample_value(f"slimscale_sidecar_{name}", labels) or 0
    )


async def fill(server: FakeModelServer, sidecar: Any, asker: Asker, queued: int) -> list[Any]:
    """One request that runs and `queued` more behind it."""
    server.hold()
    tasks = [asyncio.create_task(asker.infer([0.0]))]
    await server.arrived.wait()
    tasks += [asyncio.create_task(asker.infer([float(n)])) for n in range(1, queued + 1)]
    await until(lambda: len(sidecar.batcher.queues) == queued)
    return tasks


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, queueRows=5) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 5)
        refused = await asyncio.gather(*(asker.infer([9.0]) for _ in range(20)))
        assert {answer.status for answer in refused} == {429}
        assert int(refused[0].headers[names.RETRY_AFTER]) >= 1
        assert len(sidecar.batcher.queues) == 5
        assert sample(sidecar, "rejected_total", reason="QueueRows") == 20
        server.release()
        assert [Asker.values(await task) for task in tasks] == [[10.0 * n] for n in range(6)]
        assert 9.0 not in server.seen


async def test_the_queue_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, queueBytes=1024) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 6)
        assert sidecar.batcher.queues.size_bytes <= 1024
        refused = await asker.infer([1.0] * 20)
        assert refused.status == 429
        assert "QueueBytes" in Asker.error(refused)
        server.release()
        await asyncio.gather(*tasks)
        assert sidecar.batcher.queues.size_bytes == 0


async def test_a_deadline_that_cannot_be_kept_is_refused_before_the_model(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, maxRows=1) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 3)
        for _ in range(20):
            sidecar.batcher.models["digits-w100"].times.observe(1, 1.0)
        answer = await asker.infer([9.0], headers=within(500))
        assert answer.status == 503
        assert "the deadline leaves" in Asker.error(answer)
        assert int(answer.headers[names.RETRY_AFTER]) >= 1
        server.release()
        await asyncio.gather(*tasks)
        assert 9.0 not in server.seen


async def test_what_has_waited_past_its_deadline_never_reaches_the_model(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 0)
        late = await asker.infer([9.0], headers=within(30))
        assert late.status == 504
        assert sidecar.batcher.queues.rows == 0
        server.release()
        await asyncio.gather(*tasks)
        assert 9.0 not in server.seen
        assert sample(sidecar, "rejected_total", reason="DeadlinePassed") == 1


async def test_a_deadline_that_passes_while_the_batch_runs_is_answered_then(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        server.hold()
        late = await asker.infer([1.0], headers=within(30))
        assert late.status == 504
        assert sidecar.batcher.up  # a slow batch is not a lost model server
        asked = server.calls.count("INFER digits-w100")
        server.release()
        await until(lambda: sidecar.batcher.pending == 0)
        assert Asker.values(await asker.infer([2.0])) == [20.0]
        assert server.calls.count("INFER digits-w100") == asked + 1


async def test_a_batch_with_a_late_request_in_it_still_answers_the_others(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    gate = asyncio.Event()

    async def blocked(rows: Any) -> None:
        if 9.0 in rows:
            await gate.wait()

    server.meanwhile = blocked
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 1)
        late = asyncio.create_task(asker.infer([9.0], headers=within(300)))
        await until(lambda: len(sidecar.batcher.queues) == 2)
        server.release()
        assert (await late).status == 504
        gate.set()
        assert [Asker.values(await task) for task in tasks] == [[0.0], [10.0]]


async def test_ten_times_the_capacity_leaves_a_flat_queue_and_answers_in_time(
    tmp_path: Path,
) -> None:
    """Batches of 8 rows take 5 ms; 10 times that arrives, each with 100 ms to live."""
    server = FakeModelServer("digits-w100")

    async def compute(_rows: Any) -> None:
        await asyncio.sleep(0.005)

    server.meanwhile = compute
    late = 0
    statuses: dict[int, int] = {}
    deepest = 0
    async with with_sidecar(tmp_path, server, maxRows=8, queueRows=64) as (sidecar, asker):
        for _ in range(10):
            await asker.infer([0.0])

        async def one() -> None:
            nonlocal late, deepest
            began = time.monotonic()
            answer = await asker.infer([1.0], headers=within(100))
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            late += answer.status == 200 and time.monotonic() - began > 1.0
            deepest = max(deepest, sidecar.batcher.queues.rows)

        for _ in range(10):
            await asyncio.gather(*(one() for _ in range(40)))
        assert deepest <= 64
        assert set(statuses) <= {200, 429, 503, 504}
        assert statuses[200] >= 10
        assert late == 0
        await until(lambda: sidecar.batcher.pending == 0)
        assert Asker.values(await asker.infer([3.0])) == [30.0]


async def test_impatient_clients_leave_nothing_behind_and_others_are_served(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, queueRows=1000) as (sidecar, asker):
        server.hold()
        impatient = [asyncio.create_task(asker.infer([float(n)], seconds=0.01)) for n in range(200)]
        failures = await asyncio.gather(*impatient, return_exceptions=True)
        assert all(isinstance(failure, Exception) for failure in failures)
        await until(lambda: len(sidecar.batcher.queues) == 0)
        server.release()
        answers = await asyncio.gather(*(asker.infer([1000.0 + n]) for n in range(200)))
        assert [Asker.values(answer) for answer in answers] == [
            [10.0 * (1000 + n)] for n in range(200)
        ]
        assert sidecar.batcher.pending == 0
        assert sidecar.batcher.queues.size_bytes == 0
        ran = [value for value in server.seen if value < 1000]
        assert len(ran) <= 33  # a batch was running when they left; the rest never ran


async def test_a_client_that_vanishes_in_the_queue_is_dropped_before_the_model(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        tasks = await fill(server, sidecar, asker, 0)
        gone = await RawConnection.open(asker.port)
        body = b'{"inputs":[{"name":"image","shape":[1,2],"datatype":"FP32","data":[9,9]}]}'
        await gone.send(
            b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        await until(lambda: len(sidecar.batcher.queues) == 1)
        await gone.vanish()
        await until(lambda: len(sidecar.batcher.queues) == 0)
        server.release()
        await asyncio.gather(*tasks)
        assert 9.0 not in server.seen
        assert sample(sidecar, "rejected_total", reason="ClientGone") == 1


async def test_a_body_larger_than_any_batch_is_refused_without_being_parsed(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        nonsense = b"[" * 1_000_000  # parsed, it would be a 400
        answer = await asker.raw(b"POST", "/v2/models/digits/infer", body=nonsense)
        assert answer.status == 413
        assert "32 rows" in Asker.error(answer)


async def test_a_hundred_megabytes_and_slow_bodies_bother_nobody_else(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        large = await RawConnection.open(asker.port)
        await large.send(
            b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 104857600\r\n\r\n"
        )
        assert (await large.answer())[0] == 413
        slow = await RawConnection.open(asker.port)
        await slow.send(b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: a\r\ncontent-le")
        assert Asker.values(await asker.infer([1.0])) == [10.0]
        sidecar.server.sweep(asyncio.get_running_loop().time() + 1000.0)
        assert (await slow.answer())[0] == 408
        assert sample(sidecar, "rejected_total", reason="Http") == 2
        await large.close()
        await slow.close()
