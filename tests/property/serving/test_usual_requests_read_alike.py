"""The short way of reading a request gives what the long way gives, or leaves it to that."""

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.requests import InferRequest, parse_request
from slimscale.serving.protocol.usual import usual_tensor

SPEC = TensorSpec("image", "FP32", (-1, 2))
OTHER = TensorSpec("other", "FP32", (-1, 2))

NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(2**40), 2**40), st.booleans(), st.sampled_from([1e39, None, "1"]),
)  # fmt: skip
ENTRIES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["image", "image", "image", "x", 1]),
        "datatype": st.sampled_from(["FP32", "FP32", "FP32", "FP64", "INT8"]),
        "shape": st.sampled_from([[1, 2], [2, 2], [2, 2.0], [True, 2], [0, 2], [2], [1, 3], "1"]),
    },
    optional={
        "data": st.one_of(st.lists(NUMBERS, max_size=5), st.just([[1.0, 2.0]])),
        "parameters": st.sampled_from(
            [{}, {"binary_data_size": 8}, {"binary_data_size": 16}, {"binary_data_size": 8.0}]
        ),
        "more": st.just(1),
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": st.lists(ENTRIES, min_size=1, max_size=2)},
    optional={
        "id": st.sampled_from(["a", "", 3, None, "b" * 1025]),
        "outputs": st.sampled_from([[{"name": "logits"}], [{}], [], 1, None]),
        "parameters": st.sampled_from([{}, {"binary_data_output": True}, 1]),
    },
)


def read(document: Any, tail: bytes | None, expected: tuple[TensorSpec, ...]) -> Any:
    text = json.dumps(document).encode()
    headers = {} if tail is None else {INFERENCE_HEADER_LENGTH: b"%d" % len(text)}
    try:
        return parse_request(headers, text + (tail or b""), expected=expected, max_rows=1)
    except InvalidRequest as error:
        return error.status, str(error)


@given(
    DOCUMENTS,
    st.sampled_from([None, b"", np.ones(2, "<f4").tobytes(), b"\0\0\xc0\x7f" * 2, b"12345"]),
)
def test_short_and_long_way_agree(document: Any, tail: bytes | None) -> None:
    short = read(document, tail, (SPEC,))
    tensor = usual_tensor(document, SPEC, memoryview(tail or b""))
    # Without expectations only the long way is gone.
    long = read(document, tail, ())
    if tensor is None:
        return
    if not isinstance(short, InferRequest) or not isinstance(long, InferRequest):
        assert short == long
        return
    assert (short.id, short.rows, short.outputs) == (long.id, long.rows, long.outputs)
    assert short.binary_outputs == long.binary_outputs
    assert short.inputs[0].array.shape == long.inputs[0].array.shape
    assert short.inputs[0].array.tobytes() == long.inputs[0].array.tobytes()


def test_a_usual_request_takes_the_short_way() -> None:
    document = {"id": "a", "inputs": [
        {"name": "image", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
    ]}  # fmt: skip
    assert usual_tensor(document, SPEC, memoryview(b"")) is not None
    assert usual_tensor(document, OTHER, memoryview(b"")) is None
