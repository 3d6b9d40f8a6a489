"""A SimWorkload on a pool of a SlimInference: threads and CPU of a native sidecar, in the running pod."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import images, install
from e2e.conftest import Cluster
from e2e.disturbances import all_ready, ready_pods, restarts
from e2e.eventually import consistently, eventually
from e2e.impersonate import patch_as
from e2e.kubectl import Kubectl
from e2e.load.plan import make_plan, steady
from e2e.load.pod import LoadPod
from e2e.load.tally import tally
from e2e.simworkloads import PodView, WorkloadView, workload
from e2e.sliminferences import Inference, Json, manifest
from e2e.workloads import simworkload
from slimscale.api.quantity import parse_millicores

RATE, SECONDS = 20.0, 100.0
SERVER, BATCHER = "model-server", "batcher"
THREADS, CPU = 2, 2000
"""What the bounds leave: a CPU for each thread. A limit reserves nothing on the node."""
RESOURCES = {
    "requests": {"cpu": "100m", "memory": "192Mi"},
    "limits": {"cpu": "800m", "memory": "512Mi"},
}
"""A new model server has one thread of this."""

pytestmark = pytest.mark.timeout(420, func_only=True)


@pytest.fixture
def fashion(serving: Cluster, kubectl: Kubectl) -> Inference:
    """One pod, ready."""
    pool = {"name": "cpu", "minReplicas": 1, "maxReplicas": 1, "resources": RESOURCES}
    kubectl.apply(manifest(pools=[pool], router={"replicas": 1}))
    inference = Inference(kubectl)
    all_ready(inference, "pool", 1)
    inference.wait_ready()
    return inference


def tuned(inference: Inference, mode: str) -> Json:
    return simworkload(
        "threads",
        inference.names.pool("cpu"),
        mode=mode,
        containerName=SERVER,
        threads={"min": THREADS, "max": THREADS},
        cpu={
            "min": "500m", "max": f"{CPU}m",
            "limitPolicy": "EqualThreads", "controlledValues": "LimitsOnly",
        },
    )  # fmt: skip


@contextmanager
def under_load(inference: Inference) -> Iterator[None]:
    """Requests while the block runs, and each of them right; a tuner has nothing to go by without."""
    arrivals = steady(RATE, SECONDS)
    load = LoadPod(
        inference.kubectl, images.built_references()["dataplane"], make_plan("threads", arrivals)
    )
    load.start()
    yield
    counted = tally(load.finish(), len(arrivals))
    print(counted)
    assert counted.flawless, str(counted)


def server_of(pod: PodView) -> Json:
    [found] = [c for c in pod.raw["spec"]["initContainers"] if c["name"] == SERVER]
    assert found["restartPolicy"] == "Always", "a native sidecar"
    return dict(found)


def applied_limit(pod: PodView) -> int:
    """Of the model server, as the kubelet says it."""
    statuses = pod.raw["status"]["initContainerStatuses"]
    [found] = [one for one in statuses if one["name"] == SERVER]
    return parse_millicores(found["resources"]["limits"]["cpu"])


def only(inference: Inference) -> PodView:
    [pod] = ready_pods(inference)
    return pod


def test_a_running_model_server_gets_its_threads_and_cpu_and_no_request_notices(
    fashion: Inference,
) -> None:
    before, deployment = only(fashion), fashion.pool()
    assert parse_millicores(server_of(before)["resources"]["limits"]["cpu"]) == 800
    with under_load(fashion):
        fashion.kubectl.apply(tuned(fashion, "InPlace"))

        def settled() -> WorkloadView:
            seen, pod = workload(fashion.kubectl, "threads"), only(fashion)
            assert (seen.target_threads, seen.target_cpu) == (THREADS, CPU), seen.status
            assert seen.acknowledged() == {pod.name: THREADS}, seen.status.get("pods")
            assert applied_limit(pod) == CPU
            return seen

        seen = eventually(settled, 90, interval_seconds=1.0, what="two threads and two CPUs")
        assert seen.reason("Applied").startswith("True/")

        def stays() -> bool:
            pod = only(fashion)
            limits = server_of(pod)["resources"]["limits"]
            return pod.asked_threads == THREADS and parse_millicores(limits["cpu"]) == CPU

        consistently(stays, 8, what="neither controller undoes what the other one has done")
    after = only(fashion)
    assert after.uid == before.uid
    assert [restarts(after, name) for name in (SERVER, BATCHER)] == [0, 0]
    assert server_of(after)["resources"]["requests"] == server_of(before)["resources"]["requests"]
    assert fashion.pool()["metadata"]["generation"] == deployment["metadata"]["generation"]
    assert fashion.condition("Ready")["status"] == "True"


def test_a_rollout_of_a_pool_is_refused_and_says_who_owns_the_template(fashion: Inference) -> None:
    before, deployment = only(fashion), fashion.pool()
    with under_load(fashion):
        fashion.kubectl.apply(tuned(fashion, "Rollout"))

        def refused() -> bool:
            return workload(fashion.kubectl, "threads").reason("Applied") == "False/TemplateOwned"

        eventually(refused, 90, interval_seconds=1.0)
    assert only(fashion).uid == before.uid
    assert fashion.pool()["metadata"]["generation"] == deployment["metadata"]["generation"]


def _server(**fields: Any) -> Json:
    return {"spec": {"initContainers": [{"name": SERVER, **fields}]}}


def test_the_admission_policy_lets_the_cpu_of_a_sidecar_through_and_nothing_else(
    fashion: Inference,
) -> None:
    pod = f"{fashion.kubectl.namespace}/{only(fashion).name}"
    said = patch_as(
        install.OPERATOR_ACCOUNT, pod, "resize", _server(resources={"limits": {"cpu": "900m"}})
    )
    assert said == "", said
    refused = {
        "memory": _server(resources={"limits": {"memory": "600Mi"}}),
        "memory with CPU": _server(resources={"limits": {"cpu": "950m", "memory": "600Mi"}}),
    }
    for name, document in refused.items():
        said = patch_as(install.OPERATOR_ACCOUNT, pod, "resize", document)
        assert "slimscale may" in said, f"{name} is not refused by the policy, but: {said!r}"
    said = patch_as(install.OPERATOR_ACCOUNT, pod, "", _server(image="localhost/other:1"))
    assert "slimscale may" in said, said
    # Where nothing else happens to the pod, the kubelet tells the new limit at its next look at it.
    eventually(lambda: applied_limit(only(fashion)) == 900, 150, what="the kubelet tells 900m")
