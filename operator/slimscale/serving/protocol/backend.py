"""The other side of the protocol: asks a model server for a batch, always in binary."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from pydantic_core import from_json as load_json
from pydantic_core import to_json

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.protocol.requests import header_length
from slimscale.serving.protocol.tensors import DATATYPES, Tensor, from_bytes

__all__ = ["encode_batch", "encode_request", "parse_response"]


_SHORT_BYTES = 2048
_BINARY_TYPE = (b"content-type", b"application/octet-stream")

Parts = list[bytes | memoryview]
Headers = tuple[tuple[bytes, bytes], ...]


def encode_request(tensors: Sequence[Tensor]) -> tuple[Headers, Parts]:
    """Headers and body parts of a request; the parts are views of the tensors, not copies."""
    return encode_batch([tensors])


def encode_batch(requests: Sequence[Sequence[Tensor]]) -> tuple[Headers, Parts]:
    """One request for the rows of several, in their order; the parts are views, not copies.

    All must have the same tensors, in the same order and of the same shape but for the rows. Rows
    come first, so that to put tensors one below the other is to send their bytes one after another.
    """
    shapes = []
    parts: Parts = [b""]
    for index, first in enumerate(requests[0]):
        rows = size = 0
        for tensors in requests:
            array = tensors[index].array
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            rows += array.shape[0]
            size += array.nbytes
            parts.append(array.data.cast("B"))
        shapes.append((first.name, first.datatype, (rows, *first.array.shape[1:]), size))
    head = parts[0] = _head(tuple(shapes))
    return (_BINARY_TYPE, (INFERENCE_HEADER_LENGTH, b"%d" % len(head))), parts


@lru_cache(maxsize=1024)
def _head(tensors: tuple[tuple[str, str, tuple[int, ...], int], ...]) -> bytes:
    return to_json(
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": datatype,
                    "shape": list(shape),
                    "parameters": {"binary_data_size": size},
                }
                for name, datatype, shape, size in tensors
            ],
            "parameters": {"binary_data_output": True},
        }
    )


def parse_response(headers: Mapping[bytes, bytes], body: bytes) -> list[Tensor]:
    """The outputs of a model server, JSON or binary. ValueError for anything else."""
    try:
        length = header_length(headers, len(body))
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    if length is not None and length <= _SHORT_BYTES:
        sizes = _binary_outputs(body[:length])
        if sizes is not None and sum([size for *_, size in sizes]) == len(body) - length:
            return _views(sizes, memoryview(body)[length:])
    document = load_json(body if length is None else body[:length])
    outputs = document.get("outputs") if isinstance(document, dict) else None
    if not isinstance(outputs, list):
        raise ValueError("the model server's answer has no outputs")  # noqa: TRY004 - one kind
    binary = memoryview(body)[length:] if length is not None else memoryview(b"")
    tensors = []
    try:
        for index, entry in enumerate(outputs):
            tensor, used = _output(entry, f"outputs[{index}]", binary)
            tensors.append(tensor)
            binary = binary[used:]
    except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
        raise ValueError(f"the model server's answer is malformed: {error}") from None
    return tensors


@lru_cache(maxsize=256)
def _binary_outputs(head: bytes) -> tuple[tuple[str, str, tuple[int, ...], int], ...] | None:
    """Name, datatype, shape and bytes of each output; None: to be looked at closely.

    A model server writes the same head for each batch of so many rows.
    """
    try:
        entries = load_json(head)["outputs"]
        found = tuple(
            (
                entry["name"], entry["datatype"], tuple(entry["shape"]),
                entry["parameters"]["binary_data_size"],
            )
            for entry in entries
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None
    for _, datatype, shape, size in found:
        lengths_known = all(type(length) is int and length >= 0 for length in shape)
        if datatype not in DATATYPES or datatype == "BOOL" or not lengths_known:
            return None
        if size != prod(shape) * DATATYPES[datatype].itemsize:
            return None
    return found


def _views(
    sizes: Sequence[tuple[str, str, tuple[int, ...], int]], binary: memoryview
) -> list[Tensor]:
    tensors, start = [], 0
    for name, datatype, shape, size in sizes:
        array = np.frombuffer(binary[start : start + size], DATATYPES[datatype]).reshape(shape)
        tensors.append(Tensor(name, datatype, array))
        start += size
    return tensors


def _output(entry: Any, field: str, binary: memoryview) -> tuple[Tensor, int]:
    name, datatype = entry["name"], entry["datatype"]
    shape = tuple(int(length) for length in entry["shape"])
    if datatype not in DATATYPES:
        raise ValueError(f"datatype {datatype!r} of output {name!r} is not served")
    size = (entry.get("parameters") or {}).get("binary_data_size")
    if size is not None:
        return Tensor(name, datatype, from_bytes(binary[:size], datatype, shape, field)), size
    # Not `from_json`: an output may hold null for what is not finite.
    array = np.array(entry["data"], dtype=DATATYPES[datatype]).reshape(shape)
    return Tensor(name, datatype, array), 0
