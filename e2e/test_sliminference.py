"""SlimInference in a cluster: `kubectl apply` serves, changes roll nothing, deletion leaves nothing."""

import json
from typing import Any

import pytest

from e2e.conftest import Cluster
from e2e.eventually import eventually
from e2e.kubectl import Kubectl, KubectlFailed
from e2e.sliminferences import WIDTHS, Inference, infer, manifest
from slimscale.act.child_names import child_name


@pytest.fixture
def fashion(serving: Cluster, kubectl: Kubectl) -> Inference:
    """One SlimInference with one pool, ready."""
    kubectl.apply(manifest())
    inference = Inference(kubectl)
    inference.wait_ready()
    return inference


def versions(inference: Inference) -> dict[str, str]:
    """What each child and pod is at: changes with any write."""
    kinds = "deployments,services,configmaps,roles,rolebindings,networkpolicies,pdb,serviceaccounts"
    selector = ",".join(f"{k}={v}" for k, v in inference.names.selector.items())
    memory = child_name(inference.name, "memory")  # what scaling remembers, written by itself
    things = [*inference.kubectl.list(kinds, selector), *inference.kubectl.list("pods", selector)]
    return {
        f"{t['kind']}/{t['metadata']['name']}": t["metadata"]["resourceVersion"]
        for t in things
        if t["metadata"]["name"] != memory
    }


def pod_uids(inference: Inference) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for role in ("router", "pool")
        for pod in inference.pods(role)
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_applying_one_resource_answers_requests(fashion: Inference) -> None:
    with fashion.front_door() as door:
        answer = infer(door, rows=3)
    [output] = answer["outputs"]
    assert output["shape"] == [3, 10]
    assert answer["model_name"] in {"fashion", *(width["model"] for width in WIDTHS)}
    # one router is enough to be ready; the second one follows
    eventually(lambda: fashion.status()["readyRouters"] == 2, 60)
    assert (fashion.status()["readyReplicas"], fashion.status()["service"]) == (1, "fashion")


def test_figures_and_warm_widths_reach_the_status(fashion: Inference) -> None:
    with fashion.front_door() as door:
        for _ in range(20):
            infer(door)

        def told() -> bool:
            status = fashion.status()
            [pool] = status["pools"]
            return bool(pool["warmWidths"]) and status["slo"]["requestsPerSecond"] > 0

        eventually(told, 60)
    assert fashion.condition("MetricsAvailable")["status"] == "True"


def test_a_restarted_operator_changes_nothing(serving: Cluster, fashion: Inference) -> None:
    """E6: not a replica, not a template, not an annotation."""
    before = versions(fashion)
    serving.operator.run("rollout", "restart", "deployment")
    serving.operator.run("rollout", "status", "deployment", "--timeout=60s")
    eventually(lambda: fashion.condition("MetricsAvailable")["status"] == "True", 60)
    after = versions(fashion)
    assert {name for name in before if after.get(name) != before[name]} == set()


def test_a_new_batch_limit_is_taken_up_without_a_restart(fashion: Inference) -> None:
    before = pod_uids(fashion)
    digest = fashion.status()["configDigest"]
    fashion.kubectl.apply(manifest(batching={"maxRows": 4}))
    eventually(lambda: fashion.status()["configDigest"] != digest, 30)
    [pod] = fashion.pods("pool")

    def taken_up() -> bool:
        files = fashion.kubectl.run(
            *("exec", pod["metadata"]["name"], "-c", "batcher", "--"),
            *("python", "-c", "print(open('/etc/slimscale/sidecar.json').read())"),
        )
        return '"maxRows": 4' in files or '"maxRows":4' in files

    eventually(taken_up, 30, what="the file in the pod has the new limit")
    assert pod_uids(fashion) == before


def test_children_are_mended(fashion: Inference) -> None:
    pool = fashion.names.pool("cpu")
    fashion.kubectl.run("delete", "service", "fashion")
    patch = '{"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}}'
    fashion.kubectl.run("patch", "deployment", pool, "--type=merge", "-p", patch)
    eventually(lambda: fashion.kubectl.exists("service", "fashion"), 30)

    def mended() -> bool:
        spec = fashion.pool()["spec"]["template"]["spec"]
        return spec["automountServiceAccountToken"] is False

    eventually(mended, 30)


def test_another_owner_of_the_replicas_is_left_alone(fashion: Inference) -> None:
    """E6: handed over without a drop, and kept through a change of the template."""
    pool = fashion.names.pool("cpu")
    fashion.kubectl.apply(manifest(scaling={"owner": "External"}))
    fashion.wait_ready()
    fashion.kubectl.run("scale", "deployment", pool, "--replicas=2")
    changed = manifest(scaling={"owner": "External"}, router={"replicas": 1})
    changed["spec"]["pools"][0]["resources"]["requests"]["cpu"] = "60m"
    fashion.kubectl.apply(changed)

    def rolled() -> bool:
        [server] = fashion.pool()["spec"]["template"]["spec"]["initContainers"]
        return bool(server["resources"]["requests"]["cpu"] == "60m")

    eventually(rolled, 30)
    assert fashion.pool()["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"pools": [{"name": "a", "minReplicas": 3, "maxReplicas": 2}]}, "minReplicas 3 is above"),
        ({"slo": {"minAccuracy": 0.99}}, "slo.minAccuracy is above the accuracy of every width"),
        ({"template": {}}, "template"),
    ],
)
def test_a_bad_spec_is_refused_by_the_field(
    serving: Cluster, kubectl: Kubectl, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(KubectlFailed, match=words):
        kubectl.apply(manifest(**spec))


def test_deletion_takes_every_child_along(fashion: Inference) -> None:
    fashion.kubectl.run("delete", "sliminference", "fashion", "--timeout=30s")

    def nothing_left() -> bool:
        return not versions(fashion)

    eventually(nothing_left, 120, what="the garbage collector has taken the children")


OPERATOR = "--as=system:serviceaccount:slimscale:slimscale-operator"


def pretended(**pod: Any) -> dict[str, Any]:
    """A Deployment that says that it is a child of ours."""
    owner = {"apiVersion": "slimscale.dev/v1alpha1", "kind": "SlimInference", "name": "x"}
    secure = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    container = {"name": "c", "image": "localhost/none:none", "securityContext": secure}
    labels = {"slimscale.dev/sliminference": "x"}
    spec = {"automountServiceAccountToken": False, "containers": [container]} | pod
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "pretended", "labels": labels, "ownerReferences": [owner | {"uid": "u1"}],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (pretended(hostNetwork=True), "without host access and privileges"),
        (pretended(automountServiceAccountToken=True), "a token to no pod but the router's"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}},
            "only what carries the label",
        ),
        (
            {"apiVersion": "v1", "kind": "Service", "metadata": {
                "name": "plain", "labels": {"slimscale.dev/sliminference": "x"}},
             "spec": {"ports": [{"port": 80}]}},
            "only what a SlimInference owns",
        ),
    ],
)  # fmt: skip
def test_the_operators_account_can_make_nothing_else(
    serving: Cluster, kubectl: Kubectl, thing: dict[str, Any], words: str
) -> None:
    """H3: whoever gets hold of it has no way to pods, tokens or objects of his own."""
    with pytest.raises(KubectlFailed, match=words):
        kubectl.run("create", OPERATOR, "--dry-run=server", "-f", "-", stdin=json.dumps(thing))
