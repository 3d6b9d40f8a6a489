"""What pydantic says becomes what a CRD takes, or is refused at generation."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from slimscale.api.common import Quantity
from slimscale.api.schema import UnsupportedSchema, structural_schema

Word = Annotated[str, Field(max_length=8)]


class Inner(BaseModel):
    """Words about it."""

    size: int = Field(default=3, gt=0, le=9)


def test_references_are_inlined_and_what_stands_beside_them_wins() -> None:
    class Model(BaseModel):
        one: Inner = Field(default=Inner(), description="Mine.")
        two: Inner = Inner()

    fields = structural_schema(Model)["properties"]
    assert fields["one"]["description"] == "Mine."
    assert fields["two"]["description"] == "Words about it."
    assert fields["one"]["properties"]["size"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 9,
        "default": 3,
    }


def test_a_default_of_an_object_is_written_out_in_full() -> None:
    # the API server tries the rules on the default before it fills in inner defaults
    class Model(BaseModel):
        one: Inner = Inner()

    assert structural_schema(Model)["properties"]["one"]["default"] == {"size": 3}


def test_a_default_that_differs_from_the_inner_models_is_refused() -> None:
    class Model(BaseModel):
        one: Inner = Inner(size=5)

    with pytest.raises(UnsupportedSchema, match=r"one\.size: default 5 here, 3 in its own"):
        structural_schema(Model)


def test_an_optional_field_is_nullable_and_has_no_default() -> None:
    class Model(BaseModel):
        one: Word | None = None

    field = structural_schema(Model)["properties"]["one"]
    assert field == {"type": "string", "maxLength": 8, "nullable": True}


def test_a_quantity_takes_numbers_and_text() -> None:
    class Model(BaseModel):
        one: Quantity = "100m"

    field = structural_schema(Model)["properties"]["one"]
    assert field["x-kubernetes-int-or-string"] is True
    assert field["maxLength"] == 32
    assert field["default"] == "100m"


def test_a_literal_is_an_enum() -> None:
    class Model(BaseModel):
        one: Literal["a"]
        two: Literal["a", "b"] = "b"

    fields = structural_schema(Model)
    assert fields["properties"]["one"]["enum"] == ["a"]
    assert fields["properties"]["two"] == {"type": "string", "enum": ["a", "b"], "default": "b"}
    assert fields["required"] == ["one"]


def test_the_pattern_of_a_maps_keys_becomes_a_rule() -> None:
    class Model(BaseModel):
        one: dict[Annotated[str, Field(pattern=r"^\w'$")], Word] = Field(max_length=4)

    field = structural_schema(Model)["properties"]["one"]
    assert field["additionalProperties"] == {"type": "string", "maxLength": 8}
    [rule] = field["x-kubernetes-validations"]
    assert rule["rule"] == r"self.all(key, key.matches('^\\w\'$'))"


def test_defaults_can_be_left_out() -> None:
    class Model(BaseModel):
        one: Inner = Inner()

    field = structural_schema(Model, defaults=False)["properties"]["one"]
    assert "default" not in field
    assert "default" not in field["properties"]["size"]


class UnboundedString(BaseModel):
    one: str


class UnboundedList(BaseModel):
    one: list[Word]


class UnboundedMap(BaseModel):
    one: dict[str, Word]


class UnboundedInside(BaseModel):
    one: list[str] = Field(max_length=3)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (UnboundedString, "one: has no maxLength"),
        (UnboundedList, "one: has no maxItems"),
        (UnboundedMap, "one: has no maxProperties"),
        (UnboundedInside, r"one\[\]: has no maxLength"),
    ],
)
def test_what_has_no_bound_is_refused(model: type[BaseModel], words: str) -> None:
    with pytest.raises(UnsupportedSchema, match=words):
        structural_schema(model)


class Union(BaseModel):
    one: int | Word


class Tuple(BaseModel):
    one: tuple[int, int]


class Anything(BaseModel):
    one: object


@pytest.mark.parametrize("model", [Union, Tuple, Anything])
def test_what_a_crd_cannot_say_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(UnsupportedSchema, match=r"\.one"):
        structural_schema(model)
