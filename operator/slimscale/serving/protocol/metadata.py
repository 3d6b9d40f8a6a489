"""What a model takes and gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slimscale.serving.protocol.tensors import DATATYPES

__all__ = ["ModelMetadata", "TensorSpec"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`shape` begins with the rows; -1 takes any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    platform: str = "onnxruntime_onnx"
    versions: tuple[str, ...] = ("1",)

    def as_json(self, *, name: str | None = None) -> dict[str, Any]:
        """The answer to GET /v2/models/<model>; `name` in place of its own."""

        def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
            return [
                {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}
                for spec in specs
            ]

        return {
            "name": name or self.name,
            "versions": list(self.versions),
            "platform": self.platform,
            "inputs": tensors(self.inputs),
            "outputs": tensors(self.outputs),
        }

    @classmethod
    def from_json(cls, document: Any) -> "ModelMetadata":
        """Reads a model server's answer. ValueError for one that can't be served.

        Triton, MLServer and ours leave the rows out of no shape: the first length is the rows'.
        """

        def tensors(field: str) -> tuple[TensorSpec, ...]:
            found = document.get(field)
            if not isinstance(found, list) or not found:
                raise ValueError(f"metadata field {field} is missing or empty")
            return tuple(_spec(tensor, field) for tensor in found)

        if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
            raise ValueError("metadata is no object with a name")  # noqa: TRY004 - one kind
        return cls(
            name=document["name"],
            inputs=tensors("inputs"),
            outputs=tensors("outputs"),
            platform=str(document.get("platform", "")),
            versions=tuple(map(str, document.get("versions") or ())),
        )


def _spec(tensor: Any, field: str) -> TensorSpec:
    try:
        name, datatype = str(tensor["name"]), str(tensor["datatype"])
        shape = tuple(int(length) for length in tensor["shape"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"metadata field {field}: a tensor without name, datatype, shape"
        ) from None
    if datatype not in DATATYPES:
        raise ValueError(f"metadata field {field}: datatype {datatype} is not served")
    if not shape:
        raise ValueError(f"metadata field {field}: tensor {name} has no rows")
    return TensorSpec(name, datatype, shape)
