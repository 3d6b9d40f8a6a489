"""The CRD and the models say the same: rules, bounds, and fields that stay."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from slimscale.api import simworkload
from slimscale.api.crd import RULES, schema_digest, simworkload_crd
from slimscale.api.validation import describe_errors, validate_simworkload
from tests.support.helm import ROOT
from tests.support.spec_cases import CASES, SpecCase, manifest

Schema = dict[str, Any]
SCHEMA: Schema = simworkload_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
FIELDS = ROOT / "tests/golden/simworkload-v1alpha1-fields.txt"
ALL_RULES = [rule for rules in RULES.values() for rule in rules]


def nodes(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


ALL_NODES = [
    entry for part in ("spec", "status") for entry in nodes(SCHEMA["properties"][part], part)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_models_judge_each_case_as_the_table_says(case: SpecCase) -> None:
    try:
        validate_simworkload(manifest(case))
    except ValidationError as error:
        said = " | ".join(describe_errors(error))
        assert not case.ok, said
        assert case.says in said
    else:
        assert case.ok


def test_each_check_across_fields_in_the_models_has_a_rule_in_the_crd() -> None:
    tree = ast.parse(Path(simworkload.__file__).read_text(encoding="utf-8"))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    assert len(checks) == len(ALL_RULES)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.rule)
def test_each_rule_has_a_case_that_it_lets_through_and_one_that_it_refuses(rule: Any) -> None:
    verdicts = {case.ok for case in CASES if case.rule and case.rule in rule.rule}
    assert verdicts == {True, False}


def test_each_case_of_a_rule_names_just_one_rule() -> None:
    for case in CASES:
        if case.rule:
            assert len([rule for rule in ALL_RULES if case.rule in rule.rule]) == 1, case.name


@pytest.mark.parametrize(("path", "node"), ALL_NODES, ids=[path for path, _ in ALL_NODES])
def test_lists_maps_and_strings_are_bounded_on_the_field_itself(path: str, node: Schema) -> None:
    if node.get("type") == "array":
        assert node["maxItems"] <= 100
    if "additionalProperties" in node:
        assert node["maxProperties"] <= 100
    if node.get("type") == "string" and node.get("format") != "date-time":
        assert "enum" in node or node["maxLength"] <= 2048


@pytest.mark.parametrize(("path", "node"), ALL_NODES, ids=[path for path, _ in ALL_NODES])
def test_the_schema_is_structural(path: str, node: Schema) -> None:
    assert not {"$ref", "title", "const", "oneOf", "allOf", "not", "patternProperties"} & set(node)
    assert "type" in node or node.get("x-kubernetes-int-or-string") is True
    assert not ("properties" in node and "additionalProperties" in node)
    if "anyOf" in node:
        assert node["x-kubernetes-int-or-string"] is True


def test_status_has_no_defaults() -> None:
    # they would come back at every read and look like a change of our own status
    assert [
        path for path, node in ALL_NODES if path.startswith("status") and "default" in node
    ] == []


def test_defaults_are_the_models() -> None:
    minimal = manifest(SpecCase("only-a-target", True, {"targetRef": {"name": "ant"}}))
    spec = validate_simworkload(minimal).spec.model_dump(by_alias=True, mode="json")
    differing = []
    for path, node in ALL_NODES:
        if "default" not in node or "properties" in node:
            continue
        value: Any = spec
        for part in path.split(".")[1:]:
            value = value[part]
        if value != node["default"]:
            differing.append(path)
    assert differing == []


def test_lists_of_conditions_and_pods_are_merged_by_their_key() -> None:
    keys = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in ALL_NODES
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert keys == {"status.conditions": ["type"], "status.pods": ["name"]}


def test_columns_point_at_fields_that_exist() -> None:
    known = {f".{path}" for path, _ in ALL_NODES}
    for column in simworkload_crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", "[]", column["jsonPath"])
        assert path in known or path == ".metadata.creationTimestamp", column["name"]


def test_no_field_of_a_published_version_vanishes_or_changes_its_type() -> None:
    present = {f"{path} {node.get('type', 'int-or-string')}" for path, node in ALL_NODES}
    published = set(FIELDS.read_text(encoding="utf-8").split("\n")) - {""}
    assert published - present == set(), "users have objects with these fields: keep them"
    assert present - published == set(), f"new fields: add these lines to {FIELDS.name}"


def test_the_digest_changes_with_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_digest()
    assert simworkload_crd()["metadata"]["annotations"] == {"slimscale.dev/schema-digest": before}
    monkeypatch.setattr("slimscale.api.crd.RULES", {})
    assert schema_digest() != before


def test_no_field_can_point_to_another_namespace_or_to_an_address() -> None:
    names = {path.rsplit(".", 1)[-1].lower() for path, _ in ALL_NODES if path.startswith("spec")}
    assert not {"namespace", "url", "host", "address", "server", "query"} & names
