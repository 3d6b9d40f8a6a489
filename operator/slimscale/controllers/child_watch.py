"""Watches Deployments and pods of all SlimInferences, by our label, and wakes their owners."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from slimscale.api.names import ANNOTATION_OWNER, LABEL_INFERENCE
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.pod_watch import fingerprint
from slimscale.controllers.queue import Key
from slimscale.controllers.watch_loop import WatchRequest, follow
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["ChildWatches", "owner_key"]

_KINDS = (("apps/v1", "deployments"), ("v1", "pods"), ("v1", "services"), ("v1", "configmaps"))


def owner_key(thing: Json) -> Key | None:
    """The SlimInference that a child or a pod names as its owner."""
    metadata: Json = thing.get("metadata") or {}
    name = (metadata.get("annotations") or {}).get(ANNOTATION_OWNER)
    return (str(metadata.get("namespace", "")), str(name)) if name else None


def _state(plural: str, thing: Json) -> Any:
    """What a reconcile depends on: of a pod what decides whether it serves, else the spec."""
    if plural == "pods":
        waiting = [
            ((entry.get("state") or {}).get("waiting") or {}).get("reason")
            for part in ("initContainerStatuses", "containerStatuses")
            for entry in (thing.get("status") or {}).get(part) or []
        ]
        return fingerprint(thing), tuple(waiting)
    metadata: Json = thing.get("metadata") or {}
    status: Json = thing.get("status") or {}
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        "deletionTimestamp" in metadata,
        metadata.get("labels"),
        metadata.get("annotations"),
        thing.get("data"),
        status.get("readyReplicas"),
        status.get("updatedReplicas"),
    )


class ChildWatches:
    """One watch a kind, and a namespace where the operator is told which."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespaces: tuple[str, ...],
        wake: Callable[[Key], None],
        heartbeat: Heartbeat,
        rng: Random,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._wake = wake
        self._heartbeat = heartbeat
        self._rng = rng

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for version, plural in _KINDS:
                for namespace in self._namespaces or (None,):
                    group.create_task(self._follow(version, plural, namespace))

    async def _follow(self, version: str, plural: str, namespace: str | None) -> None:
        seen: dict[str, Any] = {}

        def told(thing: Json, *, gone: bool = False) -> None:
            uid = str(thing["metadata"].get("uid", ""))
            fresh = None if gone else _state(plural, thing)
            if seen.get(uid) != fresh:
                if gone:
                    seen.pop(uid, None)
                else:
                    seen[uid] = fresh
                key = owner_key(thing)
                if key is not None:
                    self._wake(key)

        def listed(items: list[Json]) -> None:
            # What has gone meanwhile is found by the next regular look at its owner.
            present = {str(thing["metadata"].get("uid", "")) for thing in items}
            for uid in set(seen) - present:
                del seen[uid]
            for thing in items:
                told(thing)

        request = WatchRequest(
            name=f"{plural} of SlimInferences" + (f" in {namespace}" if namespace else ""),
            path=collection(version, plural, namespace),
            label_selector=LABEL_INFERENCE,
            on_list=listed,
            on_event=lambda kind, thing: told(thing, gone=kind == "DELETED"),
        )
        await follow(self._client, request, heartbeat=self._heartbeat, rng=self._rng)
