"""Pods, targets, limits, other owners: raw JSON to what a decision needs."""

from typing import Any

import pytest

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import SimWorkloadSpec, TargetRef
from slimscale.domain.observation import (
    ConflictKind,
    ContainerResources,
    LimitRangeBounds,
    OtherOwner,
    QosClass,
    ResizeState,
)
from slimscale.kubeapi.ports import Json
from slimscale.observe.conflicts import active_hpas, active_vpas, elder_simworkloads
from slimscale.observe.limits import limit_range_bounds, quota_room
from slimscale.observe.memo_reader import memo_from_config_map
from slimscale.observe.pods import observe_pod
from slimscale.observe.resources import pod_cpu_request_millicores
from slimscale.observe.target import (
    TargetUnresolved,
    belongs_to_target,
    observe_target,
    rollout_state,
    selector_text,
)
from tests.support.raw_objects import deployment, pod, simworkload

TARGET = TargetRef(name="ants")


def _spec(**more: Any) -> SimWorkloadSpec:
    return SimWorkloadSpec.model_validate({"targetRef": {"name": "ants"}, **more})


# Pods


def test_a_pod_s_asked_and_applied_cpu_are_told_apart() -> None:
    seen = observe_pod(pod(annotations={"slimscale.dev/threads": "6"}), container="sim")
    assert seen.spec_resources == ContainerResources(1000, 2000)
    assert seen.applied_resources == ContainerResources(1000, 1500)
    assert (seen.ready, seen.phase, seen.node) == (True, "Running", "node-1")
    assert seen.qos_class is QosClass.BURSTABLE
    assert seen.desired_threads == 6
    assert seen.has_live_channel


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, ResizeState.NONE),
        ({"resize": "Infeasible"}, ResizeState.INFEASIBLE),
        ({"resize": "Proposed"}, ResizeState.PROPOSED),
        ({"resize": "Unheard-of"}, ResizeState.NONE),
        ({"c": ("PodResizePending", "True", "Deferred")}, ResizeState.DEFERRED),
        ({"c": ("PodResizePending", "True", "Infeasible")}, ResizeState.INFEASIBLE),
        ({"c": ("PodResizeInProgress", "True", "")}, ResizeState.IN_PROGRESS),
        ({"c": ("PodResizeInProgress", "True", "Error")}, ResizeState.ERROR),
        ({"c": ("PodResizePending", "False", "Deferred")}, ResizeState.NONE),
    ],
)
def test_each_way_of_telling_a_resize_s_state_is_understood(
    status: Json, state: ResizeState
) -> None:
    raw = pod()
    if "c" in status:
        kind, value, reason = status["c"]
        condition = {
            "type": kind, "status": value, "reason": reason, "message": "why",
            "lastTransitionTime": "2026-11-30T00:01:00Z",
        }  # fmt: skip
        raw["status"]["conditions"].append(condition)
    else:
        raw["status"].update(status)
    seen = observe_pod(raw, container="sim").resize
    assert seen.state is state
    if "c" in status and state is not ResizeState.NONE:
        assert seen.message == "why"
        assert seen.since_seconds == pytest.approx(1_796_000_460.0, abs=1e7)


@pytest.mark.parametrize("text", ["", "0", "-3", "1.5", "many", "99999999", "²", "4 "])
def test_an_annotation_that_is_no_thread_count_reads_as_none(text: str) -> None:
    raw = pod(annotations={"slimscale.dev/threads": text})
    assert observe_pod(raw, container="sim").desired_threads is None


def test_restarts_crash_loops_and_deletion_are_seen() -> None:
    raw = pod()
    raw["metadata"]["deletionTimestamp"] = "2026-11-30T00:10:00Z"
    raw["status"]["containerStatuses"][0].update(
        restartCount=3,
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": {"finishedAt": "2026-11-30T00:09:00Z"}},
    )
    seen = observe_pod(raw, container="sim")
    assert seen.terminating
    assert seen.crash_looping
    assert seen.restart_count == 3
    assert seen.last_restart_seconds == seen.created_at_seconds + 540


def test_a_resize_that_would_restart_the_container_is_known_beforehand() -> None:
    raw = pod()
    policy = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
    raw["spec"]["containers"][0]["resizePolicy"] = [policy]
    assert observe_pod(raw, container="sim").resize_restarts_container
    assert not observe_pod(pod(), container="sim").resize_restarts_container


def test_sidecars_count_for_cpu_and_for_the_quality_of_service() -> None:
    raw = pod()
    fixed = {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "100m", "memory": "1Gi"},
    }
    raw["spec"]["containers"].append({"name": "log", "resources": fixed})
    raw["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"cpu": "50m"}}},
        {"name": "setup", "resources": {"requests": {"cpu": "4"}}},
    ]
    seen = observe_pod(raw, container="sim")
    assert seen.other_cpu_request_millicores == 150
    assert not seen.other_containers_guaranteed
    raw["spec"]["initContainers"].pop(0)
    assert observe_pod(raw, container="sim").other_containers_guaranteed


def test_a_live_channel_is_the_mounted_annotation_whoever_wrote_the_volume() -> None:
    raw = pod()
    field = {"fieldRef": {"fieldPath": "metadata.annotations['slimscale.dev/threads']"}}
    raw["spec"]["volumes"] = [{"name": "mine", "downwardAPI": {"items": [field]}}]
    assert not observe_pod(raw, container="sim").has_live_channel
    raw["spec"]["containers"][0]["volumeMounts"] = [{"name": "mine", "mountPath": "/x"}]
    assert observe_pod(raw, container="sim").has_live_channel


def test_an_almost_empty_pod_is_no_error() -> None:
    seen = observe_pod({"metadata": {"name": "a", "uid": "u"}}, container="sim")
    assert not seen.ready
    assert seen.applied_resources is None


# Targets


def test_a_deployment_is_read_with_its_container_and_selector() -> None:
    seen = observe_target(deployment(), _spec())
    assert (seen.container, seen.selector, seen.desired_replicas) == ("sim", "app=ants", 2)
    assert seen.template_resources.cpu_limit_millicores == 2000
    assert not seen.rollout_in_progress


def test_expressions_of_a_selector_are_kept() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["x", "y"]},
            {"key": "d", "operator": "Exists"},
            {"key": "e", "operator": "DoesNotExist"},
            {"key": "f", "operator": "NotIn", "values": ["z"]},
        ],
    }
    assert selector_text(selector) == "a=1,b=2,c in (x,y),d,!e,f notin (z)"


def _with_containers(*names: str) -> Json:
    raw = deployment()
    raw["spec"]["template"]["spec"]["containers"] = [{"name": name} for name in names]
    return raw


def test_a_container_must_be_named_where_there_are_several_unless_the_pod_names_a_default() -> None:
    raw = _with_containers("sim", "log")
    with pytest.raises(
        TargetUnresolved, match=r"sim, log; name one in spec\.containerName"
    ) as caught:
        observe_target(raw, _spec())
    assert caught.value.reason is Reason.CONTAINER_AMBIGUOUS
    annotation = {"kubectl.kubernetes.io/default-container": "log"}
    raw["spec"]["template"]["metadata"]["annotations"] = annotation
    assert observe_target(raw, _spec()).container == "log"
    with pytest.raises(TargetUnresolved) as caught:
        observe_target(raw, _spec(containerName="gone"))
    assert caught.value.reason is Reason.CONTAINER_NOT_FOUND


def test_a_selector_that_takes_every_pod_is_refused() -> None:
    with pytest.raises(TargetUnresolved, match="every pod"):
        observe_target(deployment(selector={}), _spec())


def test_secrets_in_variables_never_leave_the_template() -> None:
    """H7: the observation goes into the decision log."""
    raw = deployment()
    raw["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "PASSWORD", "value": "S3CR3T"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "OMP_NUM_THREADS", "value": "8"},
        {"name": "MKL_NUM_THREADS", "value": "8,2"},
        {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:ActiveProcessorCount=8"},
    ]
    seen = observe_target(raw, _spec())
    assert dict(seen.template_env) == {
        "OMP_NUM_THREADS": "8",
        "JAVA_TOOL_OPTIONS": "-XX:ActiveProcessorCount=8",
    }
    assert set(seen.template_opaque_env) == {"PASSWORD", "TOKEN", "MKL_NUM_THREADS"}
    assert "S3CR3T" not in repr(seen)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, (False, False)),
        ({"observedGeneration": 2}, (True, False)),
        ({"updatedReplicas": 1}, (True, False)),
        ({"replicas": 3}, (True, False)),
        (
            {
                "updatedReplicas": 1,
                "conditions": [
                    {
                        "type": "Progressing",
                        "status": "False",
                        "reason": "ProgressDeadlineExceeded",
                    }
                ],
            },
            (False, True),
        ),
    ],
)
def test_a_rollout_is_seen_while_it_runs_and_when_it_failed(
    status: Json, expected: tuple[bool, bool]
) -> None:
    raw = deployment()
    raw["status"].update(status)
    seen = observe_target(raw, _spec())
    assert (seen.rollout_in_progress, seen.rollout_failed) == expected


@pytest.mark.parametrize(
    ("strategy", "updated", "moving"),
    [
        ({"type": "RollingUpdate"}, 2, True),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, 0, True),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, 1, False),
        ({"type": "OnDelete"}, 0, False),
    ],
)
def test_pods_that_the_strategy_holds_back_are_not_waited_for(
    strategy: Json, updated: int, moving: bool
) -> None:
    raw: Json = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 3, "updateStrategy": strategy},
        "status": {
            "observedGeneration": 2,
            "currentRevision": "a",
            "updateRevision": "b",
            "updatedReplicas": updated,
        },
    }
    assert rollout_state("StatefulSet", raw) == (moving, False)
    if strategy["type"] == "OnDelete":
        assert rollout_state("DaemonSet", raw) == (False, False)


def test_other_managers_of_cpu_or_thread_variables_are_named() -> None:
    def entry(manager: str, fields: Json, **more: str) -> Json:
        path: Json = {'k:{"name":"sim"}': fields}
        for part in ("f:containers", "f:spec", "f:template", "f:spec"):
            path = {part: path}
        return {"manager": manager, "fieldsV1": path, **more}

    raw = deployment()
    raw["metadata"]["managedFields"] = [
        entry("argocd", {"f:resources": {"f:limits": {"f:cpu": {}}}}),
        entry("helm", {"f:env": {'k:{"name":"OMP_NUM_THREADS"}': {}}}),
        entry("kubectl", {"f:image": {}}),
        entry("slimscale", {"f:resources": {"f:limits": {"f:cpu": {}}}}),
        entry("status", {"f:resources": {"f:limits": {"f:cpu": {}}}}, subresource="status"),
    ]
    assert observe_target(raw, _spec()).template_managed_fields == ("argocd", "helm")


def test_pods_of_another_workload_with_the_same_labels_are_not_ours() -> None:
    assert belongs_to_target(pod(), TARGET, "ants-uid")
    foreign = pod()
    foreign["metadata"]["ownerReferences"][0]["name"] = "bees-7f"
    assert not belongs_to_target(foreign, TARGET, "ants-uid")
    bare = pod()
    bare["metadata"]["ownerReferences"] = []
    assert not belongs_to_target(bare, TARGET, "ants-uid")
    member = pod()
    member["metadata"]["ownerReferences"] = [
        {"kind": "StatefulSet", "name": "ants", "uid": "set-uid", "controller": True}
    ]
    assert belongs_to_target(member, TargetRef(kind="StatefulSet", name="ants"), "set-uid")
    assert not belongs_to_target(member, TargetRef(kind="StatefulSet", name="ants"), "old-uid")


# Limits, quotas, requests


def test_the_tightest_of_several_limit_ranges_counts_and_other_types_do_not() -> None:
    ranges: list[Json] = [
        {"spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "4"}}]}},
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2"},
                        "maxLimitRequestRatio": {"cpu": "3"},
                    },
                    {"type": "Pod", "max": {"cpu": "1"}},
                ]
            }
        },
    ]
    assert limit_range_bounds(ranges) == LimitRangeBounds(100, 2000, 3.0)
    assert limit_range_bounds([]) == LimitRangeBounds()


def test_quota_room_is_what_the_tightest_quota_leaves_and_never_negative() -> None:
    quotas: list[Json] = [
        {"status": {"hard": {"limits.cpu": "10", "requests.cpu": "4"},
                    "used": {"limits.cpu": "9500m", "requests.cpu": "5"}}},
        {"status": {"hard": {"pods": "3"}}},
        {"spec": {"scopes": ["BestEffort"]}, "status": {"hard": {"limits.cpu": "0"}}},
    ]  # fmt: skip
    assert quota_room(quotas) == (500, 0)
    assert quota_room([]) == (None, None)


def test_a_pod_takes_of_its_node_what_the_scheduler_counts() -> None:
    raw: Json = {
        "spec": {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
                {
                    "name": "s",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"cpu": "200m"}},
                },
                {"name": "i", "resources": {"requests": {"cpu": "3"}}},
            ],
            "overhead": {"cpu": "50m"},
        },
        "status": {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "5"}}]},
    }
    assert pod_cpu_request_millicores(raw) == 5000 + 200 + 50
    raw["status"] = {}
    assert pod_cpu_request_millicores(raw) == 3200 + 50


# Other owners


def _hpa(metrics: Any, name: str = "ants", kind: str = "Deployment") -> Json:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    return {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": reference, "metrics": metrics}}


CPU = {"type": "Resource", "resource": {"name": "cpu"}}


@pytest.mark.parametrize(
    ("hpa", "conflicts"),
    [
        (_hpa([CPU]), True),
        (_hpa(None), True),
        (_hpa([{"type": "Resource", "resource": {"name": "memory"}}]), False),
        (_hpa([{"type": "External", "external": {}}]), False),
        (_hpa([{"type": "External", "external": {}}, CPU]), True),
        (
            _hpa([{"type": "ContainerResource",
                   "containerResource": {"name": "cpu", "container": "sim"}}]),
            True,
        ),
        (
            _hpa([{"type": "ContainerResource",
                   "containerResource": {"name": "cpu", "container": "log"}}]),
            False,
        ),
        (_hpa([CPU], name="bees"), False),
        (_hpa([CPU], kind="StatefulSet"), False),
    ],
)  # fmt: skip
def test_an_hpa_is_another_owner_only_when_it_scales_this_target_on_cpu(
    hpa: Json, conflicts: bool
) -> None:
    wanted = [OtherOwner(ConflictKind.HPA_ON_CPU, "h")] if conflicts else []
    assert active_hpas([hpa], TARGET, "sim") == wanted


@pytest.mark.parametrize(
    ("spec", "conflicts"),
    [
        ({}, True),
        ({"updatePolicy": {"updateMode": "Off"}}, False),
        ({"resourcePolicy": {"containerPolicies": [{"containerName": "*", "mode": "Off"}]}}, False),
        (
            {"resourcePolicy": {"containerPolicies": [
                {"containerName": "*", "controlledResources": ["memory"]}]}},
            False,
        ),
        (
            {"resourcePolicy": {"containerPolicies": [
                {"containerName": "*", "mode": "Off"}, {"containerName": "sim"}]}},
            True,
        ),
    ],
)  # fmt: skip
def test_a_vpa_is_another_owner_only_when_it_writes_this_container_s_cpu(
    spec: Json, conflicts: bool
) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ants"}
    vpa: Json = {"metadata": {"name": "v"}, "spec": {"targetRef": reference, **spec}}
    assert bool(active_vpas([vpa], TARGET, "sim")) is conflicts


def _simw(name: str, created: str, **spec: Any) -> Json:
    raw = simworkload(name, **spec)
    raw["metadata"].update(uid=f"{name}-uid", creationTimestamp=created)
    return raw


def test_of_two_simworkloads_on_a_target_the_elder_goes_on_and_the_second_yields() -> None:
    old, new = _simw("zebra", "2026-01-01T00:00:00Z"), _simw("ant", "2026-01-02T00:00:00Z")
    both = [old, new]
    assert elder_simworkloads(both, old) == []
    assert elder_simworkloads(both, new) == [OtherOwner(ConflictKind.SECOND_SIMWORKLOAD, "zebra")]


def test_a_simworkload_that_acts_on_nothing_is_in_nobody_s_way() -> None:
    new = _simw("ant", "2026-01-02T00:00:00Z")
    early = "2026-01-01T00:00:00Z"
    for other in (
        _simw("off", early, updatePolicy={"mode": "Off"}),
        _simw("suspended", early, suspend=True),
        _simw("elsewhere", early, targetRef={"name": "bees"}),
    ):
        assert elder_simworkloads([other, new], new) == []


# Memo


def test_a_memo_is_used_only_by_the_object_that_owns_it() -> None:
    stored: Json = {
        "metadata": {"ownerReferences": [{"uid": "u1"}]},
        "data": {"memo": '{"version": 1}', "broken": "{", "list": "[]"},
    }
    assert memo_from_config_map(stored, key="memo", owner_uid="u1") == {"version": 1}
    assert memo_from_config_map(stored, key="memo", owner_uid="u2") == {}
    assert memo_from_config_map(stored, key="broken", owner_uid="u1") == {}
    assert memo_from_config_map(stored, key="list", owner_uid="u1") == {}
    assert memo_from_config_map(None, key="memo", owner_uid="u1") == {}
