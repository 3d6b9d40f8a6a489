"""The target: which object, which container, which pods, and whether it is rolling."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slimscale.api.conditions import Reason
from slimscale.api.names import FIELD_MANAGER, GROUP, SLIMINFERENCE_KIND
from slimscale.api.simworkload import SimWorkloadSpec, TargetRef
from slimscale.domain.containers import is_native_sidecar, lasting_containers
from slimscale.domain.observation import TargetObservation
from slimscale.kubeapi.ports import Json
from slimscale.observe.resources import container_resources

__all__ = [
    "TARGET_PLURALS",
    "TargetUnresolved",
    "belongs_to_target",
    "observe_target",
    "selector_text",
]

TARGET_PLURALS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
    "DaemonSet": "daemonsets",
}
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_OPERATORS = {"In": "in", "NotIn": "notin"}
_JAVA_COUNT = re.compile(r"-XX:ActiveProcessorCount=[0-9]{1,4}")


class TargetUnresolved(Exception):
    """Why there is no target to act on: a reason of the API and a message for users."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def observe_target(workload: Json, spec: SimWorkloadSpec) -> TargetObservation:
    """Read a Deployment, StatefulSet, ReplicaSet or DaemonSet as raw JSON.

    Raises:
        TargetUnresolved: the container is missing or ambiguous, or the selector is empty.
    """
    metadata: Json = workload.get("metadata") or {}
    body: Json = workload.get("spec") or {}
    template: Json = body.get("template") or {}
    selector = selector_text(body.get("selector") or {})
    if not selector:
        raise TargetUnresolved(
            Reason.TARGET_NOT_FOUND,
            f"{spec.target_ref.kind} {spec.target_ref.name} selects no labels; every pod of the"
            " namespace would match",
        )
    owner = _template_owner(metadata)
    container = _resolve_container(template, spec, owner)
    in_progress, failed = rollout_state(spec.target_ref.kind, workload)
    return TargetObservation(
        kind=spec.target_ref.kind,
        name=spec.target_ref.name,
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        selector=selector,
        desired_replicas=_desired_replicas(spec.target_ref.kind, workload),
        container=str(container["name"]),
        template_resources=container_resources(container.get("resources")),
        template_env=_plain_env(container.get("env") or []),
        template_opaque_env=_opaque_env(container.get("env") or []),
        rollout_in_progress=in_progress,
        rollout_failed=failed,
        template_managed_fields=other_managers(
            metadata.get("managedFields") or [], str(container["name"]), spec.threads.env
        ),
        native_sidecar=is_native_sidecar(container),
        template_owner=owner,
    )


def selector_text(selector: Json) -> str:
    """A LabelSelector as the API server takes it in a query; matchExpressions included."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, operator = expression.get("key", ""), expression.get("operator", "")
        values = ",".join(expression.get("values") or [])
        if operator in _OPERATORS:
            terms.append(f"{key} {_OPERATORS[operator]} ({values})")
        elif operator == "Exists":
            terms.append(key)
        elif operator == "DoesNotExist":
            terms.append(f"!{key}")
        else:
            raise TargetUnresolved(
                Reason.TARGET_NOT_FOUND, "the target's selector has an operator that is unknown"
            )
    return ",".join(terms)


def _template_owner(metadata: Json) -> str:
    """The SlimInference whose child this is: its controller changes everything else back."""
    for owner in metadata.get("ownerReferences") or []:
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if owner.get("kind") == SLIMINFERENCE_KIND and group == GROUP:
            return f"{SLIMINFERENCE_KIND} {owner.get('name', '')}"
    return ""


def _resolve_container(template: Json, spec: SimWorkloadSpec, owner: str) -> Json:
    pod: Json = template.get("spec") or {}
    only: list[Json] = pod.get("containers") or []
    containers = lasting_containers(pod)
    names = [str(container.get("name", "")) for container in containers]
    wanted = spec.container_name
    # A mesh puts sidecars into pods with one container, which is meant all the same; in a pod of
    # a SlimInference it is the sidecar that computes.
    if not wanted and len(only) == 1 and not owner:
        return only[0]
    if not wanted:
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        wanted = str(annotations.get(_DEFAULT_CONTAINER, ""))
    if not wanted:
        raise TargetUnresolved(
            Reason.CONTAINER_AMBIGUOUS,
            f"the pods have the containers {', '.join(names)}; name one in spec.containerName",
        )
    if wanted not in names:
        raise TargetUnresolved(
            Reason.CONTAINER_NOT_FOUND,
            f"there is no container {wanted}; write one of {', '.join(names)} in spec.containerName",
        )
    return containers[names.index(wanted)]


def _plain_env(env: Iterable[Json]) -> dict[str, str]:
    """Values that stand in the template itself and look like what we write: short and plain.

    Only numbers and short words matter (thread variables); anything else may be a password, and
    this goes into the decision log.
    """
    return {
        str(entry.get("name", "")): str(entry["value"])
        for entry in env
        if "value" in entry and _is_thread_like(str(entry["value"]))
    }


def _opaque_env(env: Iterable[Json]) -> tuple[str, ...]:
    """Names of the rest: a user's lists, options and references, which no rollout may replace."""
    names = {str(entry.get("name", "")) for entry in env}
    return tuple(sorted(names - set(_plain_env(env))))


def _is_thread_like(value: str) -> bool:
    return (len(value) <= 4 and value.isdigit()) or _JAVA_COUNT.fullmatch(value) is not None


def _desired_replicas(kind: str, workload: Json) -> int:
    if kind == "DaemonSet":
        return int((workload.get("status") or {}).get("desiredNumberScheduled", 0))
    return int((workload.get("spec") or {}).get("replicas", 1))


def rollout_state(kind: str, workload: Json) -> tuple[bool, bool]:
    """(in progress, failed), as `kubectl rollout status` would see it.

    Pods that the user's strategy leaves to a hand or to a later step are not waited for.
    """
    generation = int((workload.get("metadata") or {}).get("generation", 0))
    status: Json = workload.get("status") or {}
    unseen = int(status.get("observedGeneration", 0)) < generation
    wanted = _desired_replicas(kind, workload)
    strategy: Json = (workload.get("spec") or {}).get("updateStrategy") or {}
    if kind in ("StatefulSet", "DaemonSet") and strategy.get("type") == "OnDelete":
        return unseen, False
    match kind:
        case "Deployment":
            updated = int(status.get("updatedReplicas", 0))
            failed = any(
                condition.get("type") == "Progressing"
                and condition.get("status") == "False"
                and condition.get("reason") == "ProgressDeadlineExceeded"
                for condition in status.get("conditions") or []
            )
            # More pods than updated ones: old ones are still going.
            moving = unseen or updated < wanted or int(status.get("replicas", 0)) > updated
            return moving and not failed, failed and not unseen
        case "StatefulSet":
            moving = status.get("updateRevision") not in (None, status.get("currentRevision"))
            kept = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
            behind = int(status.get("updatedReplicas", 0)) < wanted - kept
            return unseen or (moving and behind), False
        case "DaemonSet":
            return unseen or int(status.get("updatedNumberScheduled", 0)) < wanted, False
        case _:
            return False, False


def other_managers(
    managed_fields: Iterable[Json], container: str, variables: Iterable[str]
) -> tuple[str, ...]:
    """Field managers, other than us, that own CPU or thread variables of the container."""
    wanted = {f'k:{{"name":"{name}"}}' for name in variables}
    found: set[str] = set()
    for entry in managed_fields:
        manager = str(entry.get("manager", ""))
        if manager == FIELD_MANAGER or entry.get("subresource"):
            continue
        template = _walk(entry.get("fieldsV1") or {}, ("f:spec", "f:template", "f:spec"))
        key = f'k:{{"name":"{container}"}}'
        fields = {
            **_walk(template, ("f:containers", key)),
            **_walk(template, ("f:initContainers", key)),
        }
        resources = fields.get("f:resources") or {}
        owns_cpu = any(
            "f:cpu" in (resources.get(part) or {}) for part in ("f:requests", "f:limits")
        )
        owned = set(fields.get("f:env") or {})
        if owns_cpu or owned & wanted or any(_is_thread_variable(key) for key in owned):
            found.add(manager)
    return tuple(sorted(found))


def _is_thread_variable(key: str) -> bool:
    return any(word in key for word in ("NUM_THREADS", "MAXPROCS", "_NUM_", "_THREADS"))


def _walk(fields: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    for part in path:
        step = fields.get(part)
        if not isinstance(step, dict):
            return {}
        fields = step
    return fields


def belongs_to_target(pod: Json, target: TargetRef, target_uid: str) -> bool:
    """The pod's controller is the target, or a ReplicaSet of that Deployment.

    Two workloads may share labels by mistake: a pod that the target does not own is not ours.
    """
    metadata: Json = pod.get("metadata") or {}
    owners = [o for o in metadata.get("ownerReferences") or [] if o.get("controller")]
    if not owners:
        return False
    owner = owners[0]
    if target.kind != "Deployment":
        return bool(owner.get("kind") == target.kind and owner.get("uid") == target_uid)
    template_hash = (metadata.get("labels") or {}).get("pod-template-hash", "")
    name = f"{target.name}-{template_hash}"
    return bool(owner.get("kind") == "ReplicaSet" and owner.get("name") == name)
