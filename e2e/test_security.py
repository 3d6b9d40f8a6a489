"""What the operator may do to other people's objects, tried with its own service account."""

from typing import Any

import pytest

from e2e import install
from e2e.conftest import Cluster
from e2e.eventually import eventually
from e2e.helm import Helm
from e2e.impersonate import patch_as
from e2e.kubectl import Kubectl, KubectlFailed
from e2e.simworkloads import only_pod, operator_pod, start, wait_settled
from e2e.workloads import CONTAINER, contract_server, plain_pod, simworkload

AS_OPERATOR = (f"--as={install.OPERATOR_ACCOUNT}",)


def _container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": CONTAINER, **fields}]}}


#: What is patched (the pod or a subresource of it), and how.
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "label": ("", {"metadata": {"labels": {"app": "stolen"}}}),
    "finalizer": ("", {"metadata": {"finalizers": ["slimscale.dev/stuck"]}}),
    "foreign-annotation": ("", {"metadata": {"annotations": {"example.com/a": "b"}}}),
    "image": ("", _container(image="localhost/other:1")),
    "memory": ("resize", _container(resources={"limits": {"memory": "128Mi"}})),
}
ALLOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "threads": ("", {"metadata": {"annotations": {"slimscale.dev/threads": "3"}}}),
    "cpu": ("resize", _container(resources={"limits": {"cpu": "150m"}})),
}


@pytest.mark.smoke
def test_the_admission_policy_lets_threads_and_cpu_through_and_nothing_else(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(plain_pod("victim", cluster.images["simserver"]))
    kubectl.wait("pod/victim", "condition=Ready", 60)

    for name, (part, document) in ALLOWED.items():
        said = patch_as(install.OPERATOR_ACCOUNT, f"{kubectl.namespace}/victim", part, document)
        assert said == "", f"{name} was refused: {said}"
    for name, (part, document) in REFUSED.items():
        said = patch_as(install.OPERATOR_ACCOUNT, f"{kubectl.namespace}/victim", part, document)
        assert "slimscale may" in said, f"{name} is not refused by the policy, but: {said!r}"


@pytest.mark.parametrize(
    "question",
    [
        "delete nodes",
        "create pods",
        "get secrets",
        "patch nodes",
        "update deployments",
        "impersonate users",
    ],
)
def test_the_operator_lacks_every_other_right(
    cluster: Cluster, kubectl: Kubectl, question: str
) -> None:
    with pytest.raises(KubectlFailed):
        kubectl.run("auth", "can-i", *question.split(), *AS_OPERATOR)


def test_the_operator_can_delete_no_pod_of_others(cluster: Cluster, kubectl: Kubectl) -> None:
    """It may replace pods of a SlimInference whose GPU is lost, and those alone."""
    kubectl.apply(plain_pod("victim", cluster.images["simserver"]))
    with pytest.raises(KubectlFailed, match="slimscale may"):
        kubectl.run("delete", "pod", "victim", "--dry-run=server", *AS_OPERATOR)


def test_installed_for_one_namespace_it_works_without_cluster_rights(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    """Beside the other tests' operator, which rests meanwhile."""
    own = f"{kubectl.namespace}-op"
    second = Helm(own)
    cluster.operator.run("scale", "deployment/slimscale-operator", "--replicas=0")
    try:
        second.install(
            "slimscale-narrow",
            {
                "image": install.image_values(cluster.images["operator"]),
                "crds": {"enabled": False},
                "watchNamespaces": [kubectl.namespace],
            },
        )
        eventually(lambda: install.webhook_answers(kubectl), 60, what="the webhook answers")
        bindings = Kubectl().list("clusterrolebindings")
        accounts = [s.get("namespace") for b in bindings for s in b.get("subjects") or []]
        assert own not in accounts
        pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
        kubectl.apply(simworkload("sim", "sim"))
        _, [running] = wait_settled(kubectl, "sim", "sim", unlike=16)
        assert (running.uid, running.restarts) == (pod.uid, 0)
        log = Kubectl(own).logs("deployment/slimscale-narrow-operator")
        assert "cluster scope" not in log
        kubectl.delete("pod", pod.name)
        fresh = eventually(lambda: only_pod(kubectl, "sim"), 60)
        assert "OMP_NUM_THREADS" in fresh.env(), "the webhook serves with a CA made by the chart"
    finally:
        second.uninstall("slimscale-narrow")
        Kubectl().delete("namespace", own, "--wait=false")
        cluster.operator.run("scale", "deployment/slimscale-operator", "--replicas=1")
        eventually(lambda: operator_pod(cluster.operator), 120)
