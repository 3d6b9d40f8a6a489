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

__all__ = ["SplitModel", "split"]


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


def _cut_tensor(network: SlimmableResNet, cut: int) -> str:
    """The output of a segment's last block, named as `export` names it."""
    blocks = list(network.segments)[cut - 1]
    return f"segment{cut}/{len(list(blocks)) - 1}"
