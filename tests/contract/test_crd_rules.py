"""SimWorkload: defaults, the digest of the schema, and what no field may say."""

from typing import Any

import pytest

from slimscale.api.crd import RULES, schema_digest, simworkload_crd
from slimscale.api.validation import validate_simworkload
from tests.support.crd_nodes import schema_nodes
from tests.support.spec_cases import CASES, SpecCase, manifest

ALL_NODES = schema_nodes(simworkload_crd())
ALL_RULES = [rule for rules in RULES.values() for rule in rules]


def test_each_case_of_a_rule_names_just_one_rule() -> None:
    for case in CASES:
        if case.rule:
            assert len([rule for rule in ALL_RULES if case.rule in rule.rule]) == 1, case.name


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


def test_the_digest_changes_with_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_digest()
    assert simworkload_crd()["metadata"]["annotations"] == {"slimscale.dev/schema-digest": before}
    monkeypatch.setattr("slimscale.api.crd.RULES", {})
    assert schema_digest() != before


def test_no_field_can_point_to_another_namespace_or_to_an_address() -> None:
    names = {path.rsplit(".", 1)[-1].lower() for path, _ in ALL_NODES if path.startswith("spec")}
    assert not {"namespace", "url", "host", "address", "server", "query"} & names
