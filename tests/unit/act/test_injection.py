"""What the creation webhook does to a pod, and what it leaves alone."""

import copy
from typing import Any

import pytest

from slimscale.act.injection import InjectionChoice, InjectionResult, inject
from slimscale.api.names import (
    ANNOTATION_INJECTED,
    ANNOTATION_KEPT_ENV,
    ANNOTATION_THREADS,
    LABEL_INJECT,
    PODINFO_MOUNT,
    PODINFO_VOLUME,
    THREADS_FILE_ENV,
)

Json = dict[str, Any]
CHOICE = InjectionChoice(
    container="sim",
    set_values=True,
    threads=4,
    cpu_request_millicores=2000,
    cpu_limit_millicores=4000,
)


def pod(**container: Any) -> Json:
    return {
        "metadata": {"generateName": "ant-", "labels": {LABEL_INJECT: "true", "app": "ant"}},
        "spec": {
            "initContainers": [{"name": "setup", "image": "x"}],
            "containers": [{"name": "sim", "image": "x", **container}],
        },
    }


def run(body: Json, choice: InjectionChoice | None = CHOICE, namespace: str = "sims") -> Json:
    """The pod after the patch, applied as the API server applies it."""
    return patched(body, inject_into(body, choice, namespace))


def inject_into(
    body: Json, choice: InjectionChoice | None = CHOICE, namespace: str = "sims"
) -> InjectionResult:
    return inject(
        body, choice=choice, never_namespaces=("kube-system", "slimscale"), namespace=namespace
    )


def patched(body: Json, result: InjectionResult) -> Json:
    after = copy.deepcopy(body)
    for operation in result.patch:
        *parents, last = operation["path"].strip("/").split("/")
        where: Any = after
        for part in parents:
            where = where[int(part)] if isinstance(where, list) else where[part]
        if isinstance(where, list):
            assert operation["op"] == "replace", "add on a list element would insert another one"
            where[int(last)] = operation["value"]
        else:
            where[last] = operation["value"]
    return after


def environment(body: Json) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in body["spec"]["containers"][0]["env"]}


def test_a_new_pod_gets_thread_variables_cpu_and_the_live_channel() -> None:
    after = run(pod(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}))
    env = environment(after)
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "4"
    assert env[THREADS_FILE_ENV] == f"{PODINFO_MOUNT}/threads"
    container = after["spec"]["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "2"},
        "limits": {"cpu": "4", "memory": "1Gi"},
    }
    assert container["volumeMounts"] == [
        {"name": PODINFO_VOLUME, "mountPath": PODINFO_MOUNT, "readOnly": True}
    ]
    assert after["metadata"]["annotations"][ANNOTATION_THREADS] == "4"
    item = after["spec"]["volumes"][0]["downwardAPI"]["items"][0]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{ANNOTATION_THREADS}']"


def test_every_variable_is_a_decimal_string() -> None:
    env = run(pod())["spec"]["containers"][0]["env"]
    assert all(isinstance(entry["value"], str) for entry in env)


def test_without_a_simworkload_only_the_channel_is_added() -> None:
    after = run(pod(resources={"limits": {"cpu": "2"}}), choice=None)
    assert list(environment(after)) == [THREADS_FILE_ENV]
    assert after["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}}
    assert ANNOTATION_THREADS not in after["metadata"]["annotations"]


def test_mode_off_sets_no_values() -> None:
    after = run(pod(), choice=InjectionChoice(container="sim", set_values=False, threads=4))
    assert list(environment(after)) == [THREADS_FILE_ENV]


def test_a_users_own_variable_wins_and_is_reported() -> None:
    body = pod(env=[{"name": "OMP_NUM_THREADS", "value": "7"}])
    after = run(body)
    assert environment(after)["OMP_NUM_THREADS"] == "7"
    assert after["metadata"]["annotations"][ANNOTATION_KEPT_ENV] == "OMP_NUM_THREADS"
    assert any("OMP_NUM_THREADS" in warning for warning in inject_into(body).warnings)


def test_an_override_replaces_the_users_variable() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=4, override_user_env=True)
    after = run(pod(env=[{"name": "OMP_NUM_THREADS", "value": "7"}]), choice)
    assert environment(after)["OMP_NUM_THREADS"] == "4"
    assert ANNOTATION_KEPT_ENV not in after["metadata"]["annotations"]


def test_variables_are_shared_out_over_the_processes_of_a_pod() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=8, processes_per_pod=3)
    assert environment(run(pod(), choice))["OMP_NUM_THREADS"] == "2"


def test_extra_names_are_set_too() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=8, extra_env=("WORKERS",))
    assert environment(run(pod(), choice))["WORKERS"] == "8"


def test_running_twice_changes_nothing_the_second_time() -> None:
    once = run(pod(resources={"limits": {"cpu": "2"}}))
    assert inject_into(once).patch == ()


@pytest.mark.parametrize("namespace", ["kube-system", "slimscale"])
def test_pods_of_the_system_and_of_the_operator_are_never_touched(namespace: str) -> None:
    assert inject_into(pod(), namespace=namespace) == InjectionResult()


def test_a_pod_without_the_label_is_never_touched() -> None:
    body = pod()
    del body["metadata"]["labels"][LABEL_INJECT]
    assert inject_into(body) == InjectionResult()


def test_other_containers_stay_as_they_are() -> None:
    body = pod()
    body["spec"]["containers"].insert(0, {"name": "proxy", "image": "y"})
    after = run(body)
    assert after["spec"]["containers"][0] == {"name": "proxy", "image": "y"}
    assert after["spec"]["initContainers"] == [{"name": "setup", "image": "x"}]
    assert after["spec"]["containers"][1]["env"]


def test_an_ambiguous_container_is_left_alone_and_said() -> None:
    body = pod()
    body["spec"]["containers"].append({"name": "second", "image": "y"})
    result = inject_into(body, choice=None)
    assert result.patch == ()
    assert "2 containers" in result.warnings[0]


def test_an_annotation_names_the_container_where_there_are_several() -> None:
    body = pod()
    body["spec"]["containers"].append({"name": "second", "image": "y"})
    body["metadata"]["annotations"] = {ANNOTATION_INJECTED: "second"}
    after = run(body, choice=None)
    assert "env" not in after["spec"]["containers"][0]
    assert after["spec"]["containers"][1]["env"][0]["name"] == THREADS_FILE_ENV


def test_a_missing_container_is_said() -> None:
    choice = InjectionChoice(container="other", set_values=True, threads=2)
    result = inject_into(pod(), choice)
    assert result.patch == ()
    assert "other" in result.warnings[0]


def test_no_cpu_is_added_where_the_user_set_none() -> None:
    assert "resources" not in run(pod())["spec"]["containers"][0]


def test_a_kept_limit_stays() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=4)
    after = run(pod(resources={"limits": {"cpu": "3"}}), choice)
    assert after["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "3"}}


def test_a_request_never_exceeds_the_limit() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=1, cpu_limit_millicores=500)
    after = run(pod(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}), choice)
    assert after["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "500m"},
    }


def test_a_users_own_volume_at_our_path_is_kept() -> None:
    mounts = [{"name": "mine", "mountPath": PODINFO_MOUNT}]
    body = pod(volumeMounts=mounts)
    after = run(body, choice=None)
    assert after["spec"]["containers"][0]["volumeMounts"] == mounts
    assert any(PODINFO_MOUNT in warning for warning in inject_into(body, None).warnings)


def test_java_options_are_appended_never_replaced() -> None:
    choice = InjectionChoice(container="sim", set_values=True, threads=4, java_tool_options=True)
    after = run(pod(env=[{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}]), choice)
    assert environment(after)["JAVA_TOOL_OPTIONS"] == "-Xmx1g -XX:ActiveProcessorCount=4"
