"""Structural schemas (what a CRD takes) out of pydantic models.

A structural schema allows less than JSON Schema: no references, no unions but `nullable` and
int-or-string, no constraint on the keys of a map. What cannot be said in it is refused here, at
generation, and never dropped in silence. So is a list, map or string without an upper bound: the
API server charges CEL for the worst case that the schema allows (pitfall G3), and it looks at the
bound on the field itself alone.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["Schema", "UnsupportedSchema", "structural_schema"]

Schema = dict[str, Any]

_COPIED = (
    "type", "description", "enum", "format", "pattern",
    "minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties",
)  # fmt: skip
_KNOWN = frozenset(
    (
        *_COPIED,
        *("title", "const", "default", "properties", "required", "items", "uniqueItems"),
        *("additionalProperties", "patternProperties", "propertyNames"),
        *("exclusiveMinimum", "exclusiveMaximum", "anyOf"),
    )
)
_BOUNDED = {"array": "maxItems", "string": "maxLength"}
_BOUNDED_FORMATS = frozenset({"date-time"})


class UnsupportedSchema(ValueError):
    """A model says something that a CRD cannot; the message names the field and a way out."""


def structural_schema(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The schema of a model as `openAPIV3Schema` takes it.

    defaults False leaves them out: in a status they would make what is stored differ from what
    the operator wrote, and so make it write again and again.

    Raises:
        UnsupportedSchema: the model holds a construct that no structural schema has, or a list,
            map or string without an upper bound.
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(raw.pop("$defs", {}), defaults=defaults).convert(raw, model.__name__)


class _Converter:
    def __init__(self, definitions: Mapping[str, Schema], *, defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def convert(self, raw: Schema, path: str) -> Schema:
        """One node; path is for messages."""
        raw, nullable = self._resolve(raw, path)
        if raw.get("x-kubernetes-int-or-string"):
            result = {key: raw[key] for key in (*_COPIED, "anyOf") if key in raw}
            _require(raw, "maxLength", path)
        else:
            result = self._plain(raw, path)
        result |= {key: raw[key] for key in raw if key.startswith("x-kubernetes-")}
        if nullable:
            result["nullable"] = True
        if self._defaults and raw.get("default") is not None:
            result["default"] = self._default(raw["default"], result, path)
        return result

    def _resolve(self, raw: Schema, path: str) -> tuple[Schema, bool]:
        """References inlined and `T | None` unwrapped; what stands beside a reference wins."""
        nullable = False
        while True:
            if "$ref" in raw:
                target = self._definitions[raw["$ref"].removeprefix("#/$defs/")]
                raw = {**target, **{key: raw[key] for key in raw if key != "$ref"}}
                continue
            branches = [b for b in raw.get("anyOf", ()) if b != {"type": "null"}]
            if len(branches) == 1 and len(raw["anyOf"]) == 2:
                raw = {**branches[0], **{key: raw[key] for key in raw if key != "anyOf"}}
                nullable = True
                continue
            break
        unknown = sorted(k for k in raw if k not in _KNOWN and not k.startswith("x-kubernetes-"))
        if unknown:
            raise UnsupportedSchema(f"{path}: a CRD has no {', '.join(unknown)}; say it otherwise")
        return raw, nullable

    def _plain(self, raw: Schema, path: str) -> Schema:
        if "anyOf" in raw or "type" not in raw:
            raise UnsupportedSchema(f"{path}: a CRD has no unions; use one type")
        result = {key: raw[key] for key in _COPIED if key in raw}
        kind = raw["type"]
        if "const" in raw:
            result["enum"] = [raw["const"]]
        for bound in ("minimum", "maximum"):
            exclusive = "exclusive" + bound.capitalize()
            if exclusive in raw:
                result |= {bound: raw[exclusive], exclusive: True}
        if kind == "integer":
            result.setdefault("format", "int64")
        elif kind == "array":
            self._array(raw, result, path)
        elif kind == "object":
            self._object(raw, result, path)
        if kind in _BOUNDED and "enum" not in result and raw.get("format") not in _BOUNDED_FORMATS:
            _require(raw, _BOUNDED[kind], path)
        return result

    def _array(self, raw: Schema, result: Schema, path: str) -> None:
        result["items"] = self.convert(raw.get("items") or {}, f"{path}[]")
        if raw.get("uniqueItems"):
            result["x-kubernetes-list-type"] = "set"
        elif "x-kubernetes-list-type" not in raw:
            result["x-kubernetes-list-type"] = "atomic"

    def _object(self, raw: Schema, result: Schema, path: str) -> None:
        if "properties" in raw:
            result["properties"] = {
                name: self.convert(raw["properties"][name], f"{path}.{name}")
                for name in sorted(raw["properties"])
            }
            if raw.get("required"):
                result["required"] = sorted(raw["required"])
            return
        _require(raw, "maxProperties", path)
        values, pattern = self._map(raw, path)
        result["additionalProperties"] = self.convert(values, f"{path}{{}}")
        if pattern is not None:
            quoted = pattern.replace("\\", "\\\\").replace("'", "\\'")
            result["x-kubernetes-validations"] = [
                {
                    "rule": f"self.all(key, key.matches('{quoted}'))",
                    "message": f"a key does not match {pattern}; rewrite it so that it does",
                }
            ]

    @staticmethod
    def _map(raw: Schema, path: str) -> tuple[Schema, str | None]:
        """Schema of the values and the pattern of the keys: pydantic writes them in two ways."""
        patterns = raw.get("patternProperties") or {}
        if len(patterns) == 1 and not raw.get("additionalProperties"):
            [(pattern, values)] = patterns.items()
            return values, pattern
        if not isinstance(raw.get("additionalProperties"), dict):
            raise UnsupportedSchema(f"{path}: a map needs one type of values")
        return raw["additionalProperties"], (raw.get("propertyNames") or {}).get("pattern")

    def _default(self, value: Any, converted: Schema, path: str) -> Any:
        """An object's default in full: the API server tries the rules on it as it stands here."""
        if converted.get("type") != "object" or "properties" not in converted:
            return value
        for name, given in value.items():
            own = converted["properties"][name].get("default")
            given_or_absent = None if given in (None, [], {}) else given
            if given_or_absent is not None and _without_absent(given) != own:
                raise UnsupportedSchema(
                    f"{path}.{name}: default {given!r} here, {own!r} in its own model; make them one"
                )
        return _without_absent(value)


def _without_absent(value: Any) -> Any:
    """Without nulls and empty lists and maps, which mean the same as an absent field."""
    if not isinstance(value, dict):
        return value
    return {
        key: _without_absent(entry) for key, entry in value.items() if entry not in (None, [], {})
    }


def _require(raw: Schema, bound: str, path: str) -> None:
    if bound not in raw:
        raise UnsupportedSchema(f"{path}: has no {bound}; bound it, CEL is charged for the worst")
