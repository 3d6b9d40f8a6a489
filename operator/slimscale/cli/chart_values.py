"""Reads the chart's values.yaml with its comments: the one source of its schema and its table."""

import json
from dataclasses import dataclass
from typing import Any

import yaml

from slimscale.exceptions import SlimError

__all__ = ["Value", "read_values", "values_schema", "values_table"]

_SCHEMA_MARK = "@schema "


@dataclass(frozen=True, slots=True)
class Value:
    """One entry; a mapping with documented entries of its own has `children`, others a default."""

    name: str
    default: Any
    description: str
    constraint: dict[str, Any]
    children: tuple["Value", ...] = ()


def read_values(text: str) -> tuple[Value, ...]:
    """All entries of a values.yaml, in its order.

    Raises:
        SlimError: an entry has no comment, or a `# @schema` line is no JSON.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise SlimError("values.yaml holds no mapping; write one")
    return _entries(node, text.splitlines(), "")


def _entries(node: yaml.MappingNode, lines: list[str], prefix: str) -> tuple[Value, ...]:
    found = []
    for key, value in node.value:
        name = str(key.value)
        path = f"{prefix}{name}"
        description, constraint = _comment(lines, key.start_mark.line, path)
        children: tuple[Value, ...] = ()
        default = yaml.SafeLoader("").construct_object(value, deep=True)
        if isinstance(value, yaml.MappingNode) and value.value and not description:
            children = _entries(value, lines, f"{path}.")
        elif not description:
            raise SlimError(f"values.yaml: {path} has no comment; say in one what it does")
        found.append(Value(name, default, description, constraint, children))
    return tuple(found)


def _comment(lines: list[str], line: int, path: str) -> tuple[str, dict[str, Any]]:
    """The comment lines right above a key: its words, and its constraint."""
    words: list[str] = []
    constraint: dict[str, Any] = {}
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        text = lines[line].lstrip().removeprefix("#").strip()
        if text.startswith(_SCHEMA_MARK):
            try:
                constraint = json.loads(text.removeprefix(_SCHEMA_MARK))
            except ValueError as error:
                raise SlimError(f"values.yaml: @schema of {path} is no JSON: {error}") from error
        else:
            words.insert(0, text)
    return " ".join(words), constraint


def values_schema(values: tuple[Value, ...]) -> str:
    """values.schema.json: an unknown or ill-typed value is refused by `helm install`."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the SlimScale chart",
        **_object(values),
    }
    # Helm hands these to every chart
    schema["properties"]["global"] = {"type": "object", "description": "Shared with subcharts."}
    return json.dumps(schema, indent=2) + "\n"


def _object(values: tuple[Value, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {value.name: _property(value) for value in values},
    }


def _property(value: Value) -> dict[str, Any]:
    if value.children:
        return _object(value.children)
    kinds: dict[type, str] = {
        bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
    }  # fmt: skip
    kind = kinds.get(type(value.default))
    if kind is None:
        raise SlimError(f"values.yaml: {value.name} has no type; give it a default")
    return {
        "type": kind,
        "description": value.description,
        "default": value.default,
        **value.constraint,
    }


def values_table(values: tuple[Value, ...]) -> str:
    """A Markdown table: value, default, what it does."""
    rows = ["| value | default | what it does |", "|---|---|---|"]
    rows += _rows(values, "")
    return "\n".join(rows) + "\n"


def _rows(values: tuple[Value, ...], prefix: str) -> list[str]:
    rows = []
    for value in values:
        path = f"{prefix}{value.name}"
        if value.children:
            rows += _rows(value.children, f"{path}.")
        else:
            default = json.dumps(value.default)
            rows.append(f"| `{path}` | `{default}` | {value.description} |")
    return rows
