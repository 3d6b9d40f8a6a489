"""Reads an inference request, JSON or binary, and refuses what is wrong with it by name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_core import from_json as load_json

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.tensors import (
    DATATYPES,
    Tensor,
    all_finite,
    from_bytes,
    from_json,
)
from slimscale.serving.protocol.usual import usual_tensor

__all__ = ["InferRequest", "OutputWish", "header_length", "parse_request", "peek_rows"]

_SHORT_BYTES = 1024
_NOTHING = memoryview(b"")
_MOST_TENSORS = 64
_MOST_DIMENSIONS = 16
_FIRST_LENGTH = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,9})\s*[,\]]')


@dataclass(frozen=True, slots=True)
class OutputWish:
    """An output that a client asks for, and whether as binary."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    """`inputs` stand in the model's order. `outputs` empty: all, as binary where `binary_outputs`."""

    id: str | None
    inputs: tuple[Tensor, ...]
    rows: int
    outputs: tuple[OutputWish, ...]
    binary_outputs: bool

    @property
    def nbytes(self) -> int:
        return sum(tensor.array.nbytes for tensor in self.inputs)


def peek_rows(body: bytes) -> int | None:
    """Rows by the first shape that stands in the body, without parsing it; None where none does.

    Good enough to weigh a request with; `parse_request` is what checks it.
    """
    found = _FIRST_LENGTH.search(body)
    return int(found[1]) if found else None


def header_length(headers: Mapping[bytes, bytes], body_bytes: int) -> int | None:
    """Length of the JSON in front of binary tensors; None: the body is JSON alone."""
    value = headers.get(INFERENCE_HEADER_LENGTH)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 12 or not 0 < int(value) <= body_bytes:
        raise InvalidRequest(
            f"header Inference-Header-Content-Length: {value[:20].decode('latin-1')!r}; send the"
            f" length of the JSON in bytes, at most the body's {body_bytes}"
        )
    return int(value)


def parse_request(
    headers: Mapping[bytes, bytes],
    body: bytes,
    *,
    expected: Sequence[TensorSpec] = (),
    max_rows: int | None = None,
) -> InferRequest:
    """The tensors of a request, checked.

    `expected`: the model's inputs; each must be there with its datatype and shape. Rows are the first
    length of every input and the same for all. Raises InvalidRequest (400, 413, 415).
    """
    if b"content-encoding" in headers and headers[b"content-encoding"] != b"identity":
        raise InvalidRequest("header Content-Encoding: not taken; send the body uncompressed", 415)
    length = header_length(headers, len(body))
    if length is None:
        document = _object(body)
    else:
        document = (_head if length <= _SHORT_BYTES else _object)(body[:length])
    binary = memoryview(body)[length:] if length is not None else _NOTHING
    if len(expected) == 1:
        tensor = usual_tensor(document, expected[0], binary)
        if tensor is not None and (max_rows is None or tensor.array.shape[0] <= max_rows):
            return _with_wishes(document, tensor)
    parameters = _parameters(document, "parameters")
    entries = _list(document, "inputs")
    if not entries:
        raise InvalidRequest("inputs: empty; send at least one tensor")
    inputs = []
    for index, entry in enumerate(entries):
        tensor, used = _input(entry, f"inputs[{index}]", binary, has_binary=length is not None)
        inputs.append(tensor)
        binary = binary[used:]
    if len(binary):
        raise InvalidRequest(
            f"body: {len(binary)} bytes after the last tensor; the sizes in binary_data_size must"
            " add up to what follows the JSON"
        )
    if expected:
        inputs = _as_expected(inputs, expected)
    rows = _rows(inputs, max_rows)
    default = _flag(parameters, "binary_data_output", "parameters")
    request_id = document.get("id")
    if request_id is not None and (not isinstance(request_id, str) or len(request_id) > 1024):
        raise InvalidRequest("id: not a string of at most 1024 characters")
    return InferRequest(
        request_id or None, tuple(inputs), rows, _outputs(document, default), default
    )


def _with_wishes(document: dict[str, Any], tensor: Tensor) -> InferRequest:
    default = False
    if "parameters" in document:
        default = _flag(_parameters(document, "parameters"), "binary_data_output", "parameters")
    outputs = _outputs(document, default) if "outputs" in document else ()
    rows = tensor.array.shape[0]
    return InferRequest(document.get("id") or None, (tensor,), rows, outputs, default)


def _object(text: bytes) -> dict[str, Any]:
    try:
        document = load_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"body: not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest("body: not a JSON object; send an object with inputs")
    return document


@lru_cache(maxsize=256)
def _head(text: bytes) -> dict[str, Any]:
    """The JSON in front of binary tensors, which a client, or our sidecar, writes again and again. Not
    to be changed by who gets it."""
    return _object(text)


def _list(document: dict[str, Any], field: str) -> list[Any]:
    value = document.get(field)
    if not isinstance(value, list) or len(value) > _MOST_TENSORS:
        raise InvalidRequest(f"{field}: not a list of at most {_MOST_TENSORS} tensors")
    return value


def _parameters(holder: dict[str, Any], field: str) -> dict[str, Any]:
    parameters = holder.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequest(f"{field}: not an object")
    for name in parameters:
        if name.startswith("shared_memory"):
            raise InvalidRequest(f"{field}.{name}: shared memory is not served; send the data")
    return parameters


def _flag(parameters: dict[str, Any], name: str, field: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{field}.{name}: neither true nor false")
    return value


def _input(entry: Any, field: str, binary: memoryview, *, has_binary: bool) -> tuple[Tensor, int]:
    """A tensor, and how many bytes of `binary` it took."""
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{field}: not an object")
    name, datatype = entry.get("name"), entry.get("datatype")
    if not isinstance(name, str) or not 0 < len(name) <= 256:
        raise InvalidRequest(f"{field}.name: not a string of 1 to 256 characters")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise InvalidRequest(
            f"{field}.datatype: {str(datatype)[:20]!r} is not served; one of {', '.join(DATATYPES)}"
        )
    shape = _shape(entry.get("shape"), field)
    parameters = _parameters(entry, f"{field}.parameters")
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in entry:
            raise InvalidRequest(f"{field}.data: missing, and so is parameters.binary_data_size")
        array = from_json(entry["data"], datatype, shape, field)
        used = 0
    else:
        used = _binary_size(size, f"{field}.parameters.binary_data_size", binary, has_binary)
        if "data" in entry:
            raise InvalidRequest(f"{field}: both data and binary_data_size; send one of them")
        array = from_bytes(binary[:used], datatype, shape, field)
    if not all_finite(array):
        raise InvalidRequest(
            f"{field}.data: a number that is not finite, or too large for {datatype}"
        )
    return Tensor(name, datatype, array), used


def _binary_size(size: Any, field: str, binary: memoryview, has_binary: bool) -> int:
    if not has_binary:
        raise InvalidRequest(f"{field}: needs a header Inference-Header-Content-Length")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(binary):
        raise InvalidRequest(
            f"{field}: {str(size)[:20]}; {len(binary)} bytes of binary data are left in the body"
        )
    return size


def _shape(shape: Any, field: str) -> tuple[int, ...]:
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= _MOST_DIMENSIONS
        or not all(type(length) is int and 0 <= length < 2**31 for length in shape)
    ):
        raise InvalidRequest(
            f"{field}.shape: not a list of 1 to {_MOST_DIMENSIONS} whole numbers, rows first"
        )
    return tuple(shape)


def _rows(inputs: Sequence[Tensor], max_rows: int | None) -> int:
    rows: int = inputs[0].array.shape[0]
    if any(tensor.array.shape[0] != rows for tensor in inputs):
        raise InvalidRequest("inputs: unlike numbers of rows; the first length must be the same")
    if rows == 0:
        raise InvalidRequest("inputs[0].shape: no rows; send at least one")
    if max_rows is not None and rows > max_rows:
        raise InvalidRequest(
            f"inputs[0].shape: {rows} rows; at most {max_rows} go into one request: send several",
            413,
        )
    return rows


def _as_expected(inputs: Sequence[Tensor], expected: Sequence[TensorSpec]) -> list[Tensor]:
    """The same tensors in the model's order."""
    places = {spec.name: place for place, spec in enumerate(expected)}
    if len(inputs) != len(expected) or {tensor.name for tensor in inputs} != set(places):
        raise InvalidRequest(f"inputs: the model takes exactly these tensors: {', '.join(places)}")
    for index, tensor in enumerate(inputs):
        spec = expected[places[tensor.name]]
        if tensor.datatype != spec.datatype:
            raise InvalidRequest(
                f"inputs[{index}].datatype: {tensor.datatype}; the model takes {spec.datatype}"
            )
        if not spec.fits(tensor.array.shape):
            raise InvalidRequest(
                f"inputs[{index}].shape: {list(tensor.array.shape)}; the model takes"
                f" {list(spec.shape)}, where -1 is any number of rows"
            )
    return sorted(inputs, key=lambda tensor: places[tensor.name])


def _outputs(document: dict[str, Any], default: bool) -> tuple[OutputWish, ...]:
    if document.get("outputs") is None:
        return ()
    wishes = []
    for index, entry in enumerate(_list(document, "outputs")):
        field = f"outputs[{index}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InvalidRequest(f"{field}.name: not a string")
        if "parameters" not in entry:
            wishes.append(OutputWish(entry["name"], default))
            continue
        parameters = _parameters(entry, f"{field}.parameters")
        if parameters.get("classification"):
            raise InvalidRequest(f"{field}.parameters.classification: not served; take the scores")
        binary = _flag(parameters, "binary_data", f"{field}.parameters")
        wishes.append(OutputWish(entry["name"], binary if "binary_data" in parameters else default))
    return tuple(wishes)
