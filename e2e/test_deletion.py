"""What is left when a SimWorkload goes: the pods as they are, and nothing of ours."""

import time

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import memo, only_pod, start, steer, wait_settled, workload
from e2e.workloads import contract_server, simworkload


@pytest.mark.smoke
def test_deleting_it_leaves_the_last_values_and_nothing_else(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    seen, [before] = wait_settled(kubectl, "sim", "sim", unlike=16)
    assert "finalizers" not in workload(kubectl, "sim").raw["metadata"]
    learned = memo(kubectl, "sim")["metadata"]["name"]

    started = time.monotonic()
    kubectl.delete("simworkload", "sim")
    assert time.monotonic() - started < 20, "nothing holds the deletion up"
    eventually(lambda: not kubectl.exists("configmap", learned), 60, what="the memory is collected")

    steer(kubectl, pod, load="blocking")

    def unchanged() -> bool:
        now = only_pod(kubectl, "sim")
        return (now.asked_threads, now.cpu_limit, now.restarts) == (
            seen.target_threads,
            before.cpu_limit,
            0,
        )

    consistently(unchanged, 20, what="the last values stay, nobody steers any more")
    for kind in ("deployment", "pod"):
        for one in kubectl.list(kind):
            assert "finalizers" not in one["metadata"]


def test_a_new_simworkload_of_the_same_name_starts_afresh(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    first, _ = wait_settled(kubectl, "sim", "sim", unlike=16)
    kubectl.delete("simworkload", "sim")
    kubectl.apply(simworkload("sim", "sim", threads={"min": 20, "max": 20}))
    second, _ = wait_settled(kubectl, "sim", "sim", unlike=first.target_threads or 0)
    assert second.target_threads == 20
    owner = memo(kubectl, "sim")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == second.raw["metadata"]["uid"]
