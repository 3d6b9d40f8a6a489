"""What the chart installs: valid, confined, and gone without a trace when it is taken away."""

import json
import re
from typing import Any

import kubernetes_validate
import pytest
from prometheus_client import CollectorRegistry

from slimscale.act.metrics import OperatorMetrics
from tests.support.helm import CHART, ROOT, Document, helm, render

pytestmark = pytest.mark.timeout(900)  # the first one may have to build helm

ALL_VALUES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
NAMESPACED_KINDS = {
    "ConfigMap", "Deployment", "NetworkPolicy", "Role", "RoleBinding", "Secret", "Service",
    "ServiceAccount", "ServiceMonitor",
}  # fmt: skip


def of_kind(documents: tuple[Document, ...], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def deployment(documents: tuple[Document, ...]) -> Document:
    [found] = of_kind(documents, "Deployment")
    return found


@pytest.mark.parametrize("values", ALL_VALUES)
def test_the_chart_passes_helms_strict_lint(values: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{values}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_manifest_is_valid_for_its_kind(values: str) -> None:
    for document in render(values=values):
        if document["kind"] != "ServiceMonitor":  # not Kubernetes' own
            kubernetes_validate.validate(document, "1.35", strict=True)


@pytest.mark.parametrize("values", ALL_VALUES)
def test_names_and_labels_fit_their_limits(values: str) -> None:
    long = render(values=values, release="a" * 53, namespace="n" * 63)
    for document in long:
        name = document["metadata"]["name"]
        limit = 63 if document["kind"] in NAMESPACED_KINDS else 253
        assert len(name) <= limit, f"{document['kind']} {name}"
        if document["kind"] in NAMESPACED_KINDS:
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name), name
        for value in document["metadata"].get("labels", {}).values():
            assert len(value) <= 63


@pytest.mark.parametrize("release", ["7sims", "a.b", "slimscale-2", "slimscale"])
def test_odd_release_names_make_valid_service_names(release: str) -> None:
    for service in of_kind(render(release=release), "Service"):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", service["metadata"]["name"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("slimscale", "one"), ("slimscale", "two")),
        (("red", "one"), ("blue", "one")),
        (("b-c", "a"), ("c", "a-b")),
        (("a" * 53, "n"), ("a" * 52 + "b", "n")),
    ],
)
def test_two_installs_share_no_cluster_scoped_name(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    def names(release: str, namespace: str) -> set[tuple[str, str]]:
        return {
            (document["kind"], document["metadata"]["name"])
            for document in render(release=release, namespace=namespace)
            if "namespace" not in document["metadata"]
        }

    shared = names(*first) & names(*second)
    kinds = ("simworkloads", "sliminferences")
    assert shared == {("CustomResourceDefinition", f"{kind}.slimscale.dev") for kind in kinds}


def test_two_installs_in_one_namespace_share_no_name_at_all() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {(d["kind"], d["metadata"]["name"]) for d in render(release=release)}

    shared = names("red") & names("blue")
    assert {kind for kind, _ in shared} == {"CustomResourceDefinition"}


@pytest.mark.parametrize("values", ALL_VALUES)
def test_nothing_holds_a_deletion_up(values: str) -> None:
    for document in render(values=values):
        assert "finalizers" not in document["metadata"]
        assert not any(
            key.startswith("helm.sh/hook") for key in document["metadata"].get("annotations", {})
        )


@pytest.mark.parametrize("values", ALL_VALUES)
def test_the_operators_pod_is_restricted(values: str) -> None:
    pod = deployment(render(values=values))["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["runAsNonRoot"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= set(container)


@pytest.mark.parametrize("values", ALL_VALUES)
def test_two_operators_never_run_side_by_side(values: str) -> None:
    spec = deployment(render(values=values))["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("values", ["namespaced", "everything"])
def test_pull_secrets_reach_every_pod_and_account(values: str) -> None:
    documents = render(values=values)
    secrets = [{"name": "registry"}]
    assert deployment(documents)["spec"]["template"]["spec"]["imagePullSecrets"] == secrets
    for account in of_kind(documents, "ServiceAccount"):
        assert account["imagePullSecrets"] == secrets


def test_a_digest_wins_over_the_tag() -> None:
    [container] = deployment(render(values="everything"))["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/slimscale/operator@sha256:{'0' * 64}"


def test_services_and_network_policy_select_the_operators_pod() -> None:
    for values in ALL_VALUES:
        documents = render(values=values)
        labels = deployment(documents)["spec"]["template"]["metadata"]["labels"]
        selectors = [s["spec"]["selector"] for s in of_kind(documents, "Service")]
        selectors += [
            p["spec"]["podSelector"]["matchLabels"] for p in of_kind(documents, "NetworkPolicy")
        ]
        selectors.append(deployment(documents)["spec"]["selector"]["matchLabels"])
        assert len(selectors) > 1
        for selector in selectors:
            assert selector.items() <= labels.items()
            # a Deployment's selector can never change: one with a version breaks every upgrade
            assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(selector)


def test_metrics_are_open_to_the_own_namespace_alone_unless_widened() -> None:
    def sources(values: str) -> Any:
        [policy] = of_kind(render(values=values), "NetworkPolicy")
        return [
            rule.get("from")
            for rule in policy["spec"]["ingress"]
            if {"port": "metrics", "protocol": "TCP"} in rule["ports"]
        ]

    assert sources("default") == [[{"podSelector": {}}]]
    [[widened]] = sources("everything")
    assert widened["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "monitoring"
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("replicas=2", "replicas"),
        ("operator.logLevel=LOUD", "logLevel"),
        ("operator.workers=0", "workers"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("prometheus.url=file:///etc/passwd", "url"),
        ("ports.health=70000", "health"),
        ("crds.enabled=perhaps", "enabled"),
        ("watchNamespaces[0]=No_Namespace", "watchNamespaces"),
    ],
)
def test_unknown_and_bad_values_are_refused(given: str, words: str) -> None:
    done = helm("template", "slimscale", str(CHART), "--set", given)
    assert done.returncode != 0
    assert words in done.stderr


def test_every_setting_that_the_chart_writes_is_one_that_the_operator_reads() -> None:
    from slimscale.settings import OperatorSettings

    known = {f"SLIMSCALE_{name.upper()}" for name in OperatorSettings.model_fields}
    for values in ALL_VALUES:
        [container] = deployment(render(values=values))["spec"]["template"]["spec"]["containers"]
        written = {e["name"] for e in container["env"] if e["name"].startswith("SLIMSCALE_")}
        assert written <= known
        # what the chart writes is also taken: types and bounds of both agree
        plain = {
            e["name"].removeprefix("SLIMSCALE_").lower(): e["value"]
            for e in container["env"]
            if e["name"].startswith("SLIMSCALE_") and "value" in e
        }
        OperatorSettings(**plain)


def test_the_dashboard_asks_for_metrics_that_the_operator_serves() -> None:
    [config] = of_kind(render(values="everything"), "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads(config["data"]["slimscale.json"])
    assert dashboard == json.loads((CHART / "dashboards/slimscale.json").read_text())
    registry = CollectorRegistry()
    OperatorMetrics(registry)
    served = set()
    for family in registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        served |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    asked = set(re.findall(r"\bslimscale_\w+", config["data"]["slimscale.json"]))
    assert len(asked) > 10
    assert asked <= served


def test_the_operator_runs_the_module_that_the_package_has() -> None:
    [container] = deployment(render())["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "slimscale.handlers"]
    assert (ROOT / "operator/slimscale/handlers/__main__.py").is_file()
