"""SlimInference: the CRD and the models say the same; every field has a value that is legal."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from slimscale.act.inference_children import ChildSettings, children_of
from slimscale.act.inference_pods import Images
from slimscale.api import sliminference as models
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.api.sliminference_crd import INFERENCE_RULES, sliminference_crd
from slimscale.api.validation import describe_errors, validate_sliminference
from slimscale.observe.target import observe_target
from tests.support.helm import ROOT
from tests.support.inference_cases import INFERENCE_CASES
from tests.support.inferences import inference_spec, sliminference
from tests.support.spec_cases import SpecCase

Schema = dict[str, Any]
SCHEMA: Schema = sliminference_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
FIELDS = ROOT / "tests/golden/sliminference-v1alpha1-fields.txt"
RULES = {rule.rule: rule for rules in INFERENCE_RULES.values() for rule in rules}
"""One that stands in two places counts once."""


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
SPEC_NODES = [entry for entry in ALL_NODES if entry[0].startswith("spec")]


@pytest.mark.parametrize("case", INFERENCE_CASES, ids=lambda case: case.name)
def test_the_models_judge_each_case_as_the_table_says(case: SpecCase) -> None:
    try:
        validate_sliminference(sliminference() | {"spec": case.spec})
    except ValidationError as error:
        said = " | ".join(describe_errors(error))
        assert not case.ok, said
        assert case.says in said
    else:
        assert case.ok


def test_an_unknown_field_is_named_with_its_kind() -> None:
    with pytest.raises(ValidationError) as raised:
        validate_sliminference(sliminference(modell={}))
    [line] = describe_errors(raised.value)
    assert line.startswith("spec.modell")
    assert "SlimInference" in line
    assert "kubectl explain sliminference.spec" in line


def test_each_check_across_fields_in_the_models_has_a_rule_in_the_crd() -> None:
    tree = ast.parse(Path(models.__file__).read_text(encoding="utf-8"))
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.Raise)]) == len(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.rule)
def test_each_rule_has_a_case_that_it_lets_through_and_one_that_it_refuses(rule: Any) -> None:
    verdicts = {case.ok for case in INFERENCE_CASES if case.rule and case.rule in rule.rule}
    assert verdicts == {True, False}


@pytest.mark.parametrize(("path", "node"), ALL_NODES, ids=[path for path, _ in ALL_NODES])
def test_lists_maps_and_strings_are_bounded_on_the_field_itself(path: str, node: Schema) -> None:
    """G3: CEL is charged for the worst that the schema allows."""
    if node.get("type") == "array":
        assert node["maxItems"] <= 100
    if "additionalProperties" in node:
        assert node["maxProperties"] <= 100
    if node.get("type") == "string" and node.get("format") != "date-time":
        assert "enum" in node or node["maxLength"] <= 1024


def legal_values(node: Schema, default: Any) -> Iterator[Any]:
    """Values of a field that its own schema allows: the ends, the default, each word."""
    if "enum" in node:
        yield from node["enum"]
    elif node.get("type") in ("integer", "number"):
        low, high = node.get("minimum"), node.get("maximum")
        step = 1 if node["type"] == "integer" else 0.001
        if low is not None:
            yield low + step if node.get("exclusiveMinimum") else low
        if high is not None:
            yield high
        if low is not None and high is not None:
            yield (low + high) // 2 if node["type"] == "integer" else (low + high) / 2
    elif node.get("type") == "boolean":
        yield from (True, False)
    if default is not None:
        yield default


SCALARS = [
    (path, node)
    for path, node in SPEC_NODES
    if node.get("type") in ("integer", "number", "boolean") or "enum" in node
    if "[]" not in path.replace("pools[]", "") and "{}" not in path
]


@pytest.mark.parametrize(("path", "node"), SCALARS, ids=[path for path, _ in SCALARS])
def test_every_optional_field_has_a_legal_value_under_defaults(path: str, node: Schema) -> None:
    """E11: rules together must leave something to choose, whichever field is set alone."""
    taken = []
    for value in legal_values(node, node.get("default")):
        spec: Any = inference_spec(pools=[{"name": "cpu"}])
        part = spec
        *way, last = path.split(".")[1:]
        for name in way:
            part = part["pools"][0] if name == "pools[]" else part.setdefault(name, {})
        part[last] = value
        try:
            validate_sliminference(sliminference() | {"spec": spec})
        except ValidationError:
            continue
        taken.append(value)
    assert taken, f"{path}: no value of its own schema passes the rules"


def test_status_has_no_defaults() -> None:
    found = [path for path, node in ALL_NODES if path.startswith("status") and "default" in node]
    assert found == []


def test_lists_of_conditions_and_pools_are_merged_by_their_key() -> None:
    keys = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in ALL_NODES
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert keys == {"status.conditions": ["type"], "status.pools": ["name"]}


def test_columns_point_at_fields_that_exist() -> None:
    known = {f".{path}" for path, _ in ALL_NODES}
    for column in sliminference_crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", "[]", column["jsonPath"])
        assert path in known or path == ".metadata.creationTimestamp", column["name"]


def test_no_field_of_a_published_version_vanishes_or_changes_its_type() -> None:
    present = {f"{path} {node.get('type', 'int-or-string')}" for path, node in ALL_NODES}
    published = set(FIELDS.read_text(encoding="utf-8").split("\n")) - {""}
    assert published - present == set(), "users have objects with these fields: keep them"
    assert present - published == set(), f"new fields: add these lines to {FIELDS.name}"


def test_no_field_can_point_to_another_namespace_or_hold_a_pod() -> None:
    """H3: who may write a SlimInference gets no pod of his own making out of it."""
    names = {path.rsplit(".", 1)[-1].lower() for path, _ in SPEC_NODES}
    assert not {"namespace", "url", "host", "address", "template", "serviceaccountname"} & names
    assert not {"hostpath", "env", "command", "args", "volumes", "securitycontext"} & names


def test_the_example_is_valid_and_names_the_models_that_ship() -> None:
    example = yaml.safe_load((ROOT / "examples/sliminference.yaml").read_text(encoding="utf-8"))
    example["metadata"]["namespace"] = "default"
    model = validate_sliminference(example).spec.model
    card = json.loads((ROOT / "operator/slimscale/weights/fashion/card.json").read_text())
    shipped = {width["model"]: width["accuracy"] for width in card["widths"]}
    assert {width.model: width.accuracy for width in model.widths} == shipped


def test_the_example_with_threads_names_the_pool_and_the_server_of_the_other_example() -> None:
    served = yaml.safe_load((ROOT / "examples/sliminference.yaml").read_text(encoding="utf-8"))
    text = (ROOT / "examples/sliminference-threads.yaml").read_text(encoding="utf-8")
    threads = SimWorkloadSpec.model_validate(yaml.safe_load(text)["spec"])
    served["metadata"] |= {"namespace": "default", "uid": "u"}
    spec = validate_sliminference(served).spec
    children = children_of(
        spec, name=served["metadata"]["name"], namespace="default", uid="u",
        settings=ChildSettings(Images("data:1", "model:1")),
    )  # fmt: skip
    [pool] = [
        c.body for c in children if (c.plural, c.name) == ("deployments", threads.target_ref.name)
    ]
    seen = observe_target(pool, threads)
    assert (seen.container, seen.native_sidecar) == ("model-server", True)
    assert seen.template_owner, "so that a rollout is refused"
