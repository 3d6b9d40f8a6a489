"""The shortest way through everything: what continuous integration runs on each change."""

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl, KubectlFailed
from e2e.simworkloads import only_pod, settled, start, wait_settled, workload
from e2e.workloads import METRICS_PORT, contract_server, simulation, simworkload
from tests.support.spec_cases import CASES, manifest

pytestmark = pytest.mark.smoke


def test_the_api_server_takes_the_crd_as_structural(cluster: Cluster) -> None:
    crd = Kubectl().get("crd", "simworkloads.slimscale.dev")
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    assert crd["spec"]["names"]["shortNames"] == ["simw"]
    assert "status" in crd["spec"]["versions"][0]["subresources"]


def test_good_specs_are_taken_and_bad_ones_refused_with_the_field(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    wrong = []
    for case in CASES:
        try:
            kubectl.dry_run(manifest(case, namespace=kubectl.namespace))
            said = ""
        except KubectlFailed as error:
            said = str(error)
        if case.ok and said:
            wrong.append(f"{case.name}: should be taken, but {said}")
        elif not case.ok and (not said or case.says not in said):
            wrong.append(f"{case.name}: should be refused with {case.says!r}, said {said!r}")
    assert not wrong, "\n".join(wrong)


def test_kubectl_get_simw_shows_mode_threads_and_readiness(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    image = cluster.images["simserver"]
    start(kubectl, "sim", *contract_server("sim", image))
    kubectl.apply(simworkload("sim", "sim", mode="Off"))
    seen = eventually(lambda: _with_target(kubectl, "sim"), 120)
    header, row = kubectl.run("get", "simw").strip().splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert shown["NAME"] == "sim"
    assert shown["MODE"] == "Off"
    assert shown["THREADS"] == "16", "what the pod acknowledged"
    assert shown["TARGET"] == str(seen.target_threads)
    assert shown["READY"] == "True"


def test_mode_off_recommends_and_changes_nothing(cluster: Cluster, kubectl: Kubectl) -> None:
    before = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim", mode="Off"))
    seen = eventually(lambda: _with_target(kubectl, "sim"), 120)
    assert seen.target_threads != 16, "the guess of 16 threads is far too many for tiny tasks"
    assert seen.reason("Ready") == "True/RecommendationOnly"

    def unchanged() -> bool:
        pod = only_pod(kubectl, "sim")
        return (pod.resource_version, pod.raw["spec"]) == (
            before.resource_version,
            before.raw["spec"],
        )

    consistently(unchanged, 20, what="the pod's resourceVersion and spec")


def test_running_pods_get_fewer_threads_and_less_cpu_without_a_restart(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    before = start(kubectl, "sim", simulation("sim", cluster.images["simserver"], phase="light"))
    kubectl.apply(simworkload("sim", "sim"))
    seen, [pod] = wait_settled(kubectl, "sim", "sim", unlike=16)
    assert pod.uid == before.uid
    assert pod.restarts == 0
    assert seen.target_threads is not None
    assert seen.target_threads < 16

    # What one thread needs shows only once one thread runs: the CPU follows in a step of its own.
    def resized() -> bool:
        now = only_pod(kubectl, "sim")
        return now.cpu_limit == now.applied_cpu_limit and (now.cpu_limit or 0) < 1500

    eventually(resized, 180, what="the CPU limit is below the guess, as asked and as applied")
    seen, [pod] = wait_settled(kubectl, "sim", "sim", unlike=16)
    assert (pod.uid, pod.restarts) == (before.uid, 0)
    page = kubectl.raw(
        f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod.name}:{METRICS_PORT}/proxy/metrics"
    )
    lines = [line for line in page.splitlines() if line.startswith("slimscale_threads_applied")]
    assert [float(line.split()[-1]) for line in lines] == [seen.target_threads]


def test_the_webhook_gives_a_new_pod_its_threads_and_cpu(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    first = start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    seen, _ = wait_settled(kubectl, "sim", "sim", unlike=16)
    kubectl.delete("pod", first.name)
    second = eventually(lambda: only_pod(kubectl, "sim"), 60)
    assert second.uid != first.uid
    assert second.env()["OMP_NUM_THREADS"] == str(seen.target_threads)
    assert second.env()["SIM_THREADS"] == "16", "the user's own variable is kept"
    assert second.asked_threads == seen.target_threads
    assert second.cpu_limit == seen.target_cpu
    eventually(lambda: settled(kubectl, "sim", "sim"), 120)


def _with_target(kubectl: Kubectl, name: str):  # type: ignore[no-untyped-def]
    seen = workload(kubectl, name)
    assert seen.target_threads is not None, seen.status.get("conditions")
    return seen
