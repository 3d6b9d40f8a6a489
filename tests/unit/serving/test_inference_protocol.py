"""The Open Inference Protocol: what is read, what is refused by name, what is written."""

import json
from typing import Any

import numpy as np
import pytest

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.protocol import (
    InvalidRequest,
    ModelMetadata,
    Resource,
    Tensor,
    TensorSpec,
    encode_batch,
    encode_response,
    error_response,
    parse_path,
    parse_request,
    parse_response,
    peek_rows,
    select_outputs,
)
from slimscale.serving.protocol.tensors import DATATYPES

EXPECTED = (TensorSpec("image", "FP32", (-1, 2)),)
HEAD = INFERENCE_HEADER_LENGTH


def body(**changes: Any) -> dict[str, Any]:
    tensor = {"name": "image", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
    return {"inputs": [tensor | changes]}


def read(document: Any, **headers: Any) -> Any:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_request({}, text, expected=EXPECTED)


def binary(document: dict[str, Any], raw: bytes) -> tuple[dict[bytes, bytes], bytes]:
    head = json.dumps(document).encode()
    return {HEAD: b"%d" % len(head)}, head + raw


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [1.0, 2, 3.0, 4]])
def test_numbers_come_flat_or_nested(data: list[Any]) -> None:
    request = read(body(data=data))
    assert request.rows == 2
    assert request.inputs[0].array.dtype == np.float32
    assert request.inputs[0].array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("as_binary", [True, False])
def test_every_datatype_survives_the_way_there_and_back(datatype: str, as_binary: bool) -> None:
    array = np.array([[1, 0], [1, 1]]).astype(DATATYPES[datatype])
    tensor: dict[str, Any] = {"name": "x", "shape": [2, 2], "datatype": datatype}
    if as_binary:
        tensor["parameters"] = {"binary_data_size": array.nbytes}
        headers, text = binary({"inputs": [tensor]}, array.tobytes())
    else:
        tensor["data"] = array.tolist()
        headers, text = {}, json.dumps({"inputs": [tensor]}).encode()
    request = parse_request(headers, text)
    assert request.inputs[0].array.dtype == array.dtype
    assert np.array_equal(request.inputs[0].array, array)
    answer = encode_response(model="m", outputs=[(request.inputs[0], as_binary)])
    (back,) = parse_response(dict(answer.headers), bytes(answer.body))  # type: ignore[arg-type]
    assert np.array_equal(back.array, array)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "body: not valid JSON"),
        (b"[" * 100_000, "body: not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"inputs": NaN}', "not valid JSON"),
        (b'{"inputs": ' + b"9" * 5000 + b"}", "not valid JSON"),
        ({"inputs": []}, "inputs: empty"),
        ({"inputs": {}}, "inputs: not a list"),
        ({}, "inputs: not a list"),
        ({"inputs": [3]}, "inputs[0]: not an object"),
        ({"inputs": [{}] * 65}, "at most 64"),
        (body(name=3), "inputs[0].name"),
        (body(name="other"), "exactly these tensors: image"),
        (body(datatype="BYTES"), "inputs[0].datatype: 'BYTES' is not served"),
        (body(datatype="FP64"), "inputs[0].datatype: FP64; the model takes FP32"),
        (body(shape=[2, 3]), "inputs[0].data: 4 numbers, but shape [2, 3] takes 6"),
        (body(shape=[4]), "inputs[0].shape: [4]; the model takes [-1, 2]"),
        (body(shape=[0, 2], data=[]), "no rows"),
        (body(shape=[-1, 2]), "inputs[0].shape"),
        (body(shape=[2**40, 2**40]), "inputs[0].shape"),
        (body(shape=[2**30, 2**30]), "takes"),
        (body(shape=[True, 2]), "inputs[0].shape"),
        (body(shape="2"), "inputs[0].shape"),
        (body(shape=[1] * 17), "inputs[0].shape"),
        (body(data=[1, 2, 3]), "3 numbers"),
        (body(data=[[1, 2, 3, 4]]), "nested as [1, 4]"),
        (body(data=[[1, 2], [3]]), "lists of unlike lengths"),
        (body(data=["a", "b", "c", "d"]), "inputs[0].data"),
        (body(data=[1, 2, 3, None]), "inputs[0].data"),
        (body(data=[True, False, True, True]), "send numbers"),
        (body(data="1234"), "inputs[0].data: not a list"),
        (body(data={"a": 1}), "inputs[0].data: not a list"),
        (body(data=[1, 2, 3, 10**400]), "not valid JSON|inputs[0].data"),
        (body(data=[1, 2, 3, 10**39]), "too large for FP32"),
        (body(data=[1, 2, 3, 1e300]), "not finite, or too large for FP32"),
        (b'{"inputs":[{"name":"image","shape":[1,2],"datatype":"FP32","data":[1e999,1]}]}', "not finite"),
        (body(parameters={"binary_data_size": 16}), "Inference-Header-Content-Length"),
        (body(parameters=[]), "inputs[0].parameters: not an object"),
        (body(parameters={"shared_memory_region": "a"}), "shared memory is not served"),
        (body() | {"id": 3}, "id: not a string"),
        (body() | {"outputs": 3}, "outputs: not a list"),
        (body() | {"outputs": [{}]}, "outputs[0].name"),
        (body() | {"outputs": [{"name": "a", "parameters": {"classification": 2}}]}, "classification"),
        (body() | {"outputs": [{"name": "a", "parameters": {"binary_data": 1}}]}, "binary_data"),
        (body() | {"parameters": {"binary_data_output": "yes"}}, "binary_data_output"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_and_the_field_named(document: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(document)
    assert any(word in str(refusal.value) for word in words.split("|")), str(refusal.value)
    assert refusal.value.status == 400
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT64", "UINT64"])
def test_whole_numbers_that_do_not_fit_are_refused(datatype: str) -> None:
    for value in (300 if "8" in datatype else 2**64, 1.5, -1 if "U" in datatype else -(2**65)):
        tensor = {"name": "x", "shape": [1], "datatype": datatype, "data": [value]}
        with pytest.raises(InvalidRequest, match=r"inputs\[0\].data"):
            parse_request({}, json.dumps({"inputs": [tensor]}).encode())


@pytest.mark.parametrize(
    ("length", "size", "raw", "words"),
    [
        (b"0", 16, 16, "Inference-Header-Content-Length"),
        (b"-4", 16, 16, "Inference-Header-Content-Length"),
        (b"99999", 16, 16, "Inference-Header-Content-Length"),
        (b"ten", 16, 16, "Inference-Header-Content-Length"),
        (b"5", 16, 16, "not valid JSON"),
        (None, 16, 12, "12 bytes of binary data are left"),
        (None, 12, 12, "inputs[0]: 12 bytes of binary data, but shape [2, 2] of FP32 takes 16"),
        (None, 16, 20, "4 bytes after the last tensor"),
        (None, -1, 16, "binary_data_size"),
        (None, "16", 16, "binary_data_size"),
        (None, True, 16, "binary_data_size"),
    ],
)
def test_lying_lengths_of_binary_data_are_refused(
    length: bytes | None, size: Any, raw: int, words: str
) -> None:
    document = body(parameters={"binary_data_size": size})
    del document["inputs"][0]["data"]
    headers, text = binary(document, bytes(raw))
    if length is not None:
        headers[HEAD] = length
    with pytest.raises(InvalidRequest) as refusal:
        parse_request(headers, text, expected=EXPECTED)
    assert words in str(refusal.value)


def test_binary_numbers_that_are_not_finite_are_refused() -> None:
    document = body(parameters={"binary_data_size": 16})
    del document["inputs"][0]["data"]
    for bad in (np.nan, np.inf, -np.inf):
        headers, text = binary(document, np.array([1, 2, 3, bad], np.float32).tobytes())
        with pytest.raises(InvalidRequest, match="not finite"):
            parse_request(headers, text, expected=EXPECTED)


def test_data_beside_binary_data_and_bytes_that_are_no_bool_are_refused() -> None:
    both = body(parameters={"binary_data_size": 16})
    with pytest.raises(InvalidRequest, match="both data and binary_data_size"):
        parse_request(*binary(both, bytes(16)))
    tensor = {
        "name": "x", "shape": [1], "datatype": "BOOL", "parameters": {"binary_data_size": 1}
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="neither 0 nor 1"):
        parse_request(*binary({"inputs": [tensor]}, b"\x02"))


def test_more_rows_than_a_batch_takes_are_413_and_compression_is_415() -> None:
    text = json.dumps(body()).encode()
    with pytest.raises(InvalidRequest, match="at most 1 go into one request") as refusal:
        parse_request({}, text, expected=EXPECTED, max_rows=1)
    assert refusal.value.status == 413
    with pytest.raises(InvalidRequest, match="Content-Encoding") as refusal:
        parse_request({b"content-encoding": b"gzip"}, text)
    assert refusal.value.status == 415


def test_inputs_come_out_in_the_models_order() -> None:
    specs = (TensorSpec("a", "FP32", (-1, 1)), TensorSpec("b", "FP32", (-1, 1)))
    tensors = [
        {"name": name, "shape": [1, 1], "datatype": "FP32", "data": [value]}
        for name, value in (("b", 2.0), ("a", 1.0))
    ]
    request = parse_request({}, json.dumps({"inputs": tensors}).encode(), expected=specs)
    assert [tensor.name for tensor in request.inputs] == ["a", "b"]
    unlike = [tensors[0], tensors[1] | {"shape": [2, 1], "data": [1, 2]}]
    with pytest.raises(InvalidRequest, match="unlike numbers of rows"):
        parse_request({}, json.dumps({"inputs": unlike}).encode(), expected=specs)


def test_outputs_are_those_asked_for_each_in_its_own_form() -> None:
    names = ["logits", "features"]
    assert select_outputs(read(body()), names) == [(0, False), (1, False)]
    all_binary = read(body() | {"parameters": {"binary_data_output": True}})
    assert select_outputs(all_binary, names) == [(0, True), (1, True)]
    wishes = [{"name": "features"}, {"name": "logits", "parameters": {"binary_data": False}}]
    some = read(body() | {"outputs": wishes, "parameters": {"binary_data_output": True}})
    assert select_outputs(some, names) == [(1, True), (0, False)]
    with pytest.raises(InvalidRequest, match="the model gives logits, features"):
        select_outputs(read(body() | {"outputs": [{"name": "nope"}]}), names)


def test_what_is_not_finite_becomes_null_in_json_and_keeps_its_bits_in_binary() -> None:
    array = np.array([[1.5, np.nan, np.inf]], np.float32)
    tensor = Tensor("logits", "FP32", array)
    text = encode_response(model="m", outputs=[(tensor, False)]).body
    assert json.loads(bytes(text))["outputs"][0]["data"] == [1.5, None, None]  # type: ignore[arg-type]
    answer = encode_response(model="m", outputs=[(tensor, True)])
    (back,) = parse_response(dict(answer.headers), bytes(answer.body))  # type: ignore[arg-type]
    assert back.array.tobytes() == array.tobytes()


def test_a_batch_is_the_rows_of_its_requests_one_below_the_other() -> None:
    rows = [np.full((count, 2), count, np.float32) for count in (1, 3, 2)]
    headers, parts = encode_batch([[Tensor("image", "FP32", array)] for array in rows])
    request = parse_request(dict(headers), b"".join(parts), expected=EXPECTED)
    assert np.array_equal(request.inputs[0].array, np.concatenate(rows))
    assert request.binary_outputs


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"[]", b'{"outputs": 3}', b'{"outputs": [3]}', b'{"outputs": [{"name": "a"}]}',
        b'{"outputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}',
        b'{"outputs": [{"name": "a", "datatype": "FP32", "shape": [2], "data": [1.0]}]}',
        b'{"outputs": [{"name": "a", "datatype": "FP32", "shape": [1],'
        b' "parameters": {"binary_data_size": 4}}]}',
    ],
)  # fmt: skip
def test_an_answer_of_a_model_server_that_makes_no_sense_is_a_value_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_response({}, answer)


def test_rows_are_seen_without_parsing_the_body() -> None:
    assert peek_rows(json.dumps(body(shape=[17, 2])).encode()) == 17
    assert peek_rows(b'{"inputs":[{"data":[1,2],"shape" : [ 3 ]}]}') == 3
    assert peek_rows(b"nothing") is None


def test_metadata_survives_the_way_there_and_back_and_odd_ones_are_refused() -> None:
    metadata = ModelMetadata("m", EXPECTED, (TensorSpec("logits", "FP32", (-1, 10)),))
    assert ModelMetadata.from_json(metadata.as_json()) == metadata
    good = metadata.as_json()
    for bad in (3, {}, good | {"inputs": []}, good | {"outputs": [{"name": "a"}]},
                good | {"inputs": [{"name": "a", "datatype": "BYTES", "shape": [-1]}]},
                good | {"inputs": [{"name": "a", "datatype": "FP32", "shape": []}]}):  # fmt: skip
        with pytest.raises(ValueError, match="metadata"):
            ModelMetadata.from_json(bad)


@pytest.mark.parametrize(
    ("path", "resource", "model", "version"),
    [
        ("/v2", Resource.SERVER, "", ""),
        ("/v2/health/live", Resource.LIVE, "", ""),
        ("/v2/models/a/infer", Resource.INFER, "a", ""),
        ("/v2/models/a/versions/3/infer", Resource.INFER, "a", "3"),
        ("/v2/models/a%2Fb/ready", Resource.MODEL_READY, "a/b", ""),
        ("/v2/models/a", Resource.MODEL, "a", ""),
        ("/v2/repository/models/a/load", Resource.LOAD, "a", ""),
    ],
)
def test_paths_name_resources(path: str, resource: Resource, model: str, version: str) -> None:
    endpoint = parse_path(path)
    assert endpoint is not None
    assert (endpoint.resource, endpoint.model, endpoint.version) == (resource, model, version)


@pytest.mark.parametrize("path", ["/", "/v1/models/a:predict", "/v2/models", "/v2/models//infer"])
def test_other_paths_are_unknown(path: str) -> None:
    assert parse_path(path) is None


def test_a_refusal_says_when_to_come_back_in_whole_seconds() -> None:
    headers = dict(error_response(429, "full", retry_after_seconds=0.2).headers)
    assert headers[b"retry-after"] == b"1"
