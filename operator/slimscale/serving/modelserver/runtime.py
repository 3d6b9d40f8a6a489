"""onnxruntime: opens a model's graph as a session, warms it, runs batches.

Sessions are given their thread counts, since onnxruntime reads no quota. Its threads sleep while
they wait: by default they spin, which burns the CPU quota that the next batch needs, and gets the
whole container throttled.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from slimscale.exceptions import SlimError
from slimscale.serving.protocol.metadata import ModelMetadata, TensorSpec
from slimscale.serving.protocol.tensors import DATATYPES, Tensor

__all__ = ["CUDA", "ModelFault", "Opened", "open_model", "providers", "run_rows", "warm"]

_log = logging.getLogger(__name__)

CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(int8)": "INT8",
    "tensor(uint16)": "UINT16",
    "tensor(int16)": "INT16",
    "tensor(uint32)": "UINT32",
    "tensor(int32)": "INT32",
    "tensor(uint64)": "UINT64",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
}


class ModelFault(SlimError):
    """A model can't be loaded or run. The message names it and what to do; `status` goes with it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Opened:
    """A session and what it takes and gives."""

    session: Any
    metadata: ModelMetadata
    on_gpu: bool


def providers() -> list[str]:
    """CUDA where this onnxruntime has it, and the CPU for what CUDA can't do."""
    available = onnxruntime.get_available_providers()
    return [name for name in (CUDA, _CPU) if name in available]


def open_model(name: str, path: Path, *, threads: int) -> Opened:
    """A session with `threads` threads inside a batch.

    Raises:
        ModelFault: the file is missing (404), is no valid graph, or can't be served (400).
    """
    if not path.is_file():
        raise ModelFault(
            f"model {name}: {path} is missing; put the graph there, one folder a model", 404
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3  # its warnings would repeat with every session
    wanted = providers()
    try:
        session = onnxruntime.InferenceSession(str(path), sess_options=options, providers=wanted)
    except Exception as error:  # its errors have no common base below RuntimeError
        raise ModelFault(
            f"model {name}: {path} can't be loaded: {_first_line(error)}", 400
        ) from error
    on_gpu = CUDA in session.get_providers()
    if CUDA in wanted and not on_gpu:
        _log.warning("%s runs on the CPU: its session could not be made on the GPU", name)
    metadata = ModelMetadata(
        name,
        inputs=tuple(_spec(name, value) for value in session.get_inputs()),
        outputs=tuple(_spec(name, value) for value in session.get_outputs()),
    )
    return Opened(session, metadata, on_gpu)


def warm(opened: Opened, rows: Sequence[int]) -> None:
    """One run of each batch size: onnxruntime plans memory and picks kernels at the first one.

    Raises:
        ModelFault: a run failed (400): better now than with the first request.
    """
    for count in rows:
        inputs = [
            Tensor(
                spec.name,
                spec.datatype,
                np.zeros(
                    tuple(max(length, 1) for length in (count, *spec.shape[1:])),
                    DATATYPES[spec.datatype],
                ),
            )
            for spec in opened.metadata.inputs
            if spec.shape[0] in (-1, count)
        ]
        if len(inputs) == len(opened.metadata.inputs):  # a graph may have a fixed batch
            try:
                run_rows(opened, inputs)
            except ModelFault as error:
                raise ModelFault(f"warming with {count} rows: {error}", 400) from error


def run_rows(opened: Opened, inputs: Sequence[Tensor]) -> list[Tensor]:
    """All outputs of one batch. ModelFault (500) when onnxruntime fails."""
    feed = {tensor.name: tensor.array for tensor in inputs}
    try:
        arrays = opened.session.run(None, feed)
    except Exception as error:  # see open_model
        raise ModelFault(f"model {opened.metadata.name}: {_first_line(error)}", 500) from error
    return [
        Tensor(spec.name, spec.datatype, array)
        for spec, array in zip(opened.metadata.outputs, arrays, strict=True)
    ]


def _spec(model: str, value: Any) -> TensorSpec:
    datatype = _DATATYPES.get(value.type)
    if datatype is None:
        raise ModelFault(f"model {model}: {value.name} is {value.type}, which is not served", 400)
    if not value.shape:
        raise ModelFault(f"model {model}: {value.name} has no rows as its first length", 400)
    shape = tuple(length if isinstance(length, int) else -1 for length in value.shape)
    return TensorSpec(value.name, datatype, shape)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
