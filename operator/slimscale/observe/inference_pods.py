"""Pods and Deployments of a SlimInference, as scaling and the status see them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from slimscale.api.names import ANNOTATION_DELETION_COST, FIELD_MANAGER_INFERENCE, LABEL_POOL
from slimscale.domain.inference import PodProblem, TelemetryOfPod
from slimscale.domain.scaling import PoolObservation, PoolPod
from slimscale.kubeapi.ports import Json
from slimscale.observe.pods import parse_time

__all__ = ["deployment_problem", "observe_pool", "observe_pool_pod", "pod_problem", "pool_of"]
__all__ += ["replicas_managers"]

_PULL = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_CRASH = frozenset({"CrashLoopBackOff", "RunContainerError", "CreateContainerError"})
_CONFIG = frozenset({"CreateContainerConfigError"})
_MESSAGE_LIMIT = 256


def pool_of(pod: Json) -> str:
    """The pool that a pod belongs to; empty for the router's."""
    return str((pod["metadata"].get("labels") or {}).get(LABEL_POOL, ""))


def observe_pool(
    name: str,
    deployment: Json | None,
    pods: Iterable[Json],
    *,
    telemetry: Mapping[str, TelemetryOfPod],
    min_replicas: int,
) -> PoolObservation:
    """One pool. A Deployment that is not there yet is to start with the fewest pods."""
    spec: Json = (deployment or {}).get("spec") or {}
    status: Json = (deployment or {}).get("status") or {}
    replicas = int(spec.get("replicas", 1)) if deployment is not None else min_replicas
    return PoolObservation(
        name=name,
        spec_replicas=replicas,
        pods=tuple(observe_pool_pod(pod, telemetry.get(_name(pod))) for pod in pods),
        rollout_in_progress=deployment is not None and _is_rolling(deployment, status),
        replicas_managers=replicas_managers(deployment) if deployment is not None else (),
    )


def observe_pool_pod(pod: Json, heard: TelemetryOfPod | None) -> PoolPod:
    metadata: Json = pod["metadata"]
    conditions = _conditions(pod)
    ready = conditions.get("Ready") or {}
    scheduled = conditions.get("PodScheduled") or {}
    is_ready = ready.get("status") == "True"
    changed = parse_time(ready.get("lastTransitionTime"))
    common: dict[str, Any] = {}
    if heard is not None:
        common = {"telemetry": heard.telemetry, "telemetry_age_seconds": heard.age_seconds}
        common["device_lost"] = heard.telemetry.device_lost
    return PoolPod(
        name=_name(pod),
        ready=is_ready,
        created_at_seconds=parse_time(metadata.get("creationTimestamp")) or 0.0,
        ready_since_seconds=changed if is_ready else None,
        unready_since_seconds=changed if ready.get("status") == "False" else None,
        unschedulable=scheduled.get("status") == "False"
        and scheduled.get("reason") == "Unschedulable",
        terminating="deletionTimestamp" in metadata,
        deletion_cost=_integer((metadata.get("annotations") or {}).get(ANNOTATION_DELETION_COST)),
        **common,
    )


def replicas_managers(deployment: Json) -> tuple[str, ...]:
    """Field managers other than ours that own `.spec.replicas`."""
    found = set()
    for entry in deployment["metadata"].get("managedFields") or []:
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        manager = str(entry.get("manager", ""))
        if "f:replicas" in fields and manager != FIELD_MANAGER_INFERENCE:
            found.add(manager)
    return tuple(sorted(found))


def pod_problem(pod: Json) -> PodProblem | None:
    """Why a pod does not serve, in the words of the scheduler or the kubelet; None: it may yet."""
    if "deletionTimestamp" in pod["metadata"]:
        return None
    status: Json = pod.get("status") or {}
    scheduled = _conditions(pod).get("PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _problem(pod, "Unschedulable", scheduled.get("message"))
    for entry in (*_statuses(status, "init"), *_statuses(status, "")):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        if reason in _PULL | _CRASH | _CONFIG:
            words = waiting.get("message") or reason
            last = (entry.get("lastState") or {}).get("terminated") or {}
            if reason in _CRASH and last:
                words = f"container {entry.get('name')} ended with {last.get('exitCode')}"
            kind = "ImagePullFailed" if reason in _PULL else "CrashLoop"
            return _problem(pod, kind if reason not in _CONFIG else "PodsMissing", words)
    return None


def deployment_problem(deployment: Json, pool: str) -> PodProblem | None:
    """Pods that could not even be created: a quota, a LimitRange, a policy."""
    for condition in (deployment.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            words = str(condition.get("message", ""))[:_MESSAGE_LIMIT]
            quota = "exceeded quota" in words
            return PodProblem("", pool, "QuotaExceeded" if quota else "PodsMissing", words)
    return None


def _problem(pod: Json, reason: str, message: object) -> PodProblem:
    return PodProblem(_name(pod), pool_of(pod), reason, str(message or reason)[:_MESSAGE_LIMIT])


def _is_rolling(deployment: Json, status: Json) -> bool:
    generation = int(deployment["metadata"].get("generation", 0))
    if int(status.get("observedGeneration", 0)) < generation:
        return True
    return int(status.get("updatedReplicas", 0)) < int(status.get("replicas", 0))


def _conditions(pod: Json) -> dict[str, Json]:
    found = (pod.get("status") or {}).get("conditions") or []
    return {str(condition.get("type")): condition for condition in found}


def _statuses(status: Json, part: str) -> list[Json]:
    key = "initContainerStatuses" if part else "containerStatuses"
    return list(status.get(key) or [])


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def _integer(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        return 0
