"""From a batch's outputs back to its requests: each gets exactly its rows, or nobody gets any."""

from collections.abc import Sequence

import numpy as np

from slimscale.serving.protocol.metadata import TensorSpec
from slimscale.serving.protocol.tensors import Array, Tensor, all_finite

__all__ = ["Mismatch", "in_order", "share"]


class Mismatch(ValueError):
    """The outputs don't match the batch: no row of it can be trusted to be whose it seems."""


def in_order(outputs: Sequence[Tensor], specs: Sequence[TensorSpec], rows: int) -> list[Tensor]:
    """The outputs in the model's order, each with exactly `rows` rows. Raises Mismatch."""
    by_name = {tensor.name: tensor for tensor in outputs}
    ordered = []
    for spec in specs:
        tensor = by_name.get(spec.name)
        if tensor is None:
            raise Mismatch(f"output {spec.name} is missing")
        if tensor.array.ndim == 0 or tensor.array.shape[0] != rows:
            raise Mismatch(f"output {spec.name}: shape {tensor.array.shape} for {rows} rows")
        ordered.append(tensor)
    return ordered


def share(
    outputs: Sequence[Tensor], rows_each: Sequence[int]
) -> list[tuple[tuple[Tensor, ...], bool]]:
    """For each request its outputs, as views, and whether all their numbers are finite."""
    finite = [_finite_rows(tensor) for tensor in outputs]
    shares = []
    start = 0
    for rows in rows_each:
        end = start + rows
        views = tuple(
            Tensor(tensor.name, tensor.datatype, tensor.array[start:end]) for tensor in outputs
        )
        shares.append((views, all(mask is None or mask[start:end].all() for mask in finite)))
        start = end
    return shares


def _finite_rows(tensor: Tensor) -> Array | None:
    """A mask over the rows; None where all numbers are finite, which is nearly always."""
    array = tensor.array
    if all_finite(array):
        return None
    mask: Array = np.all(np.isfinite(array).reshape(array.shape[0], -1), axis=1)
    return mask
