"""The fields of a CRD's schema, one by one."""

from collections.abc import Iterator
from typing import Any

__all__ = ["Schema", "schema_nodes"]

Schema = dict[str, Any]


def schema_nodes(crd: dict[str, Any]) -> list[tuple[str, Schema]]:
    """(path, schema) of every field of spec and status; `[]` is a list's item, `{}` a map's value."""
    root: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return [
        entry for part in ("spec", "status") for entry in _below(root["properties"][part], part)
    ]


def _below(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from _below(child, f"{path}.{name}")
    if "items" in node:
        yield from _below(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from _below(node["additionalProperties"], f"{path}{{}}")
