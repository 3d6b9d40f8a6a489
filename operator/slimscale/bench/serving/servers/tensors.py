"""The few shapes of the Open Inference Protocol v2 that the benchmark's own servers speak."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.serving.headers import INFERENCE_HEADER_LENGTH
from slimscale.serving.http import Request, Response

__all__ = ["Asked", "answer", "ask", "logits_of", "read"]

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_INPUT, _OUTPUT = "image", "logits"

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its id and its rows, shape (rows, ...)."""

    id: str
    rows: Rows
    binary: bool
    """Whether the output is to come as binary data too."""


def read(request: Request) -> Asked:
    """Raises ValueError, KeyError or IndexError for a body that the benchmark does not send."""
    length = request.headers.get(INFERENCE_HEADER_LENGTH)
    if length is None:
        document = json.loads(request.body)
        tensor = document["inputs"][0]
        rows = np.asarray(tensor["data"], dtype=np.float32)
    else:
        document = json.loads(request.body[: int(length)])
        tensor = document["inputs"][0]
        rows = np.frombuffer(request.body, dtype="<f4", offset=int(length))
    outputs = document.get("outputs")
    binary = bool(outputs and outputs[0].get("parameters", {}).get("binary_data"))
    return Asked(document.get("id", ""), rows.reshape(tensor["shape"]), binary)


def answer(asked: Asked, logits: Rows, *, model: str) -> Response:
    """`logits` of shape (rows, classes), those of this request alone."""
    output: dict[str, Any] = {"name": _OUTPUT, "datatype": "FP32", "shape": list(logits.shape)}
    document = {"model_name": model, "id": asked.id, "outputs": [output]}
    if not asked.binary:
        output["data"] = logits.ravel().tolist()
        return Response(200, json.dumps(document).encode(), (_JSON,))
    raw = np.ascontiguousarray(logits, dtype="<f4").tobytes()
    output["parameters"] = {"binary_data_size": len(raw)}
    head = json.dumps(document).encode()
    return Response(200, (head, raw), (_BINARY, (INFERENCE_HEADER_LENGTH, str(len(head)).encode())))


def ask(rows: Rows) -> tuple[bytes, bytes]:
    """JSON part and raw part of a request to a model server; both directions binary."""
    raw = np.ascontiguousarray(rows, dtype="<f4").tobytes()
    document = {
        "id": "0",
        "inputs": [
            {
                "name": _INPUT,
                "datatype": "FP32",
                "shape": list(rows.shape),
                "parameters": {"binary_data_size": len(raw)},
            }
        ],
        "outputs": [{"name": _OUTPUT, "parameters": {"binary_data": True}}],
    }
    return json.dumps(document).encode(), raw


def logits_of(body: bytes, headers: dict[bytes, bytes]) -> Rows:
    """Of a model server's binary answer: shape (rows, classes)."""
    length = int(headers[INFERENCE_HEADER_LENGTH])
    shape = json.loads(body[:length])["outputs"][0]["shape"]
    return np.frombuffer(body, dtype="<f4", offset=length).reshape(shape)
