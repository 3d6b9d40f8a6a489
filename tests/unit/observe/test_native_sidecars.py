"""A native sidecar (an init container that stays) can be the container of a SimWorkload."""

import copy
from typing import Any

import pytest

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.pod_watch import fingerprint
from slimscale.domain.observation import ContainerResources
from slimscale.kubeapi.ports import Json
from slimscale.observe.pods import observe_pod
from slimscale.observe.target import TargetUnresolved, observe_target
from tests.support.raw_objects import deployment, pod

SERVER: Json = {
    "name": "server",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
    "volumeMounts": [{"name": "slimscale-podinfo", "mountPath": "/etc/slimscale"}],
    "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
}
SETUP: Json = {"name": "setup", "resources": {"requests": {"cpu": "8"}}}


def _spec(**fields: Any) -> SimWorkloadSpec:
    document = {"targetRef": {"kind": "Deployment", "name": "ants"}, **fields}
    return SimWorkloadSpec.model_validate(document)


def served_deployment() -> Json:
    """One app container `sim`, a native sidecar `server`, and an init container that ends."""
    raw = deployment()
    raw["spec"]["template"]["spec"]["initContainers"] = copy.deepcopy([SETUP, SERVER])
    return raw


def served_pod() -> Json:
    raw = pod()
    raw["spec"]["initContainers"] = copy.deepcopy([SETUP, SERVER])
    raw["status"]["initContainerStatuses"] = [
        {"name": "setup", "restartCount": 9},
        {
            "name": "server", "restartCount": 2, "resources": {"limits": {"cpu": "3"}},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        },
    ]  # fmt: skip
    return raw


def test_a_native_sidecar_is_found_by_its_name_and_known_as_one() -> None:
    seen = observe_target(served_deployment(), _spec(containerName="server"))
    assert (seen.container, seen.native_sidecar) == ("server", True)
    assert seen.template_resources.cpu_limit_millicores == 4000
    assert dict(seen.template_env) == {"OMP_NUM_THREADS": "4"}


def test_an_ordinary_container_stays_the_one_that_is_meant_without_a_name() -> None:
    seen = observe_target(served_deployment(), _spec())
    assert (seen.container, seen.native_sidecar) == ("sim", False)


def test_an_init_container_that_ends_can_not_be_named() -> None:
    with pytest.raises(TargetUnresolved, match="write one of sim, server") as caught:
        observe_target(served_deployment(), _spec(containerName="setup"))
    assert caught.value.reason is Reason.CONTAINER_NOT_FOUND


def test_in_a_pool_of_a_sliminference_the_container_must_be_named() -> None:
    """Its one app container is the batcher, which needs no threads."""
    raw = served_deployment()
    owner = {"apiVersion": "slimscale.dev/v1alpha1", "kind": "SlimInference", "name": "fashion"}
    raw["metadata"]["ownerReferences"] = [owner]
    with pytest.raises(TargetUnresolved, match="sim, server; name one") as caught:
        observe_target(raw, _spec())
    assert caught.value.reason is Reason.CONTAINER_AMBIGUOUS
    seen = observe_target(raw, _spec(containerName="server"))
    assert seen.template_owner == "SlimInference fashion"
    raw["metadata"]["ownerReferences"] = [owner | {"apiVersion": "example.com/v1"}]
    assert observe_target(raw, _spec()).template_owner == ""


def test_managers_of_a_native_sidecar_s_cpu_are_named() -> None:
    raw = served_deployment()
    path: Json = {'k:{"name":"server"}': {"f:resources": {"f:limits": {"f:cpu": {}}}}}
    for part in ("f:initContainers", "f:spec", "f:template", "f:spec"):
        path = {part: path}
    raw["metadata"]["managedFields"] = [{"manager": "argocd", "fieldsV1": path}]
    seen = observe_target(raw, _spec(containerName="server"))
    assert seen.template_managed_fields == ("argocd",)


def test_spec_status_and_channel_of_a_pod_are_the_native_sidecar_s_own() -> None:
    seen = observe_pod(served_pod(), container="server")
    assert seen.spec_resources == ContainerResources(2000, 4000)
    assert seen.applied_resources == ContainerResources(None, 3000)
    assert seen.other_cpu_request_millicores == 1000, "of the app container alone"
    assert (seen.restart_count, seen.crash_looping) == (2, True)
    assert seen.resize_restarts_container
    assert seen.has_live_channel


def test_the_quality_of_service_hangs_on_the_other_containers_and_not_on_itself() -> None:
    raw = served_pod()
    fixed = {"cpu": "1", "memory": "1Gi"}
    raw["spec"]["containers"][0]["resources"] = {"requests": fixed, "limits": fixed}
    assert observe_pod(raw, container="server").other_containers_guaranteed
    assert not observe_pod(raw, container="sim").other_containers_guaranteed


def test_a_resize_of_a_native_sidecar_wakes_its_simworkload() -> None:
    before = served_pod()
    asked, applied = copy.deepcopy(before), copy.deepcopy(before)
    asked["spec"]["initContainers"][1]["resources"]["limits"]["cpu"] = "3"
    applied["status"]["initContainerStatuses"][1]["resources"]["limits"]["cpu"] = "4"
    assert len({fingerprint(p) for p in (before, asked, applied)}) == 3
