"""Others that set the same fields, and clusters that say no."""

import json

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import only_pod, pods, start, wait_settled, workload
from e2e.workloads import CONTAINER, contract_server, hpa_on_cpu, simulation, simworkload

GUESS = 16


def says(kubectl: Kubectl, name: str, condition: str, expected: str) -> bool:
    seen = workload(kubectl, name)
    assert seen.reason(condition) == expected, seen.status.get("conditions")
    return True


def test_an_hpa_on_cpu_is_reported_and_nothing_is_written(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    before = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(hpa_on_cpu("scaler", "sim"), simworkload("sim", "sim"))
    expected = "False/HorizontalPodAutoscalerOnCPU"
    eventually(lambda: says(kubectl, "sim", "NoConflict", expected), 120)
    assert "scaler" in workload(kubectl, "sim").message("NoConflict")

    def untouched() -> bool:
        return only_pod(kubectl, "sim").resource_version == before.resource_version

    consistently(untouched, 20, what="no write beside an HPA")
    kubectl.delete("hpa", "scaler")
    _, [pod] = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    assert (pod.uid, pod.restarts) == (before.uid, 0)
    eventually(lambda: says(kubectl, "sim", "NoConflict", "True/NoOtherOwner"), 60)


def test_of_two_simworkloads_the_elder_goes_on(cluster: Cluster, kubectl: Kubectl) -> None:
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("elder", "sim"))
    wait_settled(kubectl, "elder", "sim", unlike=GUESS)
    rival = simworkload("younger", "sim", threads={"min": 32, "max": 64})
    kubectl.apply(rival)
    eventually(lambda: says(kubectl, "younger", "NoConflict", "False/SecondSimWorkload"), 120)

    def elder_rules() -> (
        bool
    ):  # in whatever it has chosen meanwhile; the younger asks for 32 or more
        return (only_pod(kubectl, "sim").asked_threads or 0) < min(GUESS, 32)

    consistently(elder_rules, 20, what="the younger one writes nothing")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [("4", "Infeasible"), ("1900m", "Deferred")],
    ids=["infeasible", "deferred"],
)
def test_a_resize_that_the_node_cannot_give_is_reverted(
    cluster: Cluster, kubectl: Kubectl, asked: str, reason: str
) -> None:
    policy = {"mode": "InPlace", "resizeDeadlineSeconds": 15}
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim", updatePolicy=policy))
    seen, [pod] = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    # 4 CPUs are more than the node has; beside a neighbour 1900m never fit.
    image = cluster.images["simserver"]
    neighbour = simulation("neighbour", image, phase="paused", request="300m", injected=False)
    neighbour["spec"]["template"]["spec"]["nodeName"] = pod.raw["spec"]["nodeName"]
    start(kubectl, "neighbour", neighbour)
    cpu = {"requests": {"cpu": asked}, "limits": {"cpu": "4"}}
    container = {"name": CONTAINER, "resources": cpu}
    patch = {"spec": {"containers": [container]}}
    kubectl.run(
        *("patch", "pod", pod.name, "--subresource=resize", "--type=strategic"),
        *("-p", json.dumps(patch)),
    )

    def refused() -> str:
        condition = only_pod(kubectl, "sim").condition("PodResizePending")
        assert condition is not None
        return str(condition["reason"])

    assert eventually(refused, 30) == reason

    def reverted() -> bool:
        now = only_pod(kubectl, "sim")
        assert now.cpu_limit == seen.target_cpu == now.applied_cpu_limit
        assert now.condition("PodResizePending") is None
        return True

    eventually(reverted, 15 + 30, what="taken back within its deadline")
    now = only_pod(kubectl, "sim")
    assert (now.uid, now.restarts) == (pod.uid, 0)
    wait_settled(kubectl, "sim", "sim", 60)


def test_a_limit_range_bounds_what_is_asked_for(cluster: Cluster, kubectl: Kubectl) -> None:
    bounds = {"type": "Container", "max": {"cpu": "700m", "memory": "1Gi"}}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "bounds"},
            "spec": {"limits": [bounds]},
        }
    )
    image = cluster.images["simserver"]
    start(kubectl, "sim", *contract_server("sim", image, load="heavy", limit="400m"))
    kubectl.apply(simworkload("sim", "sim"))

    def grown() -> int:
        [pod] = pods(kubectl, "sim")
        assert pod.applied_cpu_limit is not None
        assert pod.applied_cpu_limit > 400, workload(kubectl, "sim").status.get("conditions")
        return pod.applied_cpu_limit

    assert eventually(grown, 120) <= 700
    consistently(lambda: only_pod(kubectl, "sim").cpu_limit <= 700, 15)  # type: ignore[operator]
