"""The operator is killed in the middle of a change; the API server goes away under it."""

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.install import webhook_answers
from e2e.kubectl import Kubectl
from e2e.nodes import api_server, kill_container
from e2e.simworkloads import (
    PodView,
    memo,
    only_pod,
    operator_pod,
    settled,
    start,
    steer,
    wait_settled,
    workload,
)
from e2e.workloads import contract_server, simworkload

GUESS = 16


def kill_operator(cluster: Cluster) -> PodView:
    """A true kill -9; the operator that is ready afterwards."""
    before = operator_pod(cluster.operator)
    kill_container(before, "operator")

    def back() -> PodView:
        pod = operator_pod(cluster.operator)
        assert pod.restarts > before.restarts
        return pod

    return eventually(back, 120, what="the operator is back")


def test_killed_in_mid_change_it_ends_where_it_would_have_ended(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    # A pod that does not take over its threads yet keeps the change half done for as long as needed.
    steer(kubectl, pod, fault="deaf")
    kubectl.apply(simworkload("sim", "sim"))

    def half_done() -> int:
        running = only_pod(kubectl, "sim")
        assert running.asked_threads not in (None, GUESS)
        assert workload(kubectl, "sim").acknowledged() == {pod.name: GUESS}
        return running.asked_threads or 0

    wanted = eventually(half_done, 120)
    kill_operator(cluster)
    assert only_pod(kubectl, "sim").asked_threads == wanted
    steer(kubectl, pod, fault="ok")
    seen, [running] = wait_settled(kubectl, "sim", "sim")
    assert seen.target_threads == wanted
    assert (running.uid, running.restarts) == (pod.uid, 0)


def test_what_was_learned_survives_a_kill(cluster: Cluster, kubectl: Kubectl) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    held, _ = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    learned = memo(kubectl, "sim")
    assert learned["metadata"]["ownerReferences"][0]["uid"] == held.raw["metadata"]["uid"]
    # Without metrics a new operator knows the target from its memory alone.
    steer(kubectl, pod, fault="silent")
    kill_operator(cluster)

    def remembered() -> bool:
        seen = workload(kubectl, "sim")
        assert seen.reason("MetricsAvailable").startswith("False/")
        assert (seen.target_threads, seen.target_cpu) == (held.target_threads, held.target_cpu)
        return True

    eventually(remembered, 90)
    consistently(remembered, 15, what="the remembered target is held")
    again = memo(kubectl, "sim")
    assert again["metadata"]["uid"] == learned["metadata"]["uid"]
    assert set(again["data"]) == set(learned["data"])


@pytest.mark.smoke
def test_the_webhook_serves_right_after_a_restart(cluster: Cluster, kubectl: Kubectl) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    seen, _ = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    kill_operator(cluster)

    # Once the operator is ready, its address has to reach every node: that is the cluster's part.
    eventually(lambda: webhook_answers(Kubectl()), 15, what="the webhook answers again")
    kubectl.delete("pod", pod.name)
    fresh = eventually(lambda: only_pod(kubectl, "sim"), 60)
    assert fresh.env().get("OMP_NUM_THREADS") == str(seen.target_threads)
    eventually(lambda: settled(kubectl, "sim", "sim"), 120)


def test_the_api_server_restarts_and_the_operator_goes_on_by_itself(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    before, _ = wait_settled(kubectl, "sim", "sim", unlike=GUESS)
    kill_container(api_server(), "kube-apiserver")
    eventually(lambda: kubectl.raw("/readyz") == "ok", 180, interval_seconds=2)
    eventually(lambda: operator_pod(cluster.operator), 180, interval_seconds=2)

    steer(kubectl, pod, load="blocking")
    after, [running] = wait_settled(kubectl, "sim", "sim", unlike=before.target_threads or 0)
    assert (running.uid, running.restarts) == (pod.uid, 0)
    # Repeats would show as further entries; the memory of the first change is still there.
    assert len(after.changes) <= len(before.changes) + 2, after.changes

    def quiet() -> bool:
        now = only_pod(kubectl, "sim")
        return (now.asked_threads, now.cpu_limit) == (running.asked_threads, running.cpu_limit)

    consistently(quiet, 15, what="one change of load, one change of the pod")
