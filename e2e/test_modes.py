"""What each update mode does to running pods, to new pods and to the template; and what suspend does."""

from typing import Any

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import PodView, only_pod, start, wait_settled, workload
from e2e.workloads import CONTAINER, contract_server, simworkload

MANAGER = "slimscale"
GUESS = 16


def template_container(kubectl: Kubectl) -> dict[str, Any]:
    containers = kubectl.get("deployment", "sim")["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = next(c for c in containers if c["name"] == CONTAINER)
    return found


def rolled(kubectl: Kubectl, before: PodView) -> PodView:
    """The pod after the template changed, ready and with the target's variables."""
    pod = only_pod(kubectl, "sim")
    seen = workload(kubectl, "sim")
    assert pod.uid != before.uid, seen.status.get("conditions")
    assert pod.ready
    assert pod.env().get("OMP_NUM_THREADS") == str(seen.target_threads)
    assert seen.acknowledged() == {pod.name: seen.target_threads}
    return pod


@pytest.mark.parametrize("mode", ["Rollout", "InPlaceOrRollout"])
def test_without_a_live_channel_the_template_gets_variables_and_cpu(
    cluster: Cluster, kubectl: Kubectl, mode: str
) -> None:
    image = cluster.images["simserver"]
    before = start(kubectl, "sim", *contract_server("sim", image, threads=GUESS, injected=False))
    kubectl.apply(simworkload("sim", "sim", mode=mode))
    pod = eventually(lambda: rolled(kubectl, before), 180, interval_seconds=1)
    container = template_container(kubectl)
    assert {e["name"]: e.get("value") for e in container["env"]}["SIM_THREADS"] == str(GUESS)
    assert container["image"] == image
    assert container["resources"]["limits"]["memory"] == "512Mi"
    assert pod.cpu_limit == workload(kubectl, "sim").target_cpu

    managers = kubectl.run("get", "deployment", "sim", "-o", "json", "--show-managed-fields")
    owned = _owned_by_us(managers)
    assert owned, "the template is written under our own field manager"
    assert set(owned) == {'k:{"name":"simserver"}'}, "only the named container is ours"
    parts = {key for key in owned['k:{"name":"simserver"}'] if key.startswith("f:")}
    assert parts <= {"f:env", "f:resources", "f:name"}

    # The target is reached: nothing rolls a second time.
    consistently(lambda: only_pod(kubectl, "sim").uid == pod.uid, 20, what="no second rollout")


def test_in_place_without_a_live_channel_says_so_and_changes_nothing(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    image = cluster.images["simserver"]
    before = start(kubectl, "sim", *contract_server("sim", image, threads=GUESS, injected=False))
    kubectl.apply(simworkload("sim", "sim", mode="InPlace"))

    def said() -> bool:
        assert workload(kubectl, "sim").reason("Applied") == "False/NoLiveChannel"
        return True

    eventually(said, 120)
    pod = only_pod(kubectl, "sim")
    assert (pod.uid, pod.env(), pod.asked_threads) == (before.uid, before.env(), None)


def test_mode_initial_changes_new_pods_only(cluster: Cluster, kubectl: Kubectl) -> None:
    image = cluster.images["simserver"]
    before = start(kubectl, "sim", *contract_server("sim", image, threads=GUESS))
    kubectl.apply(simworkload("sim", "sim", mode="Initial"))
    eventually(lambda: workload(kubectl, "sim").target_threads not in (None, GUESS), 120)

    def untouched() -> bool:
        pod = only_pod(kubectl, "sim")
        return (pod.uid, pod.raw["spec"], pod.asked_threads) == (
            before.uid,
            before.raw["spec"],
            None,
        )

    consistently(untouched, 15, what="the running pod is left alone")
    kubectl.delete("pod", before.name)
    second = eventually(lambda: only_pod(kubectl, "sim"), 60)
    target = workload(kubectl, "sim")
    assert second.env().get("OMP_NUM_THREADS") == str(target.target_threads)
    assert second.cpu_limit == target.target_cpu


def test_suspend_recommends_only_and_its_end_applies(cluster: Cluster, kubectl: Kubectl) -> None:
    image = cluster.images["simserver"]
    before = start(kubectl, "sim", *contract_server("sim", image, threads=GUESS))
    kubectl.apply(simworkload("sim", "sim", suspend=True))
    eventually(lambda: workload(kubectl, "sim").target_threads not in (None, GUESS), 120)
    assert workload(kubectl, "sim").reason("Ready").endswith("/Suspended")

    def untouched() -> bool:
        return only_pod(kubectl, "sim").resource_version == before.resource_version

    consistently(untouched, 15, what="the pod is left alone")
    kubectl.patch("simworkload", "sim", {"spec": {"suspend": False}})
    _, [pod] = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    assert (pod.uid, pod.restarts) == (before.uid, 0)


def _owned_by_us(text: str) -> dict[str, Any]:
    """The containers of the template that our field manager owns parts of."""
    import json

    for entry in json.loads(text)["metadata"]["managedFields"]:
        if entry["manager"] == MANAGER and entry["operation"] == "Apply":
            fields = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
            assert set(fields) == {"f:containers"}
            found: dict[str, Any] = fields["f:containers"]
            return found
    return {}
