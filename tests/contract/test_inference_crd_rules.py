"""SlimInference: every field has a value that is legal, examples are valid, no field gives a pod."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from slimscale.act.inference_children import ChildSettings, children_of
from slimscale.act.inference_pods import Images
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.api.sliminference_crd import sliminference_crd
from slimscale.api.validation import describe_errors, validate_sliminference
from slimscale.observe.target import observe_target
from tests.support.crd_nodes import Schema, schema_nodes
from tests.support.helm import ROOT
from tests.support.inferences import inference_spec, sliminference

ALL_NODES = schema_nodes(sliminference_crd())
SPEC_NODES = [entry for entry in ALL_NODES if entry[0].startswith("spec")]


def test_an_unknown_field_is_named_with_its_kind() -> None:
    with pytest.raises(ValidationError) as raised:
        validate_sliminference(sliminference(modell={}))
    [line] = describe_errors(raised.value)
    assert line.startswith("spec.modell")
    assert "SlimInference" in line
    assert "kubectl explain sliminference.spec" in line


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
