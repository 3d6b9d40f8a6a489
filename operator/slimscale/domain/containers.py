"""Which containers of a pod run for as long as the pod does: those can be named and resized.

Beside the app containers these are native sidecars: init containers with restartPolicy Always.
Kubernetes resizes both in place; other init containers and ephemeral containers never.
"""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["container_named", "is_native_sidecar", "lasting_containers", "native_sidecars"]

Json = dict[str, Any]


def is_native_sidecar(container: Mapping[str, Any]) -> bool:
    """`container` is an entry of initContainers."""
    return container.get("restartPolicy") == "Always"


def native_sidecars(spec: Mapping[str, Any]) -> list[Json]:
    """The native sidecars of a pod's spec, in their order."""
    return [c for c in spec.get("initContainers") or [] if is_native_sidecar(c)]


def lasting_containers(spec: Mapping[str, Any]) -> list[Json]:
    """App containers first, then native sidecars. Names are unique over both."""
    return [*(spec.get("containers") or []), *native_sidecars(spec)]


def container_named(containers: Iterable[Any], name: str) -> Json:
    """The entry with this name; empty when there is none."""
    for container in containers:
        if isinstance(container, dict) and container.get("name") == name:
            return container
    return {}
