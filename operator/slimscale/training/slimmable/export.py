"""One ONNX graph a width: weights cut to the width and contiguous, normalisation folded in.

Built node by node, so that the graph is the smallest one and needs no exporter. Nodes are named
`segment1/...` by segment, where a graph may be cut.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from slimscale.training.slimmable.network import ConvNorm, Residual, SlimmableResNet

__all__ = ["INPUT", "MODEL_FILE", "OUTPUT", "check_export", "export", "model_name"]
__all__ += ["model_proto", "open_session"]

INPUT, OUTPUT = "image", "logits"
MODEL_FILE = "model.onnx"
OPSET, IR_VERSION = 17, 8
"""Old enough for every onnxruntime of the last years, Triton's and MLServer's too."""


def model_name(service: str, ratio: float) -> str:
    """`fashion-w025` for 0.25."""
    return f"{service}-w{round(100 * ratio):03d}"


def export(network: SlimmableResNet, folder: Path, *, service: str) -> Mapping[float, Path]:
    """Write `folder`/<model>/model.onnx for each width; the paths by width."""
    network.eval()
    written = {}
    for ratio in network.shape.ratios:
        path = folder / model_name(service, ratio) / MODEL_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model_proto(network, ratio, name=model_name(service, ratio)))
        written[ratio] = path
    return written


def model_proto(network: SlimmableResNet, ratio: float, *, name: str) -> bytes:
    """The serialised graph at one width: images (batch, 1, 28, 28) to logits (batch, classes).

    Raises:
        onnx.checker.ValidationError: what was built is no valid model.
    """
    graph = _Graph()
    x, width = graph.conv("stem", network.stem, INPUT, 1, ratio)
    x = graph.node("Relu", "stem/relu", [x])
    for number, segment in enumerate(network.segments, start=1):
        for index, block in enumerate(segment):
            x, width = graph.residual(f"segment{number}/{index}", block, x, width, ratio)
    x = graph.node("GlobalAveragePool", "head/mean", [x])
    x = graph.node("Flatten", "head/flatten", [x])
    weight = graph.constant("head/weight", network.head.sliced(width))
    bias = graph.constant("head/bias", network.head.bias)
    graph.nodes.append(
        helper.make_node("Gemm", [x, weight, bias], [OUTPUT], name="head/linear", transB=1)
    )
    size = [28, 28]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 1, *size])],
            [
                helper.make_tensor_value_info(
                    OUTPUT, TensorProto.FLOAT, ["batch", network.shape.classes]
                )
            ],
            graph.constants,
        ),
        producer_name="slimscale",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


class _Graph:
    """Nodes and constants, in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Tensor) -> str:
        array = np.ascontiguousarray(value.detach().numpy(), dtype=np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, name: str, inputs: list[str]) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name))
        return name

    def conv(
        self, name: str, layer: ConvNorm, x: str, inputs: int, ratio: float
    ) -> tuple[str, int]:
        """The output's name and its channels. scale*(W x) + shift = (scale*W) x + shift."""
        scale, shift = layer.norm.folded(ratio)
        weight = layer.conv.sliced(inputs, ratio).double() * scale.double()[:, None, None, None]
        kernel, stride = layer.conv.kernel_size[0], layer.conv.stride[0]
        self.nodes.append(
            helper.make_node(
                "Conv",
                [
                    x,
                    self.constant(f"{name}/weight", weight),
                    self.constant(f"{name}/bias", shift),
                ],
                [name],
                name=name,
                kernel_shape=[kernel, kernel],
                pads=[kernel // 2] * 4,
                strides=[stride, stride],
            )
        )
        return name, len(scale)

    def residual(
        self, name: str, block: Residual, x: str, inputs: int, ratio: float
    ) -> tuple[str, int]:
        y, width = self.conv(f"{name}/first", block.first, x, inputs, ratio)
        y = self.node("Relu", f"{name}/relu", [y])
        y, width = self.conv(f"{name}/second", block.second, y, width, ratio)
        if block.shortcut is not None:
            x, _ = self.conv(f"{name}/shortcut", block.shortcut, x, inputs, ratio)
        y = self.node("Add", f"{name}/add", [y, x])
        return self.node("Relu", name, [y]), width


def check_export(
    network: SlimmableResNet, paths: Mapping[float, Path], pixels: Tensor, *, tolerance: float
) -> Mapping[float, float]:
    """The largest difference between torch's and onnxruntime's logits, by width.

    As a share of the largest logit, since logits have no scale of their own.

    Raises:
        ValueError: above `tolerance`: the graph is not the network.
    """
    network.eval()
    found = {}
    for ratio, path in paths.items():
        with torch.no_grad():
            logits = network(pixels, ratio).numpy()
        session = open_session(path.read_bytes(), threads=1)
        (answer,) = session.run([OUTPUT], {INPUT: pixels.numpy()})
        worst = float(np.abs(answer - logits).max() / np.abs(logits).max())
        if not worst <= tolerance:
            raise ValueError(
                f"{path}: logits differ from torch's by {worst:.2e} of the largest, more than"
                f" {tolerance:g}: this graph is not the network"
            )
        found[ratio] = worst
    return found


def open_session(content: bytes, *, threads: int) -> onnxruntime.InferenceSession:
    """On the CPU with as many threads, which sleep while they wait."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        content, sess_options=options, providers=["CPUExecutionProvider"]
    )
