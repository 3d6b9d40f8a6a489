"""What nearly all clients send, read in a third of the time: one tensor, just as the model takes it.

Whatever is unlike that, or wrong, is left to `requests`, which says what is wrong with it.
"""

from typing import Any

import numpy as np

from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.tensors import DATATYPES, Array, Tensor, all_finite, flat_floats

__all__ = ["usual_tensor"]

_LONGEST_ID = 1024
_USUAL_FIELDS = frozenset(("id", "inputs", "outputs", "parameters"))
_USUAL_JSON = frozenset(("name", "datatype", "shape", "data"))
_USUAL_BINARY = frozenset(("name", "datatype", "shape", "parameters"))


def usual_tensor(document: dict[str, Any], spec: TensorSpec, binary: memoryview) -> Tensor | None:
    """The only tensor of a request; what else the request says is not looked at. None: look closely.

    `binary`: what follows the JSON, if anything.
    """
    entries = document.get("inputs")
    if type(entries) is not list or len(entries) != 1 or not document.keys() <= _USUAL_FIELDS:
        return None
    entry, request_id = entries[0], document.get("id")
    if type(entry) is not dict or not (
        request_id is None or (type(request_id) is str and len(request_id) <= _LONGEST_ID)
    ):
        return None
    shape = entry.get("shape")
    if (
        entry.get("name") != spec.name
        or entry.get("datatype") != spec.datatype
        or type(shape) is not list
        or len(shape) != len(spec.shape)
    ):
        return None
    size = 1
    for got, wanted in zip(shape, spec.shape, strict=True):
        if type(got) is not int or got < 1 or wanted not in (-1, got):
            return None
        size *= got
    fields = entry.keys()
    array: Array | None = None
    if fields == _USUAL_JSON and not len(binary):
        array = flat_floats(entry["data"], spec.datatype)
    elif fields == _USUAL_BINARY and entry["parameters"] == {"binary_data_size": len(binary)}:
        dtype = DATATYPES[spec.datatype]
        said = entry["parameters"]["binary_data_size"]
        if dtype.kind == "f" and type(said) is int and said == size * dtype.itemsize:
            array = np.frombuffer(binary, dtype)
    if array is None or array.size != size or not all_finite(array):
        return None
    return Tensor(spec.name, spec.datatype, array.reshape(shape))
