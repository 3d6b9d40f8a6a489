"""What each segment of an exported network computes, and what passes between them: from its graph alone."""

from math import prod

import onnx
from onnx import shape_inference

__all__ = ["cut_bytes", "segment_macs"]

_FLOAT_BYTES = 4
_SEGMENT = "segment"


def cut_bytes(graph: bytes) -> tuple[int, ...]:
    """[S + 1] bytes of one row at each cut: the image, the activations after each segment, the answer."""
    model = shape_inference.infer_shapes(onnx.load_model_from_string(graph))
    shapes = _shapes(model)
    last: dict[int, str] = {}
    for node in model.graph.node:
        segment = _segment(node.name)
        if segment is not None:
            last[segment] = node.output[0]
    names = [model.graph.input[0].name, *(last[s] for s in sorted(last)[:-1])]
    names.append(model.graph.output[0].name)
    return tuple(_FLOAT_BYTES * prod(shapes[name]) for name in names)


def segment_macs(graph: bytes) -> tuple[int, ...]:
    """[S] multiply-accumulates of one row; the stem's are the first's, the head's the last's."""
    model = shape_inference.infer_shapes(onnx.load_model_from_string(graph))
    shapes = _shapes(model)
    weights = {one.name: tuple(one.dims) for one in model.graph.initializer}
    count = len({_segment(node.name) for node in model.graph.node} - {None})
    macs = [0] * count
    for node in model.graph.node:
        if node.op_type in {"Conv", "Gemm"}:
            segment = _segment(node.name)
            place = (
                (0 if node.name.startswith("stem") else count - 1) if segment is None else segment
            )
            macs[place] += prod(shapes[node.output[0]]) * prod(weights[node.input[1]][1:])
    return tuple(macs)


def _segment(name: str) -> int | None:
    """0 for `segment1/...`; None for the stem and the head."""
    first = name.split("/", 1)[0]
    return int(first.removeprefix(_SEGMENT)) - 1 if first.startswith(_SEGMENT) else None


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Of every tensor, for one row."""
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    return {
        value.name: tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        for value in values
    }
