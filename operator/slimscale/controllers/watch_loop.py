"""List, then watch, for as long as it takes: the one loop behind every watch of our own."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.queue import Backoff
from slimscale.exceptions import NotPermitted, SlimError
from slimscale.kubeapi.ports import Json, KubeClient, WatchExpired

__all__ = ["WatchRequest", "follow"]

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first_seconds=0.5, cap_seconds=30.0)
_NOT_PERMITTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WatchRequest:
    name: str
    """For the heartbeat and the log."""
    path: str
    label_selector: str = ""
    on_list: Callable[[list[Json]], None] = lambda _items: None
    """All objects. What was known before and is missing here is gone: no deletion was heard."""
    on_event: Callable[[str, Json], None] = lambda _kind, _object: None
    """ADDED, MODIFIED or DELETED, with the object."""


async def follow(
    client: KubeClient, request: WatchRequest, *, heartbeat: Heartbeat, rng: Random
) -> None:
    """Run until cancelled. No fault of the API server's ends it, none makes it spin."""
    failures = 0
    version = ""
    try:
        while True:
            try:
                if not version:
                    listed = await client.list(request.path, label_selector=request.label_selector)
                    request.on_list(listed.items)
                    version = listed.resource_version
                    heartbeat.beat(request.name)
                async for event in client.watch(
                    request.path, resource_version=version, label_selector=request.label_selector
                ):
                    failures = 0
                    heartbeat.beat(request.name)
                    version = _take(event, request) or version
                heartbeat.beat(request.name)
                failures += 1  # a server that ends each watch at once must not be hammered
            except WatchExpired:
                version, failures = "", failures + 1
                _log.info("watch expired, listing again", extra={"watch": request.name})
            except NotPermitted as error:
                heartbeat.outage(request.name)
                _log.warning(
                    "watch not permitted", extra={"watch": request.name, "error": str(error)}
                )
                await asyncio.sleep(_NOT_PERMITTED_SECONDS)
            except SlimError as error:
                failures += 1
                heartbeat.outage(request.name)
                _log.info("watch interrupted", extra={"watch": request.name, "error": str(error)})
                if failures > 1:
                    version = ""  # what the server said in between may be lost: list again
            if failures:
                await asyncio.sleep(_BACKOFF.pause_seconds(failures, rng))
    finally:
        heartbeat.drop(request.name)


def _take(event: Json, request: WatchRequest) -> str:
    """Hand an event on; return the resourceVersion to go on from."""
    kind, thing = str(event["type"]), event["object"]
    if kind != "BOOKMARK":
        request.on_event(kind, thing)
    return str((thing.get("metadata") or {}).get("resourceVersion", ""))
