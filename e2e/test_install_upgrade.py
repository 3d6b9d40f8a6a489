"""The chart's life: from an older one to this one, gone and back, and with a broken image."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import install
from e2e.conftest import Cluster
from e2e.eventually import eventually
from e2e.helm import CHART, Helm, HelmFailed
from e2e.kubectl import Kubectl
from e2e.simworkloads import operator_pod, start, wait_settled, workload
from e2e.workloads import contract_server, plain_pod, simworkload

CRD = "simworkloads.slimscale.dev"
NEW_FIELD = "suspend"


@pytest.fixture
def chart(cluster: Cluster) -> Iterator[Helm]:
    """The release, put back as the other tests need it."""
    yield cluster.helm
    install.install(cluster.images["operator"])
    eventually(lambda: operator_pod(cluster.operator), 120)


def test_an_upgrade_keeps_the_resources_and_brings_the_new_field(
    cluster: Cluster, chart: Helm, kubectl: Kubectl, tmp_path: Path
) -> None:
    _remove(chart)
    image = {"image": install.image_values(cluster.images["operator"])}
    chart.install(install.RELEASE, image, chart=_older_chart(tmp_path))
    kubectl.apply(simworkload("sim", "sim"))
    uid = workload(kubectl, "sim").raw["metadata"]["uid"]
    kubectl.patch("simworkload", "sim", {"spec": {NEW_FIELD: True}})
    assert NEW_FIELD not in workload(kubectl, "sim").raw["spec"], "the older CRD does not know it"

    install.install(cluster.images["operator"])
    kept = workload(kubectl, "sim").raw
    assert (kept["metadata"]["uid"], kept["spec"]["threads"]["max"]) == (uid, 64)
    kubectl.patch("simworkload", "sim", {"spec": {NEW_FIELD: True}})
    assert workload(kubectl, "sim").raw["spec"][NEW_FIELD] is True
    kubectl.patch("simworkload", "sim", {"spec": {NEW_FIELD: False}})
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    wait_settled(kubectl, "sim", "sim", unlike=16)


def test_uninstalling_blocks_no_deletion_and_no_pod(
    cluster: Cluster, chart: Helm, kubectl: Kubectl
) -> None:
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    wait_settled(kubectl, "sim", "sim", unlike=16)
    chart.uninstall(install.RELEASE)

    everywhere = Kubectl()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert not [o for o in everywhere.list(kind) if "slimscale" in o["metadata"]["name"]]
    assert workload(kubectl, "sim").raw["spec"], "the CRD and its resources are kept"

    inject = {"slimscale.dev/inject": "true"}
    image = cluster.images["simserver"]
    kubectl.apply(plain_pod("newcomer", image, labels=inject))
    kubectl.wait("pod/newcomer", "condition=Ready", 60)

    started = time.monotonic()
    Kubectl(timeout_seconds=90).delete("namespace", kubectl.namespace)
    assert time.monotonic() - started < 60


def test_a_broken_operator_holds_up_no_pod(cluster: Cluster, chart: Helm, kubectl: Kubectl) -> None:
    broken = {
        "image": {"repository": "localhost/slimscale-none", "tag": "x", "pullPolicy": "Never"}
    }
    with pytest.raises(HelmFailed):
        chart.install(install.RELEASE, broken, timeout_seconds=15)
    with pytest.raises(LookupError):
        operator_pod(cluster.operator)
    started = time.monotonic()
    inject = {"slimscale.dev/inject": "true"}
    kubectl.apply(plain_pod("newcomer", cluster.images["simserver"], labels=inject))
    assert time.monotonic() - started < 10, "failurePolicy Ignore with a short time-out"
    kubectl.wait("pod/newcomer", "condition=Ready", 60)


def _remove(chart: Helm) -> None:
    chart.uninstall(install.RELEASE)
    Kubectl().delete("crd", CRD)


def _older_chart(folder: Path) -> Path:
    """This chart as an earlier version might have been: a lower number, a field fewer."""
    older = folder / "slimscale"
    shutil.copytree(CHART, older)
    about: dict[str, Any] = yaml.safe_load((older / "Chart.yaml").read_text())
    (older / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "0.0.9"}))
    path = older / "templates" / "crds" / "simworkloads.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(_without_field(lines)))
    return older


def _without_field(lines: list[str]) -> Iterator[str]:
    """Without the property NEW_FIELD of the spec."""
    inside = -1
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if inside >= 0 and line.strip() and indent <= inside:
            inside = -1
        if line.strip() == f"{NEW_FIELD}:":
            inside = indent
        if inside < 0:
            yield line
