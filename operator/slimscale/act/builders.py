"""Bodies of the requests that `apply` and the writers send. Pure: plain JSON in, plain JSON out.

A container is only ever named together with the fields that are ours: CPU and variables. Memory,
other containers and finalizers never appear.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from slimscale.act.child_names import memo_name, owner_label
from slimscale.api.names import (
    ANNOTATION_THREADS,
    API_VERSION,
    FIELD_MANAGER,
    LABEL_OWNER,
    SIMWORKLOAD_KIND,
)
from slimscale.api.quantity import format_millicores
from slimscale.domain.plan import PatchTemplate, ResizePod, SetThreads
from slimscale.kubeapi.ports import Json

__all__ = [
    "annotation_patch",
    "event_body",
    "memo_config_map",
    "merge_diff",
    "owner_reference",
    "resize_patch",
    "rfc3339",
    "template_body",
]


def annotation_patch(operation: SetThreads) -> Json:
    """Merge patch of one pod: our annotation and nothing else. The uid fences it."""
    return {
        "metadata": {
            "uid": operation.uid,
            "annotations": {ANNOTATION_THREADS: str(operation.threads)},
        }
    }


def resize_patch(operation: ResizePod) -> Json:
    """Strategic merge patch for pods/resize: CPU of one container, by its name."""
    resources = _cpu(operation.cpu_request_millicores, operation.cpu_limit_millicores)
    container = {"name": operation.container, "resources": resources}
    return {"metadata": {"uid": operation.uid}, "spec": {_list_of(operation): [container]}}


def template_body(operation: PatchTemplate, *, namespace: str) -> Json:
    """Server-side apply of the named container's variables and CPU. With the uid it never creates."""
    container: Json = {
        "name": operation.container,
        "env": [{"name": name, "value": value} for name, value in operation.env],
    }
    resources = _cpu(operation.cpu_request_millicores, operation.cpu_limit_millicores)
    if resources:
        container["resources"] = resources
    return {
        "apiVersion": "apps/v1",
        "kind": operation.kind,
        "metadata": {"name": operation.name, "namespace": namespace, "uid": operation.uid},
        "spec": {"template": {"spec": {_list_of(operation): [container]}}},
    }


def _list_of(operation: ResizePod | PatchTemplate) -> str:
    """Kubernetes takes a native sidecar's CPU where it stands: among the init containers."""
    return "initContainers" if operation.native_sidecar else "containers"


def owner_reference(*, name: str, uid: str) -> Json:
    """To a SimWorkload in the child's own namespace: across namespaces the child would be deleted."""
    return {"apiVersion": API_VERSION, "kind": SIMWORKLOAD_KIND, "name": name, "uid": uid}


def memo_config_map(*, namespace: str, name: str, uid: str, parts: Mapping[str, str]) -> Json:
    """The ConfigMap with what was learned about the SimWorkload `name`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": memo_name(name),
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/managed-by": FIELD_MANAGER,
                LABEL_OWNER: owner_label(name),
            },
            "ownerReferences": [owner_reference(name=name, uid=uid)],
        },
        "data": dict(parts),
    }


def event_body(
    involved: Json, *, kind: str, reason: str, message: str, now_seconds: float, reporter: str
) -> Json:
    """A core/v1 Event about a custom resource of ours. kind: Normal or Warning."""
    metadata: Json = involved["metadata"]
    uid, stamp = str(metadata.get("uid", "")), rfc3339(now_seconds)
    text = json.dumps([uid, kind, reason, message, now_seconds])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{str(metadata['name'])[:200].rstrip('.-')}.{digest}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": involved.get("kind", SIMWORKLOAD_KIND),
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:1024],
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": reporter[:128],
    }


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """The JSON merge patch (RFC 7386) from one object to the other; empty when they are equal."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_diff(before, value)
            if inner:
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as `metav1.Time` writes them."""
    return datetime.fromtimestamp(int(seconds), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cpu(request: int | None, limit: int | None) -> Json:
    resources: Json = {}
    if request is not None:
        resources["requests"] = {"cpu": format_millicores(request)}
    if limit is not None:
        resources["limits"] = {"cpu": format_millicores(limit)}
    return resources
