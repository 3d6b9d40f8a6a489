"""Small ONNX graphs with one input `image` (rows, 2) and one output `y` of the same shape."""

from pathlib import Path

from onnx import TensorProto, helper

__all__ = ["write_graph"]


def write_graph(
    folder: Path, model: str, kind: str = "double", *, rows: str | int = "rows"
) -> Path:
    """kind "double": twice the input; "log": its logarithm, NaN below 0."""
    node = {
        "double": helper.make_node("Add", ["image", "image"], ["y"]),
        "log": helper.make_node("Log", ["image"], ["y"]),
    }[kind]
    graph = helper.make_graph(
        [node],
        model,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [rows, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 2])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / model / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path
