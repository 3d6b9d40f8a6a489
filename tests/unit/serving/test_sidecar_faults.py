"""What goes wrong in a batch or in the model server touches no request that is not to blame."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slimscale.serving.http import ClientResponse
from slimscale.serving.protocol import error_response, json_response
from tests.support.fake_model_server import FakeModelServer, echo
from tests.support.sidecars import Asker, until, with_sidecar

BAD = 666.0


async def together(
    server: FakeModelServer, sidecar: Any, asker: Asker, groups: list[list[float]]
) -> list[ClientResponse]:
    """The answers to requests that were in one batch, behind another one."""
    server.hold()
    first = asyncio.create_task(asker.infer([0.5]))
    await server.arrived.wait()
    tasks = [asyncio.create_task(asker.infer(values)) for values in groups]
    await until(lambda: len(sidecar.batcher.queues) == len(groups))
    server.release()
    await first
    return list(await asyncio.gather(*tasks))


@pytest.mark.parametrize(("status", "answered"), [(400, 400), (500, 502)])
async def test_a_bad_request_fails_alone(tmp_path: Path, status: int, answered: int) -> None:
    server = FakeModelServer("digits-w100")
    server.fault = lambda rows: error_response(status, "no") if BAD in rows else None
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        groups = [[1.0], [2.0, 3.0], [BAD, 4.0], [5.0], [6.0]]
        answers = await together(server, sidecar, asker, groups)
        assert [answer.status for answer in answers] == [200, 200, answered, 200, 200]
        for values, answer in zip(groups, answers, strict=True):
            if answer.status == 200:
                assert Asker.values(answer) == [value * 10 for value in values]
        assert max(server.seen.values()) == 1  # what succeeded ran once
        assert sidecar.batcher.pending == 0


@pytest.mark.parametrize(
    "wrong",
    [lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows]), lambda rows: rows[0]],
)
async def test_a_wrong_number_of_rows_fails_the_whole_batch(tmp_path: Path, wrong: Any) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        server.compute = lambda rows: echo(rows) if len(rows) == 1 else wrong(echo(rows))
        answers = await together(server, sidecar, asker, [[1.0], [2.0, 3.0], [4.0]])
        assert [answer.status for answer in answers] == [502, 502, 502]
        assert "rows" in Asker.error(answers[0])
        assert Asker.values(await asker.infer([7.0])) == [70.0]


async def test_outputs_that_are_not_finite_stay_with_their_row(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")

    def compute(rows: Any) -> Any:
        outputs = echo(rows)
        outputs[rows[:, 0] == BAD] = np.nan
        return outputs

    server.compute = compute
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        answers = await together(server, sidecar, asker, [[1.0], [BAD], [2.0]])
        assert [Asker.values(answers[0]), Asker.values(answers[2])] == [[10.0], [20.0]]
        assert np.isnan(Asker.values(answers[1])).all()
        text = json.dumps(
            {"inputs": [{"name": "image", "shape": [1, 2], "datatype": "FP32", "data": [BAD, BAD]}]}
        ).encode()
        answer = await asker.raw(b"POST", "/v2/models/digits-w100/infer", body=text)
        assert json.loads(answer.body)["outputs"][0]["data"] == [None, None]
        count = sidecar.metrics.registry.get_sample_value
        assert count("slimscale_sidecar_non_finite_requests_total") == 2


async def test_a_killed_model_server_loses_no_request_and_doubles_no_answer(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        server.hold()
        tasks = [asyncio.create_task(asker.infer([0.0]))]
        await server.arrived.wait()
        tasks += [asyncio.create_task(asker.infer([float(n)])) for n in range(1, 20)]
        await until(lambda: sidecar.batcher.queues.rows == 19)
        await server.stop()
        await until(lambda: not sidecar.batcher.up)
        assert sidecar.ready() is not None
        tasks.append(asyncio.create_task(asker.infer([20.0])))  # comes while it is gone: waits
        await until(lambda: sidecar.batcher.queues.rows == 21)
        server.release()
        await server.start()
        answers = [Asker.values(await task) for task in tasks]
        assert answers == [[10.0 * n] for n in range(21)]
        assert sidecar.batcher.pending == 0
        assert sidecar.ready() is None


async def test_a_request_that_kills_the_model_server_again_and_again_fails_alone(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    restarts: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await server.stop()
        await server.start()

    async def deadly(rows: Any) -> None:
        if BAD in rows:
            restarts.append(asyncio.create_task(restart()))
            await asyncio.Event().wait()  # it never answers: its connection breaks

    server.meanwhile = deadly
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        answers = await together(server, sidecar, asker, [[1.0], [BAD], [2.0]])
        assert [answer.status for answer in answers] == [200, 502, 200]
        assert "lost 3 times" in Asker.error(answers[1])
        assert len(restarts) == 3
        await asyncio.gather(*restarts)
        assert sidecar.batcher.pending == 0


async def test_requests_wait_for_a_lost_model_server_no_longer_than_their_deadline(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        await server.stop()
        sidecar.batcher.up = False
        answer = await asker.infer([1.0], headers={b"slimscale-deadline-ms": b"50"})
        assert answer.status == 504
        assert "deadline" in Asker.error(answer)
        assert sidecar.batcher.pending == 0


async def test_a_model_that_was_unloaded_behind_our_back_is_loaded_again(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        server.loaded.clear()
        assert Asker.values(await asker.infer([1.0])) == [10.0]
        assert "LOAD digits-w100" in server.calls


async def test_a_model_that_cannot_be_loaded_is_refused_and_says_why(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        server.load_refusal = error_response(500, "no memory left")
        for _ in range(2):
            answer = await asker.infer([1.0], model="digits-w050")
            assert answer.status == 503
            assert "no memory left" in Asker.error(answer)
        assert server.calls.count("LOAD digits-w050") == 1
        assert Asker.values(await asker.infer([1.0])) == [10.0]


async def test_nonsense_from_the_model_server_is_a_502(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        server.fault = lambda _rows: json_response({"outputs": "none"})
        answer = await asker.infer([1.0])
        assert answer.status == 502
        server.fault = lambda _rows: None
        assert Asker.values(await asker.infer([1.0])) == [10.0]
