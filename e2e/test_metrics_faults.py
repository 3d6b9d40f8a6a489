"""Metrics that fail in every way that metrics fail: the last target is held, and it is said."""

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import only_pod, start, steer, wait_settled, workload
from e2e.workloads import contract_server, simworkload

#: What the condition MetricsAvailable may say while the fault lasts.
SAID = {
    "nan": {"False/MetricsInvalid"},
    "garbage": {"False/MetricsInvalid"},
    "silent": {"False/MetricsStale", "False/MetricsMissing"},
}
HELD_SECONDS = 25


@pytest.mark.parametrize("fault", sorted(SAID))
def test_bad_or_missing_metrics_hold_the_last_target(
    cluster: Cluster, kubectl: Kubectl, fault: str
) -> None:
    image = cluster.images["simserver"]
    pod = start(kubectl, "sim", *contract_server("sim", image, load="blocking"))
    kubectl.apply(simworkload("sim", "sim"))
    wait_settled(kubectl, "sim", "sim", unlike=16)
    # The load falls too, so that an operator that took a fault for idleness would cut.
    steer(kubectl, pod, fault=fault, load="light")

    def said() -> bool:
        assert workload(kubectl, "sim").reason("MetricsAvailable") in SAID[fault]
        return True

    eventually(said, 60, what=f"MetricsAvailable says {SAID[fault]}")
    held, settled_pod = workload(kubectl, "sim"), only_pod(kubectl, "sim")
    assert held.target_threads not in (None, 1), held.changes

    def unchanged() -> bool:
        now, running = workload(kubectl, "sim"), only_pod(kubectl, "sim")
        return (
            now.target_threads == held.target_threads
            and now.target_cpu == held.target_cpu
            and running.asked_threads == settled_pod.asked_threads
            and running.cpu_limit == settled_pod.cpu_limit
            and running.restarts == 0
        )

    consistently(unchanged, HELD_SECONDS, what=f"held while metrics are {fault}")
    steer(kubectl, pod, fault="ok")
    wait_settled(kubectl, "sim", "sim", 120, unlike=held.target_threads or 0)
    eventually(lambda: workload(kubectl, "sim").reason("MetricsAvailable") == "True/MetricsFound")


def test_counters_that_stand_still_change_nothing(cluster: Cluster, kubectl: Kubectl) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    held, [before] = wait_settled(kubectl, "sim", "sim", unlike=16)
    steer(kubectl, pod, fault="frozen", load="blocking")

    def unchanged() -> bool:
        running = only_pod(kubectl, "sim")
        assert workload(kubectl, "sim").target_threads == held.target_threads
        return running.cpu_limit == before.cpu_limit and running.restarts == 0

    consistently(unchanged, HELD_SECONDS, what="held while the page is frozen")
    seen = workload(kubectl, "sim")
    assert seen.reason("MetricsAvailable") == "False/MetricsStale"


def test_a_pod_that_never_acknowledges_is_named(cluster: Cluster, kubectl: Kubectl) -> None:
    pod = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    steer(kubectl, pod, fault="deaf")
    policy = {"mode": "InPlace", "acknowledgeDeadlineSeconds": 10}
    kubectl.apply(simworkload("sim", "sim", updatePolicy=policy))

    def said() -> bool:
        seen = workload(kubectl, "sim")
        assert seen.reason("Applied") == "False/NotAcknowledged"
        assert seen.acknowledged() == {pod.name: 16}
        return True

    eventually(said, 120)
    running = only_pod(kubectl, "sim")
    assert (running.cpu_limit or 0) >= 1000, "the CPU that the old threads use is not taken away"
    steer(kubectl, pod, fault="ok")
    wait_settled(kubectl, "sim", "sim", 120, unlike=16)
