"""Writes answers to inference requests: JSON, binary, or some outputs of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.http.messages import JSON_TYPE, Response
from slimscale.serving.protocol.errors import InvalidRequest
from slimscale.serving.protocol.requests import InferRequest
from slimscale.serving.protocol.tensors import Tensor

__all__ = ["encode_response", "json_response", "select_outputs"]

_BINARY_TYPE = (b"content-type", b"application/octet-stream")


def json_response(document: Any, status: int = 200) -> Response:
    return Response(status, to_json(document, inf_nan_mode="null"), (JSON_TYPE,))


def select_outputs(request: InferRequest, names: Sequence[str]) -> list[tuple[int, bool]]:
    """For each output of the answer: its place among `names`, the model's outputs; binary or JSON.

    InvalidRequest for an output that the model doesn't have: checked before it runs.
    """
    if not request.outputs:
        return [(index, request.binary_outputs) for index in range(len(names))]
    chosen = []
    for number, wish in enumerate(request.outputs):
        if wish.name not in names:
            raise InvalidRequest(
                f"outputs[{number}].name: {wish.name[:64]!r}; the model gives {', '.join(names)}"
            )
        chosen.append((names.index(wish.name), wish.binary))
    return chosen


def encode_response(
    *,
    model: str,
    outputs: Sequence[tuple[Tensor, bool]],
    request_id: str | None = None,
    version: str = "1",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> Response:
    """`outputs`: tensors of this request's rows alone, each with True for binary.

    A number that is not finite becomes null in JSON, which has no word for it (NumPy reads null as
    NaN), and keeps its bits in binary.
    """
    entries: list[dict[str, Any]] = []
    buffers: list[bytes] = []
    for tensor, binary in outputs:
        array = tensor.array
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(array.shape),
        }
        if binary:
            raw = np.ascontiguousarray(array).tobytes()
            entry["parameters"] = {"binary_data_size": len(raw)}
            buffers.append(raw)
        else:
            entry["data"] = array.ravel().tolist()
        entries.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request_id is not None:
        document["id"] = request_id
    head = to_json(document, inf_nan_mode="null")
    if not buffers:
        return Response(200, head, (JSON_TYPE, *headers))
    length = (INFERENCE_HEADER_LENGTH, b"%d" % len(head))
    return Response(200, b"".join((head, *buffers)), (_BINARY_TYPE, length, *headers))
