"""What a SlimInference is made of: names, security, owners, drain, configuration."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from slimscale.act.inference_children import Child, ChildSettings, children_of
from slimscale.act.inference_config import config_digest, config_files
from slimscale.act.inference_names import InferenceNames
from slimscale.act.inference_pods import Images
from slimscale.api.serving_config import ModelServerConfig, RouterConfig, SidecarConfig
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.kubeapi.ports import Json
from tests.support.inferences import inference_spec

SETTINGS = ChildSettings(Images("data:1", "model:1"), metrics_namespaces=("slimscale",))
LONG = "x" * 250 + ".y9"


def spec_of(**fields: Any) -> SlimInferenceSpec:
    return SlimInferenceSpec.model_validate(inference_spec(**fields))


def made(name: str = "fashion", *, monitoring: bool = False, **fields: Any) -> tuple[Child, ...]:
    return children_of(
        spec_of(**fields), name=name, namespace="ns", uid="u1", settings=SETTINGS,
        monitoring=monitoring,
    )  # fmt: skip


def pods(children: tuple[Child, ...]) -> Iterator[tuple[str, Json]]:
    for child in children:
        if child.plural == "deployments":
            yield child.pool or "router", child.body["spec"]["template"]["spec"]


def containers(pod: Json) -> list[Json]:
    return [*pod.get("initContainers", []), *pod["containers"]]


POOLS = [{"name": "cpu"}, {"name": "g" * 40, "resources": {"limits": {"nvidia.com/gpu": 1}}}]


@pytest.mark.parametrize("name", ["fashion", "9-digits", "a.b.c", "x" * 63, LONG])
def test_every_child_has_a_valid_name_of_its_own(name: str) -> None:
    children = made(name, monitoring=True, pools=POOLS)
    for child in children:
        assert len(child.name) <= 63
        assert child.name[0].isalpha()
        assert "." not in child.name
        for value in child.body["metadata"]["labels"].values():
            assert len(value) <= 63
    assert len({(child.plural, child.name) for child in children}) == len(children)


def test_owners_that_share_a_long_beginning_share_no_child() -> None:
    one = {(c.plural, c.name) for c in made("y" * 70 + "1", pools=POOLS)}
    two = {(c.plural, c.name) for c in made("y" * 70 + "2", pools=POOLS)}
    assert not one & two


def test_the_front_door_has_the_name_of_the_resource_where_a_service_may_have_it() -> None:
    assert InferenceNames("fashion").front == "fashion"
    assert InferenceNames("9-digits").front.startswith("slimscale-9-digits-front-")
    assert InferenceNames("a.b").front.startswith("slimscale-a-b-front-")


def test_all_children_belong_to_the_resource_in_its_own_namespace() -> None:
    for child in made(monitoring=True, pools=POOLS):
        metadata = child.body["metadata"]
        assert metadata["namespace"] == "ns"
        [owner] = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("SlimInference", "u1", True)
        assert "slimscale.dev/sliminference" in metadata["labels"]


def test_every_container_fits_the_restricted_standard() -> None:
    for _, pod in pods(made(pools=POOLS)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for volume in pod["volumes"]:
            assert set(volume) <= {"name", "projected", "emptyDir", "persistentVolumeClaim"}
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_only_the_router_has_a_token_and_it_reads_endpoint_slices_alone() -> None:
    children = made(pools=POOLS)
    tokens = {role: pod["automountServiceAccountToken"] for role, pod in pods(children)}
    assert tokens == {"router": True, "cpu": False, "g" * 40: False}
    [role] = [child.body for child in children if child.plural == "roles"]
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
    ]


def test_the_model_server_starts_before_the_batcher_and_ends_after_it() -> None:
    """D10: a native sidecar ends last, so that what is queued still gets its answer."""
    [pod] = [pod for role, pod in pods(made()) if role == "cpu"]
    [server], [batcher] = pod["initContainers"], pod["containers"]
    assert (server["name"], server["restartPolicy"]) == ("model-server", "Always")
    loopback_only = 9000
    for probe in ("startupProbe", "livenessProbe"):
        assert server[probe]["httpGet"]["port"] != loopback_only, "the kubelet is outside the pod"
    assert batcher["name"] == "batcher"
    assert batcher["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_grace_period_is_longer_than_waiting_and_draining() -> None:
    children = made()
    config = next(child.body for child in children if child.plural == "configmaps")
    drain = json.loads(config["data"]["sidecar.json"])["drainSeconds"]
    for _, pod in pods(children):
        waits = [
            c["lifecycle"]["preStop"]["sleep"]["seconds"]
            for c in pod["containers"]
            if "lifecycle" in c
        ]
        assert waits
        assert pod["terminationGracePeriodSeconds"] > max(waits) + drain


def test_a_rollout_never_takes_capacity_away() -> None:
    for child in made():
        if child.plural == "deployments":
            strategy = child.body["spec"]["strategy"]["rollingUpdate"]
            assert strategy == {"maxUnavailable": 0, "maxSurge": 1}


def test_no_body_of_a_pools_deployment_says_how_many() -> None:
    """E6: replicas have an owner of their own."""
    for child in made(pools=POOLS):
        if child.plural == "deployments":
            assert ("replicas" in child.body["spec"]) is (child.pool == "")


def test_pull_secrets_reach_every_pod() -> None:
    for _, pod in pods(made(imagePullSecrets=[{"name": "registry"}], pools=POOLS)):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_a_pool_gets_its_nodes_tolerations_and_gpus() -> None:
    pool = {
        "name": "gpu",
        "nodeSelector": {"accelerator": "h200"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}},
    }
    [pod] = [pod for role, pod in pods(made(pools=[pool])) if role == "gpu"]
    assert pod["nodeSelector"] == {"accelerator": "h200"}
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    [server] = pod["initContainers"]
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "8Gi"}
    assert server["resources"]["requests"] == {"cpu": "500m"}, "memory follows its limit"
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"} in server["env"]


def test_the_thread_count_of_a_simworkload_lies_beside_the_configuration() -> None:
    """Two volumes at one path would make the pod invalid, so both files come in one."""
    for _, pod in pods(made()):
        [volume] = [v for v in pod["volumes"] if "projected" in v]
        kinds = [next(iter(source)) for source in volume["projected"]["sources"]]
        assert (volume["name"], kinds) == ("slimscale-podinfo", ["configMap", "downwardAPI"])
        for container in containers(pod):
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths)


def test_the_files_are_what_the_data_plane_reads() -> None:
    spec = spec_of(
        slo={"latencyMilliseconds": 100, "minAccuracy": 0.9, "classes": {"gold": 50}},
        batching={"maxRows": 12},
        routing={"policy": "SED", "mode": "Shadow"},
        pools=[{"name": "cpu", "costPerHour": 0.5}],
    )
    names = InferenceNames("fashion")
    files = config_files(spec, names, "ns")
    router = RouterConfig.model_validate_json(files["router.json"])
    assert (router.service, router.endpoints_service) == ("fashion", names.endpoints)
    assert (router.slo_milliseconds, router.slo_classes) == (100, {"gold": 50})
    assert (router.policy.value, router.mode.value) == ("SED", "Shadow")
    assert router.pools[0].cost_per_hour == 0.5
    sidecar = SidecarConfig.model_validate_json(files["sidecar.json"])
    assert sidecar.batching.max_rows == 12
    server = ModelServerConfig.model_validate_json(files["modelserver.json"])
    assert server.preload == ["fashion-w100"]
    assert server.warm_rows == [1, 2, 4, 8, 12]


def test_only_what_a_file_says_changes_the_digest() -> None:
    names = InferenceNames("fashion")
    one = config_digest(config_files(spec_of(), names, "ns"))
    more = config_digest(
        config_files(spec_of(pools=[{"name": "cpu", "maxReplicas": 9}]), names, "ns")
    )
    other = config_digest(config_files(spec_of(batching={"maxRows": 8}), names, "ns"))
    assert one == more != other


def test_a_new_batch_limit_rolls_no_pod() -> None:
    def templates(**fields: Any) -> list[Json]:
        return [c.body["spec"]["template"] for c in made(**fields) if c.plural == "deployments"]

    assert templates(routing={"policy": "SED"}) == templates(routing={"policy": "Random"})
    assert templates(batching={"maxRows": 8}) == templates(batching={"maxRows": 16})


def test_pods_of_pools_are_reached_by_routers_and_reach_nobody() -> None:
    policies = [c.body["spec"] for c in made() if c.plural == "networkpolicies"]
    [pool] = [
        p for p in policies if p["podSelector"]["matchLabels"]["slimscale.dev/role"] == "pool"
    ]
    assert pool["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in pool
    data = [rule for rule in pool["ingress"] if rule["ports"][0]["port"] == 8080]
    assert [
        source["podSelector"]["matchLabels"]["slimscale.dev/role"]
        for rule in data
        for source in rule["from"]
    ] == ["router"]
    for policy in policies:
        for rule in policy["ingress"]:
            if rule["ports"][0]["port"] == 8081:
                assert all("namespaceSelector" in source for source in rule["from"])


def test_monitors_are_made_only_where_the_cluster_knows_them() -> None:
    assert "servicemonitors" not in {child.plural for child in made()}
    assert "servicemonitors" in {child.plural for child in made(monitoring=True)}
