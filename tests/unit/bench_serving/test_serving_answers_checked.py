"""Whether an answer belongs to its request: by id and by logits."""

import json
import struct
from pathlib import Path

import pytest

from slimscale.bench.serving.loadgen.check import Checker, Image

LOGITS = ((1.0, -2.0, 3.0), (0.5, 0.25, -4.0), (7.0, 8.0, 9.0))


def checker(*, binary: bool = False, with_id: bool = True) -> Checker:
    images = [
        Image(
            before=b'{"id":"' if with_id else b"",
            after=b'"}' + b"\x00" * 4 if binary else b'"}',
            logits=logits,
            json_bytes=18 if binary else 0,
            with_id=with_id,
        )
        for logits in LOGITS
    ]
    return Checker(images, path="/infer", host="h:1", headers=[("x-a", "b")], seed=0)


def logits_for(asked: Checker, number: int) -> list[float]:
    return next(list(row) for row in LOGITS if not asked.fault(number, v2(number, list(row)), 0))


def v2(number: int, values: list[float]) -> bytes:
    return json.dumps({"id": f"{number:09d}", "outputs": [{"data": values}]}).encode()


def test_every_request_has_one_right_answer_among_the_images() -> None:
    asked = checker()
    for number in range(20):
        right = [row for row in LOGITS if not asked.fault(number, v2(number, list(row)), 0)]
        assert len(right) == 1


def test_an_answer_of_another_request_is_found_out_by_its_id() -> None:
    asked = checker()
    values = logits_for(asked, 4)
    assert "for request 4" in asked.fault(4, v2(5, values), 0)


@pytest.mark.parametrize("value", [1.1, float("nan"), float("inf")])
def test_one_wrong_logit_is_a_wrong_answer(value: float) -> None:
    asked = checker()
    values = logits_for(asked, 2)
    assert not asked.fault(2, v2(2, values), 0)
    assert asked.fault(2, v2(2, [values[0], values[1] + value, values[2]]), 0)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'{"id":"1"}', b'{"id":"000000001","outputs":[{"data":[1.0]}]}']
)
def test_what_is_no_answer_is_a_fault_and_no_crash(body: bytes) -> None:
    assert checker().fault(1, body, 0)


def test_binary_logits_are_compared_behind_their_json() -> None:
    asked = checker(binary=True)
    head = b'{"id":"000000003"}'
    faults = [bool(asked.fault(3, head + struct.pack("<3f", *row), len(head))) for row in LOGITS]
    assert faults.count(False) == 1


def test_rows_without_an_id_are_told_apart_by_their_logits() -> None:
    asked = checker(with_id=False)
    faults = [bool(asked.fault(3, json.dumps([row]).encode(), 0)) for row in LOGITS]
    assert faults.count(False) == 1


def test_the_request_says_the_length_it_has(tmp_path: Path) -> None:
    head, _, body = checker().request(12).partition(b"\r\n\r\n")
    assert body == b'{"id":"000000012"}'
    assert b"content-length: %d" % len(body) in head
    assert b"x-a: b" in head
