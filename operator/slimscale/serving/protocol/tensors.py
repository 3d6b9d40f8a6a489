"""Tensors of the protocol and their datatypes."""

from array import array as array_of
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.serving.protocol.errors import InvalidRequest

__all__ = ["DATATYPES", "Array", "Tensor", "all_finite", "datatype_of"]
__all__ += ["flat_floats", "from_bytes", "from_json"]

Array = NDArray[Any]
_SMALL = 8192
"""Numbers. For more of them a BLAS may start threads."""

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""Little-endian on the wire. BYTES (strings) and BF16 are not served: a CNN takes numbers."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """`array` has the whole shape, rows first, in the byte order of the wire."""

    name: str
    datatype: str
    array: Array


def all_finite(array: Array) -> bool:
    """Whether no element is NaN or infinite; true for whole numbers."""
    if array.size <= _SMALL and array.dtype.char in "fd" and isfinite(np.vdot(array, array)):
        return True  # one call in place of two; where squares overflow the long way decides
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def datatype_of(array: Array) -> str:
    """The protocol's name of an array's type. ValueError for a type that it doesn't have."""
    name = _NAMES.get(array.dtype.newbyteorder("<")) if array.dtype != np.bool_ else "BOOL"
    if name is None:
        raise ValueError(f"{array.dtype} has no name in the Open Inference Protocol")
    return name


def from_bytes(raw: memoryview, datatype: str, shape: tuple[int, ...], field: str) -> Array:
    """A view of `raw`, without a copy. `field` names the tensor in the error."""
    dtype = DATATYPES[datatype]
    size = _size(shape)
    if len(raw) != size * dtype.itemsize:
        raise InvalidRequest(
            f"{field}: {len(raw)} bytes of binary data, but shape {list(shape)} of {datatype}"
            f" takes {size * dtype.itemsize}"
        )
    if datatype == "BOOL" and size and int(np.frombuffer(raw, np.uint8).max()) > 1:
        raise InvalidRequest(f"{field}: a byte of BOOL data is neither 0 nor 1")
    return np.frombuffer(raw, dtype).reshape(shape)


def from_json(data: Any, datatype: str, shape: tuple[int, ...], field: str) -> Array:
    """Numbers of a JSON list, flat or nested as the shape says."""
    if not isinstance(data, list):
        raise InvalidRequest(f"{field}.data: not a list; send the numbers as a list, row by row")
    dtype = DATATYPES[datatype]
    flat = flat_floats(data, datatype)
    if flat is not None and flat.size == _size(shape):
        return flat.reshape(shape)
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{field}.data: lists of unlike lengths, or not only numbers; send {_size(shape)} numbers,"
            " flat or nested as the shape says"
        ) from None
    if array.dtype.kind not in ("b" if datatype == "BOOL" else "iuf"):
        wanted = "true or false" if datatype == "BOOL" else "numbers"
        raise InvalidRequest(f"{field}.data: something that {datatype} can't hold; send {wanted}")
    if array.size != _size(shape):
        raise InvalidRequest(
            f"{field}.data: {array.size} numbers, but shape {list(shape)} takes {_size(shape)}"
        )
    if array.ndim > 1 and array.shape != shape:
        raise InvalidRequest(
            f"{field}.data: nested as {list(array.shape)}, but the shape says {list(shape)}"
        )
    if array.dtype != dtype:
        array = _convert(array, dtype, datatype, field)
    return array.reshape(shape)


_FLOAT_CODES = {"FP32": "f", "FP64": "d"}


def flat_floats(data: Any, datatype: str) -> Array | None:
    """The usual case, a flat list of floats, at a third of the cost; None: look at it closely."""
    code = _FLOAT_CODES.get(datatype)
    if code is None or type(data) is not list or not data or type(data[0]) is bool:
        return None
    try:
        return np.frombuffer(array_of(code, data), DATATYPES[datatype])
    except (TypeError, OverflowError):
        return None


def _convert(array: Array, dtype: np.dtype[Any], datatype: str, field: str) -> Array:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = array.dtype.kind in "iu" or bool(np.all(np.mod(array, 1) == 0))
        if not whole or (array.size and (array.min() < limits.min or array.max() > limits.max)):
            raise InvalidRequest(
                f"{field}.data: a number that {datatype} can't hold; send whole numbers from"
                f" {limits.min} to {limits.max}"
            )
    with np.errstate(over="ignore"):  # becomes infinite, which the caller refuses by name
        return array.astype(dtype)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
