"""What the nodes of the target's pods could still give.

Needs `get` on nodes and `list` on the pods of all namespaces. Where the operator is installed for
some namespaces only, it has neither: the answer is then no room known, asked again rarely.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slimscale.api.quantity import parse_millicores
from slimscale.domain.clock import Clock
from slimscale.domain.observation import NodeRoom
from slimscale.exceptions import NotPermitted, Unavailable
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.resources import pod_cpu_request_millicores

__all__ = ["NodeReader"]

_REFUSED_AGAIN_SECONDS = 600.0
_CPU_MANAGER_LABEL = "cpumanager"
"""A label that some cluster set-ups (KubeVirt) put on nodes with the static CPU manager."""


@dataclass(frozen=True, slots=True)
class _Known:
    at_seconds: float
    room: NodeRoom | None


class NodeReader:
    def __init__(self, client: KubeClient, clock: Clock, *, max_age_seconds: float = 15.0) -> None:
        self._client = client
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._known: dict[str, _Known] = {}
        self._refused_until_seconds = 0.0

    async def read(self, names: Iterable[str]) -> dict[str, NodeRoom]:
        """Room by node name; nodes that cannot be read are left out."""
        rooms: dict[str, NodeRoom] = {}
        for name in sorted({name for name in names if name}):
            now = self._clock.monotonic_seconds()
            known = self._known.get(name)
            if known is None or now - known.at_seconds > self._max_age_seconds:
                if now < self._refused_until_seconds:
                    continue
                known = _Known(now, await self._read_node(name, now, known))
                self._known[name] = known
            if known.room is not None:
                rooms[name] = known.room
        self._forget_old()
        return rooms

    async def _read_node(
        self, name: str, now_seconds: float, before: _Known | None
    ) -> NodeRoom | None:
        try:
            node = await self._client.get(item("v1", "nodes", name))
            pods = await self._client.list(
                collection("v1", "pods"), field_selector=f"spec.nodeName={name}"
            )
        except NotPermitted:
            self._refused_until_seconds = now_seconds + _REFUSED_AGAIN_SECONDS
            return None
        except Unavailable:
            return before.room if before is not None else None
        return _room(name, node, pods.items) if node is not None else None

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic_seconds() - 10 * self._max_age_seconds
        self._known = {n: k for n, k in self._known.items() if k.at_seconds >= oldest}


def _room(name: str, node: Json, pods: Iterable[Json]) -> NodeRoom | None:
    allocatable = ((node.get("status") or {}).get("allocatable") or {}).get("cpu")
    if allocatable is None:
        return None
    labels = (node.get("metadata") or {}).get("labels") or {}
    return NodeRoom(
        name=name,
        allocatable_millicores=parse_millicores(allocatable),
        requested_millicores=sum(
            pod_cpu_request_millicores(pod)
            for pod in pods
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ),
        static_cpu_manager=True if labels.get(_CPU_MANAGER_LABEL) == "true" else None,
    )
