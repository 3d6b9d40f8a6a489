"""What the creation webhook changes in a pod, as a JSON patch. Pure.

Only the named container is touched, which may be a native sidecar where a SimWorkload names it;
other init containers, sidecars and ephemeral containers never. A user's own value wins and is
reported. Running it twice on one pod changes nothing the second time.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slimscale.act.thread_env import (
    AFFINITY_VARIABLES,
    append_java_option,
    merge_env,
    thread_variables,
    threads_of_a_process,
)
from slimscale.api.names import (
    ANNOTATION_INJECTED,
    ANNOTATION_KEPT_ENV,
    ANNOTATION_THREADS,
    LABEL_INJECT,
    PODINFO_MOUNT,
    PODINFO_VOLUME,
    THREADS_FILE,
    THREADS_FILE_ENV,
)
from slimscale.api.quantity import format_millicores, parse_millicores
from slimscale.domain.containers import is_native_sidecar

__all__ = ["InjectionChoice", "InjectionResult", "inject"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InjectionChoice:
    """What a SimWorkload wants of new pods of its target.

    `set_values` is False in mode Off and while suspended: then only the channel is added, so that
    a later decision can reach the pod without a restart.
    """

    container: str
    set_values: bool = False
    threads: int | None = None
    cpu_request_millicores: int | None = None
    cpu_limit_millicores: int | None = None
    processes_per_pod: int = 1
    extra_env: tuple[str, ...] = ()
    override_user_env: bool = False
    java_tool_options: bool = False


@dataclass(frozen=True, slots=True)
class InjectionResult:
    """JSON patch operations, empty when there is nothing to do, and words for the user."""

    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()


def inject(
    pod: Json, *, choice: InjectionChoice | None, never_namespaces: Sequence[str], namespace: str
) -> InjectionResult:
    """Return the patch for one pod that is being created.

    Args:
        pod: the pod of the AdmissionReview, plain JSON.
        choice: of the SimWorkload whose target owns the pod; None when there is none (yet).
        never_namespaces: kube-system and the operator's own.
        namespace: of the request; the pod's metadata may still lack it.
    """
    metadata = pod.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if labels.get(LABEL_INJECT) != "true" or namespace in never_namespaces:
        return InjectionResult()
    place, warning = _container_place(pod, choice.container if choice else "")
    if place is None:
        return InjectionResult(warnings=(warning,))
    spec = copy.deepcopy(pod["spec"])
    annotations = dict(metadata.get("annotations") or {})
    container = spec[place[0]][place[1]]
    warnings: list[str] = []

    _add_channel(spec, container, warnings)
    annotations[ANNOTATION_INJECTED] = str(container["name"])
    if choice is not None and choice.set_values and choice.threads is not None:
        annotations[ANNOTATION_THREADS] = str(choice.threads)
        kept = _set_variables(container, choice)
        if kept:
            annotations[ANNOTATION_KEPT_ENV] = ",".join(kept)
            warnings.append(f"container {container['name']} keeps its own {', '.join(kept)}")
        if bound := sorted(AFFINITY_VARIABLES & set(kept)):
            warnings.append(
                f"{', '.join(bound)} may bind the pods of a node to the same cores; leave it out"
                " unless the pod has CPUs of its own"
            )
        _set_cpu(container, choice)
    return InjectionResult(
        patch=_operations(pod, spec, annotations, place), warnings=tuple(warnings)
    )


_Place = tuple[str, int]
"""List of the pod's spec and index in it."""


def _container_place(pod: Json, wanted: str) -> tuple[_Place | None, str]:
    spec = pod.get("spec") or {}
    names = [container.get("name", "") for container in spec.get("containers") or []]
    places: dict[str, _Place] = {
        container.get("name", ""): ("initContainers", index)
        for index, container in enumerate(spec.get("initContainers") or [])
        if is_native_sidecar(container)
    } | {name: ("containers", index) for index, name in enumerate(names)}
    if wanted:
        if wanted in places:
            return places[wanted], ""
        return None, f"slimscale: the pod has no container {wanted}; nothing was added"
    already = ((pod.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_INJECTED)
    if already in places:
        return places[already], ""
    if len(names) == 1:
        return ("containers", 0), ""
    return None, (
        f"slimscale: the pod has {len(names)} containers; name one in the annotation"
        f" {ANNOTATION_INJECTED} or in a SimWorkload's spec.containerName; nothing was added"
    )


def _add_channel(spec: Json, container: Json, warnings: list[str]) -> None:
    """The downward API volume that shows the annotation as a file."""
    mounts = container.setdefault("volumeMounts", [])
    if not any(m.get("mountPath") == PODINFO_MOUNT for m in mounts):
        mounts.append({"name": PODINFO_VOLUME, "mountPath": PODINFO_MOUNT, "readOnly": True})
    elif not any(m.get("name") == PODINFO_VOLUME for m in mounts):
        warnings.append(f"the pod mounts a volume of its own at {PODINFO_MOUNT}; it was kept")
        return
    volumes = spec.setdefault("volumes", [])
    if not any(volume.get("name") == PODINFO_VOLUME for volume in volumes):
        field = f"metadata.annotations['{ANNOTATION_THREADS}']"
        item = {"path": "threads", "fieldRef": {"apiVersion": "v1", "fieldPath": field}}
        volumes.append({"name": PODINFO_VOLUME, "downwardAPI": {"items": [item]}})
    env = container.setdefault("env", [])
    if not any(entry.get("name") == THREADS_FILE_ENV for entry in env):
        env.append({"name": THREADS_FILE_ENV, "value": THREADS_FILE})


def _set_variables(container: Json, choice: InjectionChoice) -> list[str]:
    threads = choice.threads or 1
    variables = thread_variables(
        threads, processes_per_pod=choice.processes_per_pod, extra_names=choice.extra_env
    )
    env, kept = merge_env(container.get("env") or [], variables, override=choice.override_user_env)
    each = threads_of_a_process(threads, choice.processes_per_pod)
    container["env"] = append_java_option(env, each) if choice.java_tool_options else env
    return [*kept, *(e["name"] for e in env if e.get("name") in AFFINITY_VARIABLES)]


def _set_cpu(container: Json, choice: InjectionChoice) -> None:
    """Set what the choice gives; a value the container lacks is added only beside a request.

    A container with neither request nor limit stays as it is: adding one would change the QoS
    class that the user chose.
    """
    resources = container.get("resources") or {}
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if "cpu" not in requests and "cpu" not in limits:
        return
    limit, request = choice.cpu_limit_millicores, choice.cpu_request_millicores
    if limit is not None:
        limits["cpu"] = format_millicores(limit)
    if request is not None:
        requests["cpu"] = format_millicores(request)
    if (
        "cpu" in limits
        and "cpu" in requests
        and parse_millicores(requests["cpu"]) > parse_millicores(limits["cpu"])
    ):
        requests["cpu"] = limits["cpu"]
    container["resources"] = {
        **resources,
        **({"requests": requests} if requests else {}),
        **({"limits": limits} if limits else {}),
    }


def _operations(pod: Json, spec: Json, annotations: Json, place: _Place) -> tuple[Json, ...]:
    operations: list[Json] = []
    if annotations != ((pod.get("metadata") or {}).get("annotations") or {}):
        operations.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
    if spec.get("volumes") != pod["spec"].get("volumes"):
        operations.append({"op": "add", "path": "/spec/volumes", "value": spec["volumes"]})
    part, index = place
    container = spec[part][index]
    if container != pod["spec"][part][index]:
        path = f"/spec/{part}/{index}"
        operations.append({"op": "replace", "path": path, "value": container})
    return tuple(operations)
