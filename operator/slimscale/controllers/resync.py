"""Every so often all objects are listed and woken: what a watch missed is made good.

The list is also the audit of kopf's own watch, whose bookmarks we do not see: an object whose
resourceVersion was in two lists, and of which the watch has still not told, means that the watch is
deaf. Our heartbeat then says so, and the liveness probe ends the process.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random

from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.queue import Backoff, Key
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["WATCH_NAME", "Resync", "WatchAudit", "key_of"]

WATCH_NAME = SIMWORKLOAD_PLURAL
"""Of kopf's watch of SimWorkloads, in the heartbeat; another kind's has its plural too."""
_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first_seconds=1.0, cap_seconds=30.0)


def key_of(thing: Json) -> Key:
    metadata = thing["metadata"]
    return str(metadata["namespace"]), str(metadata["name"])


class WatchAudit:
    """Compares what lists show with what the watch told."""

    def __init__(self, heartbeat: Heartbeat, watch: str = WATCH_NAME) -> None:
        self._heartbeat = heartbeat
        self._watch = watch
        self._heard: dict[Key, str] = {}
        self._missing: dict[Key, str] = {}

    def heard(self, thing: Json, *, deleted: bool = False) -> None:
        """The watch told of an object."""
        self._heartbeat.beat(self._watch)
        if deleted:
            self._heard.pop(key_of(thing), None)
        else:
            self._heard[key_of(thing)] = str(thing["metadata"].get("resourceVersion", ""))

    def listed(self, items: Iterable[Json]) -> None:
        """A list was read. The watch counts as heard unless it has missed the same thing twice."""
        missing: dict[Key, str] = {}
        for thing in items:
            version = str(thing["metadata"].get("resourceVersion", ""))
            if self._heard.get(key_of(thing)) != version:
                missing[key_of(thing)] = version
        deaf = any(self._missing.get(key) == version for key, version in missing.items())
        self._missing = missing
        if deaf:
            _log.warning("the watch has not told of a change that lists show")
        else:
            self._heartbeat.beat(self._watch)


class Resync:
    def __init__(
        self,
        client: KubeClient,
        *,
        namespaces: tuple[str, ...],
        wake: Callable[[Key], None],
        audit: WatchAudit,
        heartbeat: Heartbeat,
        rng: Random,
        interval_seconds: float = 60.0,
        on_first: Callable[[list[Json]], None] = lambda _items: None,
        plural: str = SIMWORKLOAD_PLURAL,
    ) -> None:
        """namespaces empty: all. on_first gets the first list, before anything is woken.

        plural: of the custom resource, which names its watch too.
        """
        self._client = client
        self._namespaces = namespaces
        self._wake = wake
        self._audit = audit
        self._heartbeat = heartbeat
        self._rng = rng
        self._interval_seconds = interval_seconds
        self._on_first = on_first
        self._plural = plural
        self._first = True
        self._known: set[Key] = set()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                await self.once()
                failures = 0
            except SlimError as error:
                failures += 1
                self._heartbeat.outage(self._plural)
                _log.warning("cannot list", extra={"resource": self._plural, "error": str(error)})
            pause = (
                _BACKOFF.pause_seconds(failures, self._rng) if failures else self._interval_seconds
            )
            await asyncio.sleep(pause)

    async def once(self) -> None:
        items = await self._list()
        if self._first:
            self._on_first(items)
            self._first = False
            self._heartbeat.started()
        self._audit.listed(items)
        present = {key_of(thing) for thing in items}
        for key in sorted(present | self._known):  # those that are gone too: they are released
            self._wake(key)
        self._known = present

    async def _list(self) -> list[Json]:
        items: list[Json] = []
        for namespace in self._namespaces or (None,):
            path = collection(API_VERSION, self._plural, namespace)
            items.extend((await self._client.list(path)).items)
        return items
