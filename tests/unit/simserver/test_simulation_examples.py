"""What examples/ holds is accepted by Kubernetes and by our own API, and fits the program."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from simserver.settings import read_settings
from slimscale.api.names import ANNOTATION_INJECTED, API_VERSION, LABEL_INJECT
from slimscale.api.simworkload import SimWorkloadSpec

EXAMPLES = Path(__file__).parents[3] / "examples"


def _load(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


@pytest.fixture
def template() -> Any:
    return _load("simulation.yaml")["spec"]["template"]


def test_kubernetes_accepts_the_deployment() -> None:
    kubernetes_validate.validate(_load("simulation.yaml"), "1.35", strict=True)


def test_the_api_accepts_the_custom_resource_and_it_names_the_deployment(template: Any) -> None:
    resource = _load("simworkload.yaml")
    spec = SimWorkloadSpec.model_validate(resource["spec"])
    assert resource["apiVersion"] == API_VERSION
    assert spec.target_ref.name == _load("simulation.yaml")["metadata"]["name"]
    assert spec.container_name in [c["name"] for c in template["spec"]["containers"]]


def test_the_webhook_is_told_which_of_the_two_containers_to_serve(template: Any) -> None:
    assert template["metadata"]["labels"][LABEL_INJECT] == "true"
    assert template["metadata"]["annotations"][ANNOTATION_INJECTED] == "simserver"


def test_the_program_accepts_the_variables_and_reads_the_mounted_annotation(template: Any) -> None:
    container = template["spec"]["containers"][0]
    settings = read_settings({entry["name"]: entry["value"] for entry in container["env"]})
    (volume,) = template["spec"]["volumes"]
    (item,) = volume["downwardAPI"]["items"]
    mount = next(m for m in container["volumeMounts"] if m["name"] == volume["name"])
    assert settings.threads == 16
    assert settings.phase_file == Path(mount["mountPath"]) / item["path"]


def test_the_pod_meets_the_restricted_security_standard(template: Any) -> None:
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in template["spec"]["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
