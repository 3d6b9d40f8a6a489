"""A pool on nodes that come and go: pods that are pending bring a node, an empty node leaves."""

from collections.abc import Iterator

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.karpenter import POOL_LABEL, TAINT, karpenter, nodes
from e2e.kubectl import Kubectl
from e2e.simworkloads import PodView
from e2e.sliminferences import SMALL, Inference, Json, manifest

TOLERATION = {"key": TAINT["key"], "operator": "Exists", "effect": TAINT["effect"]}
KEPT = "karpenter.sh/do-not-disrupt"


@pytest.fixture
def elastic(serving: Cluster) -> Iterator[None]:
    with karpenter(Kubectl()):
        yield


def with_elastic_pool(least: int, most: int) -> Json:
    """A real pod that serves, and a pool that only an autoscaler's nodes can take."""
    fixed = {"name": "fixed", "minReplicas": 1, "maxReplicas": 1, "resources": SMALL}
    pool = {
        "name": "elastic", "minReplicas": least, "maxReplicas": most, "resources": SMALL,
        "nodeSelector": POOL_LABEL, "tolerations": [TOLERATION], "costPerHour": 2,
    }  # fmt: skip
    return manifest(pools=[fixed, pool])


def elastic_pods(inference: Inference) -> list[Json]:
    return [
        pod
        for pod in inference.pods("pool")
        if pod["metadata"]["labels"]["slimscale.dev/pool"] == "elastic"
        and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.mark.timeout(480, func_only=True)
def test_a_node_comes_for_pending_pods_and_goes_with_the_last_of_them(
    elastic: None, kubectl: Kubectl
) -> None:
    everywhere = Kubectl()
    kubectl.apply(with_elastic_pool(0, 3))
    inference = Inference(kubectl)
    eventually(lambda: inference.status().get("readyReplicas") == 1, 120)
    assert nodes(everywhere) == [], "no node before a pod needs one"

    kubectl.apply(with_elastic_pool(2, 3))
    pending = eventually(lambda: elastic_pods(inference), 30, what="pods of the elastic pool")
    assert pending[0]["metadata"]["annotations"][KEPT] == "true", "kept while it loads"
    eventually(lambda: nodes(everywhere), 90, what="a node of Karpenter")
    eventually(
        lambda: [PodView(pod).ready for pod in elastic_pods(inference)] == [True, True],
        120, what="both pods ready on the new node",
    )  # fmt: skip

    def may_go() -> bool:
        return all(p["metadata"]["annotations"][KEPT] == "false" for p in elastic_pods(inference))

    eventually(may_go, 30, what="loaded pods do not keep their node")
    names = {node["metadata"]["name"] for node in nodes(everywhere)}
    assert {pod["spec"]["nodeName"] for pod in elastic_pods(inference)} <= names
    consistently(lambda: len(nodes(everywhere)) >= 1, 15, what="the node stays while it is used")

    kubectl.apply(with_elastic_pool(1, 1))
    eventually(lambda: len(elastic_pods(inference)) == 1, 90, what="scale-in to one pod")
    kubectl.apply(manifest())
    eventually(lambda: not elastic_pods(inference), 90, what="the pool is gone")
    eventually(lambda: not nodes(everywhere), 120, what="the empty node is gone")
