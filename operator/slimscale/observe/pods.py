"""A pod's raw JSON to what a decision needs of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slimscale.api.names import (
    ANNOTATION_INJECTED,
    ANNOTATION_KEPT_ENV,
    ANNOTATION_THREADS,
    PODINFO_VOLUME,
)
from slimscale.api.simworkload import MAX_THREADS
from slimscale.domain.containers import container_named, lasting_containers
from slimscale.domain.observation import (
    ContainerResources,
    PodObservation,
    QosClass,
    ResizeCondition,
    ResizeState,
)
from slimscale.kubeapi.ports import Json
from slimscale.observe.resources import container_resources, cpu_request_millicores

__all__ = ["observe_pod", "parse_time"]

_KEPT_ENV_LIMIT = 32


def parse_time(text: Any) -> float | None:
    """RFC 3339 to seconds since the epoch."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def observe_pod(pod: Json, *, container: str) -> PodObservation:
    """container is the resolved name, of an app container or a native sidecar; samples are joined
    by the observer."""
    metadata: Json = pod.get("metadata") or {}
    spec: Json = pod.get("spec") or {}
    status: Json = pod.get("status") or {}
    annotations: Mapping[str, Any] = metadata.get("annotations") or {}
    lasting = lasting_containers(spec)
    named = container_named(lasting, container)
    named_status = container_named(
        [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])],
        container,
    )
    others = [other for other in lasting if other.get("name") != container]
    reported = named_status.get("resources")
    return PodObservation(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        node=str(spec.get("nodeName", "")),
        phase=str(status.get("phase", "Unknown")),
        ready=_condition(status, "Ready").get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        created_at_seconds=parse_time(metadata.get("creationTimestamp")) or 0.0,
        qos_class=_qos_class(status),
        resource_version=str(metadata.get("resourceVersion", "")),
        spec_resources=container_resources(named.get("resources")),
        applied_resources=container_resources(reported) if reported else None,
        other_cpu_request_millicores=sum(cpu_request_millicores(other) for other in others),
        other_containers_guaranteed=all(_is_guaranteed(other) for other in others),
        resize=_resize(status),
        resize_restarts_container=any(
            policy.get("resourceName") == "cpu" and policy.get("restartPolicy") != "NotRequired"
            for policy in named.get("resizePolicy") or []
        ),
        restart_count=int(named_status.get("restartCount", 0)),
        last_restart_seconds=_last_restart(named_status),
        crash_looping=_waiting_reason(named_status) == "CrashLoopBackOff",
        desired_threads=_threads(annotations.get(ANNOTATION_THREADS)),
        has_live_channel=_has_live_channel(spec, named),
        kept_env=_kept_env(annotations, container),
    )


def _condition(status: Json, kind: str) -> Json:
    for condition in status.get("conditions") or []:
        if isinstance(condition, dict) and condition.get("type") == kind:
            return condition
    return {}


def _qos_class(status: Json) -> QosClass:
    try:
        return QosClass(status.get("qosClass", ""))
    except ValueError:
        return QosClass.BURSTABLE


def _is_guaranteed(container: Json) -> bool:
    resources: ContainerResources = container_resources(container.get("resources"))
    cpu, memory = resources.cpu_limit_millicores, resources.memory_limit_bytes
    # A request that is left out equals the limit.
    return (
        cpu is not None
        and memory is not None
        and resources.cpu_request_millicores in (None, cpu)
        and resources.memory_request_bytes in (None, memory)
    )


def _resize(status: Json) -> ResizeCondition:
    pending = _condition(status, "PodResizePending")
    if pending.get("status") == "True":
        reason = pending.get("reason")
        state = ResizeState.INFEASIBLE if reason == "Infeasible" else ResizeState.DEFERRED
        return _resize_condition(state, pending)
    progress = _condition(status, "PodResizeInProgress")
    if progress.get("status") == "True":
        failed = progress.get("reason") == "Error"
        return _resize_condition(ResizeState.ERROR if failed else ResizeState.IN_PROGRESS, progress)
    try:  # up to Kubernetes 1.32
        return ResizeCondition(state=ResizeState(status.get("resize") or "None"))
    except ValueError:
        return ResizeCondition()


def _resize_condition(state: ResizeState, condition: Json) -> ResizeCondition:
    return ResizeCondition(
        state=state,
        message=str(condition.get("message", ""))[:512],
        since_seconds=parse_time(condition.get("lastTransitionTime")),
    )


def _last_restart(container_status: Json) -> float | None:
    if not container_status.get("restartCount"):
        return None
    running = (container_status.get("state") or {}).get("running") or {}
    ended = (container_status.get("lastState") or {}).get("terminated") or {}
    return parse_time(running.get("startedAt")) or parse_time(ended.get("finishedAt"))


def _waiting_reason(container_status: Json) -> str:
    waiting = (container_status.get("state") or {}).get("waiting") or {}
    return str(waiting.get("reason", ""))


def _threads(annotation: Any) -> int | None:
    if not isinstance(annotation, str) or not annotation.isascii() or not annotation.isdigit():
        return None
    threads = int(annotation) if len(annotation) <= 6 else 0
    return threads if 1 <= threads <= MAX_THREADS else None


def _has_live_channel(spec: Json, named: Json) -> bool:
    """The container mounts a downward API volume that shows the thread annotation.

    By the webhook's volume name or by what the volume holds, since users may write it themselves.
    """
    mounted = {mount.get("name") for mount in named.get("volumeMounts") or []}
    for volume in spec.get("volumes") or []:
        if volume.get("name") not in mounted:
            continue
        if volume.get("name") == PODINFO_VOLUME:
            return True
        for item in (volume.get("downwardAPI") or {}).get("items") or []:
            path = (item.get("fieldRef") or {}).get("fieldPath", "")
            if path in ("metadata.annotations", f"metadata.annotations['{ANNOTATION_THREADS}']"):
                return True
    return False


def _kept_env(annotations: Mapping[str, Any], container: str) -> tuple[str, ...]:
    if annotations.get(ANNOTATION_INJECTED, container) != container:
        return ()
    names = str(annotations.get(ANNOTATION_KEPT_ENV, "")).split(",")
    valid = (name.strip() for name in names)
    return tuple(n for n in valid if n.isidentifier() and n.isascii())[:_KEPT_ENV_LIMIT]
