"""A6: annotations hold 262144 bytes and etcd 1.5 MiB; what we store is far below, whatever it holds."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from slimscale.act.memo_store import MAX_BYTES
from slimscale.api.crd import simworkload_crd
from slimscale.api.sliminference_crd import sliminference_crd

ANNOTATIONS_BYTES = 262_144
OBJECT_BYTES = 1_500_000
A_CHARACTER = 4  # bytes, at most; a quantity or number as text is short
A_NUMBER = 32


def most_bytes(schema: Any) -> int:
    """Of the JSON that this schema lets through, at most."""
    match schema.get("type"):
        case "object":
            fields = schema.get("properties") or {}
            known: int = sum(len(name) + 4 + most_bytes(inner) for name, inner in fields.items())
            free = schema.get("additionalProperties")
            rules = " ".join(r["rule"] for r in schema.get("x-kubernetes-validations") or [])
            key = 253 if "key.matches" in rules else A_CHARACTER * 128
            each = key + 4 + most_bytes(free) if free else 0
            return 2 + known + int(schema.get("maxProperties", 0)) * each
        case "array":
            return 2 + int(schema["maxItems"]) * (1 + most_bytes(schema["items"]))
        case "string":
            return 2 + _width(schema) * int(schema.get("maxLength", 64))
        case _:
            return max(A_NUMBER, A_CHARACTER * int(schema.get("maxLength", 0)))


def _width(schema: Any) -> int:
    """Bytes of a character: 1 where the pattern names the few that may stand there."""
    pattern = schema.get("pattern", "")
    outside = re.sub(r"\[[^\]^][^\]]*\]", "", pattern)
    return 1 if pattern and not set("[.") & set(outside.replace("\\.", "")) else A_CHARACTER


CRDS = pytest.mark.parametrize("make", [simworkload_crd, sliminference_crd])


@CRDS
def test_the_largest_spec_fits_into_an_annotation_several_times(make: Callable[[], Any]) -> None:
    """kubectl keeps the last applied object in one."""
    schema = make()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert most_bytes(schema["properties"]["spec"]) < ANNOTATIONS_BYTES / 3


@CRDS
def test_the_largest_status_and_the_largest_memory_fit_into_etcd(make: Callable[[], Any]) -> None:
    schema = make()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert most_bytes(schema["properties"]["status"]) < OBJECT_BYTES / 2
    assert MAX_BYTES < OBJECT_BYTES / 2
