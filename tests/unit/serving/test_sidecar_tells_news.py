"""What is read or written once serves as long as nothing changes, and not a moment longer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.serving import headers as names
from slimscale.serving.protocol import (
    InvalidRequest,
    Tensor,
    TensorSpec,
    encode_response,
    parse_request,
    parse_response,
)
from slimscale.serving.sidecar.pending import ModelState
from slimscale.serving.telemetry import decode_telemetry
from tests.support.fake_model_server import FakeModelServer
from tests.support.sidecars import Asker, until, with_sidecar

EXPECTED = (TensorSpec("image", "FP32", (-1, 2)),)


def within(milliseconds: int) -> dict[bytes, bytes]:
    return {names.DEADLINE_MILLISECONDS: b"%d" % milliseconds}


# ---- telemetry


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60), st.sampled_from([1, 4, 32]))
def test_times_told_are_within_a_fiftieth_of_those_measured(jitter: list[float], rows: int) -> None:
    model = ModelState("w100", 0.0)
    for factor in jitter:
        model.times.observe(rows, factor * (0.002 + 0.0003 * rows))
        base, row = model.told_times()
        assert base is not None
        assert row is not None
        for count in (1, 32):
            measured = model.times.seconds(count)
            assert measured is not None
            # both are bounded where they are told, so that between them it holds as well
            assert base + row * count == pytest.approx(measured, rel=0.0205)


def test_times_that_waver_a_little_are_told_as_before_and_nothing_measured_is_unknown() -> None:
    model = ModelState("w100", 0.0)
    assert model.told_times() == (None, None)
    for _ in range(50):
        model.times.observe(4, 0.003)
    told = model.told_times()
    model.times.observe(4, 0.00303)
    assert model.times.base_seconds != told[0]
    assert model.told_times() == told
    for _ in range(50):
        model.times.observe(4, 0.0045)
    assert model.told_times() != told


async def test_a_reply_s_telemetry_follows_each_change_of_the_pod(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):

        async def told(answer: Any) -> Any:
            return decode_telemetry(answer.headers[names.TELEMETRY])

        assert not (await told(await asker.infer([1.0]))).draining
        server.hold()
        tasks = [asyncio.create_task(asker.infer([1.0]))]
        await server.arrived.wait()
        tasks += [asyncio.create_task(asker.infer([2.0], model="digits-w050"))]
        await until(lambda: len(sidecar.batcher.queues) == 1)
        server.release()
        first = await told(await tasks[0])
        waiting = {width.model: width.queued_rows + width.running_rows for width in first.widths}
        assert waiting == {"digits-w050": 1, "digits-w100": 0}
        await tasks[1]
        sidecar.batcher.draining = True
        last = await told(await asker.infer([1.0]))
        assert last.draining
        assert last.queued_rows == 0


# ---- deadlines in flight


async def test_a_timer_left_by_an_earlier_batch_cuts_no_later_one_short_and_none_is_missed(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        assert Asker.values(await asker.infer([1.0], headers=within(40))) == [10.0]
        server.hold()
        late = asyncio.create_task(asker.infer([2.0], headers=within(80)))
        await server.arrived.wait()
        patient = asyncio.create_task(asker.infer([3.0]))
        assert (await late).status == 504
        assert sidecar.batcher.up  # told at its deadline, not when the batch was given up as stuck
        server.release()
        assert Asker.values(await patient) == [30.0]
        await until(lambda: sidecar.batcher.pending == 0)


# ---- heads of binary messages


def binary(rows: list[list[float]], *, shape: list[int], size: int) -> tuple[Any, bytes]:
    tensor = {
        "name": "image", "datatype": "FP32", "shape": shape,
        "parameters": {"binary_data_size": size},
    }  # fmt: skip
    head = json.dumps({"inputs": [tensor]}).encode()
    raw = np.array(rows, np.float32).tobytes()
    return {names.INFERENCE_HEADER_LENGTH: b"%d" % len(head)}, head + raw


def test_requests_with_the_same_head_keep_their_own_numbers() -> None:
    read = [
        parse_request(*binary([row], shape=[1, 2], size=8), expected=EXPECTED)
        for row in ([1.0, 2.0], [3.0, 4.0])
    ]
    assert [one.inputs[0].array.tolist() for one in read] == [[[1.0, 2.0]], [[3.0, 4.0]]]


def test_a_wrong_head_is_refused_each_time() -> None:
    headers, body = binary([[1.0, 2.0]], shape=[1, 3], size=8)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="shape"):
            parse_request(headers, body, expected=EXPECTED)


def test_answers_with_the_same_head_keep_their_own_numbers_and_a_short_one_is_refused() -> None:
    def answer(*rows: float) -> tuple[dict[bytes, bytes], bytes]:
        arrays = [np.array([[value, -value]], np.float32) for value in rows]
        outputs = [(Tensor(f"out{n}", "FP32", array), True) for n, array in enumerate(arrays)]
        response = encode_response(model="m", outputs=outputs)
        assert isinstance(response.body, bytes)
        return dict(response.headers), response.body

    for values in ((1.0, 2.0), (3.0, 4.0)):
        read = parse_response(*answer(*values))
        assert [tensor.name for tensor in read] == ["out0", "out1"]
        assert [tensor.array.tolist() for tensor in read] == [[[v, -v]] for v in values]
    headers, body = answer(5.0, 6.0)
    for wrong in (body[:-4], body[:-1]):
        with pytest.raises(ValueError, match="bytes of binary data"):
            parse_response(headers, wrong)
