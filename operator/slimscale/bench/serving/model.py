"""The model that every system serves, and what it answers to each image when asked alone."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.serving.loadgen.check import ID_DIGITS
from slimscale.bench.serving.systems import Dialect

__all__ = ["CLASSES", "IMAGE_SHAPE", "build_model", "write_payload"]

IMAGE_SHAPE = (1, 28, 28)
CLASSES = 10
IMAGES = 64
FIRST_CHANNELS, SECOND_CHANNELS = 16, 32
HIDDEN = (4096, 2048)
"""Wide enough that one image takes some milliseconds, most of it reading weights: what a batch shares."""
_SEED = 20261130


def build_model(path: Path) -> None:
    """Two convolutions and two wide layers with random weights: input `image`, output `logits`.

    About 15 million weights. One image costs a few milliseconds on one core and 32 images far less than
    32 times that, as with larger networks on larger devices. The answers mean nothing; they are checked
    all the same.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(_SEED)
    nodes: list[Any] = []
    weights: list[Any] = []

    def weight(name: str, shape: tuple[int, ...]) -> str:
        fan_in = int(np.prod(shape[1:]))
        values = rng.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    def relu(source: str) -> str:
        nodes.append(helper.make_node("Relu", [source], [f"{source}_relu"]))
        return f"{source}_relu"

    last, channels = "image", 1
    for number, wide in enumerate((FIRST_CHANNELS, SECOND_CHANNELS)):
        nodes.append(
            helper.make_node(
                "Conv",
                [last, weight(f"conv{number}", (wide, channels, 3, 3))],
                [f"c{number}"],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
            )
        )
        last, channels = relu(f"c{number}"), wide
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    last, width = "flat", channels * 7 * 7
    for number, wide in enumerate((*HIDDEN, CLASSES)):
        output = f"d{number}" if wide != CLASSES else "logits"
        nodes.append(
            helper.make_node(
                "Gemm", [last, weight(f"w{number}", (wide, width))], [output], transB=1
            )
        )
        last, width = relu(output) if wide != CLASSES else output, wide
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *IMAGE_SHAPE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def write_payload(model: Path, path: Path, *, dialect: str) -> None:
    """Images, their request bodies around the id, and the logits of each alone, for one Dialect.

    Pixels have four digits after the point, so that JSON carries the float32 exactly enough for both forms.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(_SEED + 1)
    lines = []
    for _ in range(IMAGES):
        image = _image(rng)
        (logits,) = session.run(None, {"image": image[np.newaxis]})
        before, after, json_bytes = _body(image, dialect)
        lines.append(
            {
                "before": base64.b64encode(before).decode(),
                "after": base64.b64encode(after).decode(),
                "logits": [float(value) for value in logits[0]],
                "json_bytes": json_bytes,
                "with_id": dialect != Dialect.ROWS,
            }
        )
    path.write_text(json.dumps(lines))


def _image(rng: np.random.Generator) -> NDArray[np.float32]:
    """Blobs on black, as clothes are: about half of the pixels are 0."""
    x, y = np.meshgrid(np.arange(28), np.arange(28))
    image = np.zeros((28, 28))
    for _ in range(6):
        centre, radius = rng.uniform(6, 22, 2), rng.uniform(2, 6)
        image += rng.uniform(0.3, 1.0) * ((x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2)
    noisy = np.where(image > 0, np.clip(image + rng.normal(0, 0.1, image.shape), 0, 1), 0.0)
    return np.round(noisy, 4).astype(np.float32)[np.newaxis]


def _body(image: NDArray[np.float32], dialect: str) -> tuple[bytes, bytes, int]:
    """What stands before the id and after it, and the length of the JSON part if the rest is binary."""
    pixels = [round(float(value), 4) for value in image.ravel()]
    if dialect == Dialect.ROWS:
        lines = [[pixels[i : i + 28] for i in range(0, len(pixels), 28)]]
        return b"", json.dumps({"image": [lines]}, separators=(",", ":")).encode(), 0
    binary = dialect == Dialect.V2_BINARY
    shape = [1, *image.shape]
    tensor: dict[str, Any] = {"name": "image", "datatype": "FP32", "shape": shape}
    outputs: dict[str, Any] = {"name": "logits"}
    raw = b""
    if binary:
        raw = image.astype("<f4").tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        outputs["parameters"] = {"binary_data": True}
    else:
        tensor["data"] = pixels
    before = b'{"id": "'
    rest = json.dumps({"inputs": [tensor], "outputs": [outputs]}, separators=(",", ":"))
    after = b'",' + rest[1:].encode()
    json_bytes = len(before) + ID_DIGITS + len(after) if binary else 0
    return before, after + raw, json_bytes
