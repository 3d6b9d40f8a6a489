"""CPU and memory out of raw container objects."""

from collections.abc import Mapping
from typing import Any

from slimscale.api.quantity import parse_millicores, parse_quantity
from slimscale.domain.observation import ContainerResources
from slimscale.kubeapi.ports import Json

__all__ = ["container_resources", "cpu_request_millicores", "pod_cpu_request_millicores"]


def container_resources(resources: Mapping[str, Any] | None) -> ContainerResources:
    """From a `resources` object with requests and limits. A quantity that is none reads as absent."""
    requests = (resources or {}).get("requests") or {}
    limits = (resources or {}).get("limits") or {}
    return ContainerResources(
        cpu_request_millicores=_millicores(requests.get("cpu")),
        cpu_limit_millicores=_millicores(limits.get("cpu")),
        memory_request_bytes=_whole(requests.get("memory")),
        memory_limit_bytes=_whole(limits.get("memory")),
    )


def cpu_request_millicores(container: Json) -> int:
    """What the scheduler counts for one container: its request, else its limit, else nothing."""
    resources = container_resources(container.get("resources"))
    if resources.cpu_request_millicores is not None:
        return resources.cpu_request_millicores
    return resources.cpu_limit_millicores or 0


def pod_cpu_request_millicores(pod: Json) -> int:
    """What a pod takes of its node, as the scheduler counts it.

    The larger of spec and allocated, since both may be in use during a resize; init containers
    run one after another, those with restartPolicy Always stay; plus the pod's overhead.
    """
    spec: Json = pod.get("spec") or {}
    status: Json = pod.get("status") or {}
    allocated = {
        str(entry.get("name", "")): max(
            _millicores((entry.get("allocatedResources") or {}).get("cpu")) or 0,
            container_resources(entry.get("resources")).cpu_request_millicores or 0,
        )
        for entry in [
            *(status.get("containerStatuses") or []),
            *(status.get("initContainerStatuses") or []),
        ]
    }

    def used(container: Json) -> int:
        return max(cpu_request_millicores(container), allocated.get(container.get("name", ""), 0))

    running = sum(used(container) for container in spec.get("containers") or [])
    sidecars = 0
    init_peak = 0
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars += used(container)
        else:
            init_peak = max(init_peak, sidecars + used(container))
    pod_level = container_resources(spec.get("resources")).cpu_request_millicores
    overhead = _millicores((spec.get("overhead") or {}).get("cpu")) or 0
    return (pod_level if pod_level is not None else max(running + sidecars, init_peak)) + overhead


def _millicores(quantity: Any) -> int | None:
    try:
        return None if quantity is None else parse_millicores(quantity)
    except ValueError:
        return None


def _whole(quantity: Any) -> int | None:
    try:
        return None if quantity is None else int(parse_quantity(quantity))
    except ValueError:
        return None
