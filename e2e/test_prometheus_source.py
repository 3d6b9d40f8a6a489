"""`metrics.source: Prometheus` against a real Prometheus, and its outage."""

from collections.abc import Iterator

import pytest

from e2e import install, prometheus
from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import PodView, only_pod, start, steer, wait_settled, workload
from e2e.workloads import QUICK_METRICS, contract_server, simworkload


@pytest.fixture
def pod(cluster: Cluster, kubectl: Kubectl) -> Iterator[PodView]:
    """A simulation, and an operator that asks a Prometheus which scrapes it."""
    image = cluster.images["simserver"]
    made = start(kubectl, "sim", *contract_server("sim", image, load="blocking"))
    prometheus.deploy(kubectl, cluster.images["prometheus"], made)
    address = {"prometheus": {"url": prometheus.address(kubectl.namespace)}}
    install.install(cluster.images["operator"], address)
    yield made
    install.install(cluster.images["operator"])


def test_prometheus_feeds_the_operator_and_its_outage_holds(kubectl: Kubectl, pod: PodView) -> None:
    metrics = {**QUICK_METRICS, "source": "Prometheus"}
    kubectl.apply(simworkload("sim", "sim", metrics=metrics))
    wait_settled(kubectl, "sim", "sim", unlike=16)

    kubectl.run("scale", "deployment/prometheus", "--replicas=0")
    steer(kubectl, pod, load="light")

    def said() -> bool:
        seen = workload(kubectl, "sim").reason("MetricsAvailable")
        assert seen in {"False/PrometheusError", "False/MetricsStale"}, seen
        return True

    eventually(said, 90)
    held, held_pod = workload(kubectl, "sim"), only_pod(kubectl, "sim")

    def unchanged() -> bool:
        now, running = workload(kubectl, "sim"), only_pod(kubectl, "sim")
        assert now.target_threads == held.target_threads
        return running.cpu_limit == held_pod.cpu_limit and running.restarts == 0

    consistently(unchanged, 25, what="held while Prometheus is away")
    kubectl.run("scale", "deployment/prometheus", "--replicas=1")
    wait_settled(kubectl, "sim", "sim", unlike=held.target_threads or 0)
