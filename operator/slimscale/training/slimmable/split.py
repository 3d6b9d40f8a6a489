"""The network cut in two: one ONNX graph for the segments before the cut, one for those after it.

Both come from the whole graph by its node names, so that they are the same arithmetic: the second run
on what the first gives is the whole network's answer, to the last rounding.
"""

from dataclasses import dataclass

import onnx
from onnx import shape_inference
from onnx.utils import Extractor

from slimscale.training.slimmable.export import INPUT, OUTPUT, model_proto
from slimscale.training.slimmable.network import SlimmableResNet

__all__ = ["SplitModel", "cut_bytes", "segment_macs", "split"]

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class SplitModel:
    """`head` is None for cut 0 and `tail` for the last one: the other is the whole network."""

    cut: int
    tensor: str
    """What passes from head to tail, (batch, ...)."""
    head: bytes | None
    tail: bytes | None


def split(network: SlimmableResNet, ratio: float, cut: int, *, name: str) -> SplitModel:
    """Cut after segment `cut`, 0 (nothing before it) to the number of segments (nothing after it).

    Raises:
        ValueError: there is no such cut.
    """
    count = len(network.segments)
    if not 0 <= cut <= count:
        raise ValueError(f"cut is {cut}; give 0 to {count}, the number of segments")
    whole = model_proto(network, ratio, name=name)
    if cut == 0:
        return SplitModel(cut, INPUT, None, whole)
    if cut == count:
        return SplitModel(cut, OUTPUT, whole, None)
    tensor = _cut_tensor(network, cut)
    extractor = Extractor(shape_inference.infer_shapes(onnx.load_model_from_string(whole)))
    head = extractor.extract_model([INPUT], [tensor])
    tail = extractor.extract_model([tensor], [OUTPUT])
    for part in (head, tail):
        onnx.checker.check_model(part, full_check=True)
    return SplitModel(cut, tensor, head.SerializeToString(), tail.SerializeToString())


def cut_bytes(network: SlimmableResNet, ratio: float) -> tuple[int, ...]:
    """[S + 1] bytes of one row at each cut: the image, the activations, the logits."""
    shapes = _shapes(network, ratio)
    names = [INPUT, *(_cut_tensor(network, cut) for cut in range(1, len(network.segments))), OUTPUT]
    return tuple(_FLOAT_BYTES * _size(shapes[name]) for name in names)


def segment_macs(network: SlimmableResNet, ratio: float) -> tuple[int, ...]:
    """[S] multiply-accumulates of one row in each segment; the stem is the first's, the head the last's."""
    graph = onnx.load_model_from_string(model_proto(network, ratio, name="macs")).graph
    shapes = _shapes(network, ratio)
    weights = {one.name: tuple(one.dims) for one in graph.initializer}
    macs = [0] * len(network.segments)
    for node in graph.node:
        if node.op_type not in {"Conv", "Gemm"}:
            continue
        _, *inner = weights[node.input[1]]
        work = _size(shapes[node.output[0]])
        for size in inner:
            work *= size
        place = node.name.split("/", 1)[0]
        index = {"stem": 0, "head": len(macs) - 1}.get(place)
        macs[int(place.removeprefix("segment")) - 1 if index is None else index] += work
    return tuple(macs)


def _cut_tensor(network: SlimmableResNet, cut: int) -> str:
    """The output of a segment's last block, named as `export` names it."""
    blocks = list(network.segments)[cut - 1]
    return f"segment{cut}/{len(list(blocks)) - 1}"


def _shapes(network: SlimmableResNet, ratio: float) -> dict[str, tuple[int, ...]]:
    """Of every tensor, for one row."""
    model = shape_inference.infer_shapes(
        onnx.load_model_from_string(model_proto(network, ratio, name="shapes"))
    )
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    return {
        value.name: tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        for value in values
    }


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for one in shape:
        size *= one
    return size
