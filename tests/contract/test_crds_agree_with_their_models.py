"""Both resources: the CRD and the models say the same, bounds stand, published fields stay."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from slimscale.api import simworkload as workload_models
from slimscale.api import sliminference as inference_models
from slimscale.api.crd import RULES, CelRule, simworkload_crd
from slimscale.api.sliminference_crd import INFERENCE_RULES, sliminference_crd
from slimscale.api.validation import describe_errors, validate_simworkload, validate_sliminference
from tests.support.crd_nodes import Schema, schema_nodes
from tests.support.helm import ROOT
from tests.support.inference_cases import INFERENCE_CASES
from tests.support.inferences import sliminference
from tests.support.spec_cases import CASES, SpecCase, manifest


@dataclass(frozen=True)
class Resource:
    """One of our kinds, and what its tests look at."""

    name: str
    crd: Callable[[], dict[str, Any]]
    models: ModuleType
    rules: dict[str, CelRule]
    """By its text: one that stands in two places counts once."""
    cases: Sequence[SpecCase]
    judge: Callable[[SpecCase], object]
    merged_lists: dict[str, list[str]]
    longest: int
    """Characters of a string that has no enumeration."""


def by_text(rules: Mapping[str, Sequence[CelRule]]) -> dict[str, CelRule]:
    return {rule.rule: rule for found in rules.values() for rule in found}


RESOURCES = (
    Resource(
        "simworkload", simworkload_crd, workload_models, by_text(RULES), CASES,
        lambda case: validate_simworkload(manifest(case)),
        {"status.conditions": ["type"], "status.pods": ["name"]}, 2048,
    ),
    Resource(
        "sliminference", sliminference_crd, inference_models, by_text(INFERENCE_RULES),
        INFERENCE_CASES,
        lambda case: validate_sliminference(sliminference() | {"spec": case.spec}),
        {"status.conditions": ["type"], "status.pools": ["name"]}, 1024,
    ),
)  # fmt: skip

each_resource = pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.name)
each_case = pytest.mark.parametrize(
    ("resource", "case"),
    [pytest.param(r, case, id=f"{r.name}-{case.name}") for r in RESOURCES for case in r.cases],
)
each_rule = pytest.mark.parametrize(
    ("resource", "rule"),
    [pytest.param(r, rule, id=f"{r.name}-{rule}") for r in RESOURCES for rule in r.rules],
)
each_node = pytest.mark.parametrize(
    ("resource", "node"),
    [
        pytest.param(resource, node, id=f"{resource.name}-{path}")
        for resource in RESOURCES
        for path, node in schema_nodes(resource.crd())
    ],
)


@each_case
def test_the_models_judge_each_case_as_the_table_says(resource: Resource, case: SpecCase) -> None:
    try:
        resource.judge(case)
    except ValidationError as error:
        said = " | ".join(describe_errors(error))
        assert not case.ok, said
        assert case.says in said
    else:
        assert case.ok


@each_resource
def test_each_check_across_fields_in_the_models_has_a_rule_in_the_crd(resource: Resource) -> None:
    tree = ast.parse(Path(resource.models.__file__ or "").read_text(encoding="utf-8"))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    assert len(checks) == len(resource.rules)


@each_rule
def test_each_rule_has_a_case_that_it_lets_through_and_one_that_it_refuses(
    resource: Resource, rule: str
) -> None:
    verdicts = {case.ok for case in resource.cases if case.rule and case.rule in rule}
    assert verdicts == {True, False}


@each_node
def test_lists_maps_and_strings_are_bounded_on_the_field_itself(
    resource: Resource, node: Schema
) -> None:
    """G3: CEL is charged for the worst that the schema allows."""
    if node.get("type") == "array":
        assert node["maxItems"] <= 100
    if "additionalProperties" in node:
        assert node["maxProperties"] <= 100
    if node.get("type") == "string" and node.get("format") != "date-time":
        assert "enum" in node or node["maxLength"] <= resource.longest


@each_node
def test_the_schema_is_structural(resource: Resource, node: Schema) -> None:
    assert not {"$ref", "title", "const", "oneOf", "allOf", "not", "patternProperties"} & set(node)
    assert "type" in node or node.get("x-kubernetes-int-or-string") is True
    assert not ("properties" in node and "additionalProperties" in node)
    if "anyOf" in node:
        assert node["x-kubernetes-int-or-string"] is True


@each_resource
def test_status_has_no_defaults(resource: Resource) -> None:
    # They would come back at every read and look like a change of our own status.
    found = [
        path
        for path, node in schema_nodes(resource.crd())
        if path.startswith("status") and "default" in node
    ]
    assert found == []


@each_resource
def test_lists_with_a_key_are_merged_by_it(resource: Resource) -> None:
    keys = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in schema_nodes(resource.crd())
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert keys == resource.merged_lists


@each_resource
def test_columns_point_at_fields_that_exist(resource: Resource) -> None:
    known = {f".{path}" for path, _ in schema_nodes(resource.crd())}
    for column in resource.crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", "[]", column["jsonPath"])
        assert path in known or path == ".metadata.creationTimestamp", column["name"]


@each_resource
def test_no_field_of_a_published_version_vanishes_or_changes_its_type(resource: Resource) -> None:
    golden = ROOT / f"tests/golden/{resource.name}-v1alpha1-fields.txt"
    present = {
        f"{path} {node.get('type', 'int-or-string')}" for path, node in schema_nodes(resource.crd())
    }
    published = set(golden.read_text(encoding="utf-8").split("\n")) - {""}
    assert published - present == set(), "users have objects with these fields: keep them"
    assert present - published == set(), f"new fields: add these lines to {golden.name}"
