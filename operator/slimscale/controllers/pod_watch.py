"""Watches the pods of each target, and wakes its SimWorkload when one changes in what matters."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slimscale.api.names import GROUP
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.queue import Key
from slimscale.controllers.watch_loop import WatchRequest, follow
from slimscale.domain.containers import lasting_containers
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["PodWatches", "fingerprint"]

_RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


def fingerprint(pod: Json) -> tuple[Any, ...]:
    """What a decision or a plan depends on. Probe times, IPs of others, heartbeats are noise."""
    metadata: Json = pod.get("metadata") or {}
    status: Json = pod.get("status") or {}
    conditions = {
        str(condition.get("type")): (condition.get("status"), condition.get("reason"))
        for condition in status.get("conditions") or []
        if condition.get("type") in ("Ready", *_RESIZE_CONDITIONS)
    }
    return (
        metadata.get("uid"),
        "deletionTimestamp" in metadata,
        tuple(
            sorted(
                (key, value)
                for key, value in (metadata.get("annotations") or {}).items()
                if key.startswith(f"{GROUP}/")
            )
        ),
        tuple(_resources(entry) for entry in lasting_containers(pod.get("spec") or {})),
        tuple(
            (*_resources(entry), entry.get("restartCount"))
            for part in ("containerStatuses", "initContainerStatuses")
            for entry in status.get(part) or []
        ),
        tuple(sorted(conditions.items())),
        status.get("resize"),
        status.get("phase"),
        status.get("podIP"),
    )


def _resources(container: Json) -> tuple[Any, ...]:
    resources = container.get("resources") or {}
    return (
        container.get("name"),
        *(tuple(sorted((resources.get(part) or {}).items())) for part in ("requests", "limits")),
    )


@dataclass(slots=True)
class _Watch:
    selector: str
    task: asyncio.Task[None]
    seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)


class PodWatches:
    """One watch for each SimWorkload, with its target's own selector."""

    def __init__(
        self,
        client: KubeClient,
        *,
        wake: Callable[[Key], None],
        heartbeat: Heartbeat,
        rng: Random,
    ) -> None:
        self._client = client
        self._wake = wake
        self._heartbeat = heartbeat
        self._rng = rng
        self._watches: dict[Key, _Watch] = {}

    def ensure(self, key: Key, selector: str) -> None:
        """Watch the pods with this selector; another selector replaces the watch."""
        known = self._watches.get(key)
        if known is not None and known.selector == selector and not known.task.done():
            return
        self.drop(key)
        seen: dict[str, tuple[Any, ...]] = {}
        request = WatchRequest(
            name=f"pods of {key[0]}/{key[1]}",
            path=collection("v1", "pods", key[0]),
            label_selector=selector,
            on_list=lambda items: self._listed(key, seen, items),
            on_event=lambda kind, pod: self._changed(key, seen, kind, pod),
        )
        task = asyncio.create_task(
            follow(self._client, request, heartbeat=self._heartbeat, rng=self._rng),
            name=request.name,
        )
        self._watches[key] = _Watch(selector, task, seen)

    def drop(self, key: Key) -> None:
        known = self._watches.pop(key, None)
        if known is not None:
            known.task.cancel()

    async def close(self) -> None:
        tasks = [watch.task for watch in self._watches.values()]
        for key in list(self._watches):
            self.drop(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listed(self, key: Key, seen: dict[str, tuple[Any, ...]], items: list[Json]) -> None:
        fresh = {str(pod["metadata"]["uid"]): fingerprint(pod) for pod in items}
        changed = fresh != seen
        seen.clear()
        seen.update(fresh)
        if changed:  # the first time too: pods may have changed since the reconcile listed them
            self._wake(key)

    def _changed(self, key: Key, seen: dict[str, tuple[Any, ...]], kind: str, pod: Json) -> None:
        uid = str((pod.get("metadata") or {}).get("uid", ""))
        if kind == "DELETED":
            if seen.pop(uid, None) is not None:
                self._wake(key)
            return
        fresh = fingerprint(pod)
        if seen.get(uid) != fresh:
            seen[uid] = fresh
            self._wake(key)
