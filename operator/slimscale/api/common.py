"""What all custom resources share: the base model, Kubernetes' own types, bounds."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from slimscale.api.quantity import QUANTITY_PATTERN, parse_quantity

__all__ = ["Condition", "CpuQuantity", "KubeModel", "Name", "Quantity"]


class KubeModel(BaseModel):
    """camelCase on the wire, snake_case in code; an unknown field is an error that names it."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


def _quantity_schema(_source: Any, _handler: Any) -> core_schema.CoreSchema:
    def check(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(  # noqa: TRY004 - pydantic turns only ValueError into a field error
                f"{value!r} is not a quantity; write for example 500m or 2"
            )
        text = str(value)
        parse_quantity(text)
        return text

    return core_schema.no_info_plain_validator_function(
        check, serialization=core_schema.to_string_ser_schema()
    )


# A number as Kubernetes writes it (`500m`, `2`, `1.5`); kept as text, so that what the user wrote
# is what `kubectl get -o yaml` shows.
Quantity = Annotated[
    str,
    GetPydanticSchema(_quantity_schema),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 32,
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
CpuQuantity = Quantity

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]


class Condition(KubeModel):
    """A condition as in `metav1.Condition`: positive polarity, the reason is part of the API."""

    type: str = Field(max_length=64)
    status: str = Field(max_length=7, pattern=r"^(True|False|Unknown)$")
    reason: str = Field(max_length=64)
    message: str = Field(default="", max_length=1024)
    observed_generation: int = Field(default=0, ge=0)
    last_transition_time: datetime
