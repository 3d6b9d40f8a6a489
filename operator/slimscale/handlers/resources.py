"""kopf events of our custom resources become wakes of a work queue; nothing is decided here.

Only `on.event`: create, update and resume handlers would store kopf's state on users' objects,
timers and daemons would put finalizers on them.
"""

from collections.abc import Callable
from typing import Any

import kopf

from slimscale.api.names import GROUP, SIMWORKLOAD_PLURAL, VERSION
from slimscale.controllers.queue import Key
from slimscale.controllers.resync import key_of

__all__ = ["WakeFilter", "register"]


class WakeFilter:
    """Tells changes of what users write from changes of status, which are our own echo."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Any, ...]] = {}

    def matters(self, thing: dict[str, Any], *, deleted: bool) -> bool:
        """True when generation, annotations or deletion differ from what was seen last."""
        key, metadata = key_of(thing), thing["metadata"]
        if deleted:
            self._seen.pop(key, None)
            return True
        fresh = (
            metadata.get("uid"),
            metadata.get("generation"),
            metadata.get("annotations"),
            metadata.get("deletionTimestamp"),
        )
        changed = self._seen.get(key) != fresh
        self._seen[key] = fresh
        return changed


def register(
    registry: kopf.OperatorRegistry,
    heard: Callable[[dict[str, Any], bool, bool], object],
    *,
    plural: str = SIMWORKLOAD_PLURAL,
) -> None:
    """Register the one event handler of a kind.

    heard gets the object, whether it is gone, whether to wake.
    """
    wakes = WakeFilter()

    @kopf.on.event(GROUP, VERSION, plural, registry=registry)
    async def on_event(event: Any, **_: Any) -> None:
        thing = dict(event["object"])
        deleted = event.get("type") == "DELETED"
        heard(thing, deleted, wakes.matters(thing, deleted=deleted))
