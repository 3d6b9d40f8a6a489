"""Pods and Deployments of a SlimInference, read as they are: what is unknown stays unknown."""

from typing import Any

import pytest

from slimscale.domain.inference import TelemetryOfPod
from slimscale.domain.serving import PodTelemetry
from slimscale.kubeapi.ports import Json
from slimscale.observe.inference_pods import (
    deployment_problem,
    observe_pool,
    pod_problem,
    replicas_managers,
)


def pod(name: str = "p", *, ready: bool = True, **metadata: Any) -> Json:
    condition = {
        "type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:01:00Z",
    }  # fmt: skip
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    labels = {"labels": {"slimscale.dev/pool": "cpu"}}
    return {
        "metadata": {"name": name, "uid": name} | created | labels | metadata,
        "status": {"conditions": [condition]},
    }


def deployment(**status: Any) -> Json:
    return {"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status}


def test_a_pool_counts_what_was_asked_for_without_the_surge_of_a_rollout() -> None:
    """E8: surge pods are pods, but the replicas are those of the spec."""
    live = deployment(observedGeneration=2, replicas=4, updatedReplicas=1)
    pods = [pod("a"), pod("b"), pod("c"), pod("d", ready=False)]
    pool = observe_pool("cpu", live, pods, telemetry={}, min_replicas=0)
    assert (pool.spec_replicas, len(pool.pods), pool.rollout_in_progress) == (3, 4, True)
    assert len(pool.ready_pods) == 3


def test_a_settled_deployment_is_not_rolling() -> None:
    live = deployment(observedGeneration=2, replicas=3, updatedReplicas=3)
    assert not observe_pool("cpu", live, [], telemetry={}, min_replicas=0).rollout_in_progress


def test_a_pool_that_is_not_there_yet_is_to_start_with_the_fewest() -> None:
    assert observe_pool("cpu", None, [], telemetry={}, min_replicas=2).spec_replicas == 2


def test_a_pod_that_was_never_ready_has_no_time_of_becoming_it() -> None:
    """E9: the idle clock starts when a pod can serve."""
    [seen] = observe_pool("cpu", None, [pod(ready=False)], telemetry={}, min_replicas=0).pods
    assert seen.ready_since_seconds is None
    assert seen.telemetry is None
    [seen] = observe_pool("cpu", None, [pod()], telemetry={}, min_replicas=0).pods
    assert (seen.ready_since_seconds or 0) - seen.created_at_seconds == 60


def test_a_pod_that_has_lost_readiness_says_since_when() -> None:
    """It gets its time to come back from then, not from its creation."""
    [seen] = observe_pool("cpu", None, [pod(ready=False)], telemetry={}, min_replicas=0).pods
    assert (seen.unready_since_seconds or 0) - seen.created_at_seconds == 60
    [seen] = observe_pool("cpu", None, [pod()], telemetry={}, min_replicas=0).pods
    assert seen.unready_since_seconds is None
    raw = pod()
    raw["status"]["conditions"] = []
    [seen] = observe_pool("cpu", None, [raw], telemetry={}, min_replicas=0).pods
    assert seen.unready_since_seconds is None


def test_a_device_that_a_pod_calls_lost_is_lost_however_old_the_word() -> None:
    told = PodTelemetry(widths=(), backlog_seconds=0.0, device="GPU-a", device_lost=True)
    heard = {"p": TelemetryOfPod("p", told, 99.0)}
    pool = observe_pool("cpu", None, [pod(ready=False), pod("q")], telemetry=heard, min_replicas=0)
    assert [seen.device_lost for seen in pool.pods] == [True, False]
    assert not pool.starting_pods, "it is no capacity on the way"


def test_other_owners_of_the_replicas_are_found() -> None:
    fields: Json = {"f:spec": {"f:replicas": {}}}
    thing = deployment()
    thing["metadata"]["managedFields"] = [
        {"manager": "slimscale-inference", "fieldsV1": fields},
        {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {}}},
        {"manager": "keda", "subresource": "scale", "fieldsV1": fields},
    ]
    assert replicas_managers(thing) == ("keda",)


@pytest.mark.parametrize(
    ("reason", "told"),
    [("ErrImagePull", "ImagePullFailed"), ("InvalidImageName", "ImagePullFailed"),
     ("CrashLoopBackOff", "CrashLoop"), ("CreateContainerConfigError", "PodsMissing")],
)  # fmt: skip
def test_what_keeps_a_container_from_starting_is_told(reason: str, told: str) -> None:
    thing = pod(ready=False)
    waiting = {"reason": reason, "message": "why"}
    thing["status"]["initContainerStatuses"] = [{"name": "m", "state": {"waiting": waiting}}]
    problem = pod_problem(thing)
    assert problem is not None
    assert (problem.reason, problem.pool) == (told, "cpu")


def test_a_pod_that_is_starting_or_going_is_no_problem() -> None:
    thing = pod(ready=False)
    waiting = {"reason": "PodInitializing"}
    thing["status"]["containerStatuses"] = [{"name": "m", "state": {"waiting": waiting}}]
    assert pod_problem(thing) is None
    going = pod(ready=False, deletionTimestamp="2026-01-01T00:02:00Z")
    waiting = {"reason": "CrashLoopBackOff"}
    going["status"]["containerStatuses"] = [{"name": "m", "state": {"waiting": waiting}}]
    assert pod_problem(going) is None


def test_pods_that_a_quota_keeps_away_are_told() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    problem = deployment_problem(deployment(conditions=[condition]), "cpu")
    assert problem is not None
    assert (problem.pool, problem.reason) == ("cpu", "QuotaExceeded")
