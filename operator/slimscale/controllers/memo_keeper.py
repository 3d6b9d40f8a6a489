"""What was learned about a SimWorkload: in memory between two looks, in a ConfigMap for good.

Running figures change with every look; they are kept in memory and written along when something
lasting changes, and at an orderly end. So a steady state writes nothing.
"""

import logging
from dataclasses import dataclass

from slimscale.act.memo_store import DECIDE_KEY, PLAN_KEY, MemoStore, memo_path, save
from slimscale.controllers.stages import Key
from slimscale.exceptions import NotPermitted, SlimError
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.memo_reader import memo_from_config_map

__all__ = ["MemoKeeper"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Kept:
    uid: str
    decided: Json
    planned: Json
    seen: Json | None
    """The ConfigMap's data as last read; None: there was none."""
    wrote: bool = False
    """We wrote since: the next read shows our own data, and is no reason to forget the rest."""

    def parts(self) -> dict[str, Json]:
        return {DECIDE_KEY: self.decided, PLAN_KEY: self.planned}


class MemoKeeper:
    """Implements `stages.MemoKeeper`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._store = MemoStore(client)
        self._kept: dict[Key, _Kept] = {}

    async def load(self, simworkload: Json) -> tuple[Json, Json]:
        namespace, name, uid = _identity(simworkload)
        kept = self._kept.get((namespace, name))
        try:
            found = await self._client.get(memo_path(namespace=namespace, name=name))
        except NotPermitted:
            return (kept.decided, kept.planned) if kept is not None else ({}, {})
        data = (found or {}).get("data")
        if kept is not None and kept.uid == uid and (kept.seen == data or (kept.wrote and data)):
            kept.seen, kept.wrote = data, False
            return kept.decided, kept.planned
        # The first look; or someone deleted or changed it: what stands there counts.
        kept = _Kept(
            uid=uid,
            decided=memo_from_config_map(found, key=DECIDE_KEY, owner_uid=uid),
            planned=memo_from_config_map(found, key=PLAN_KEY, owner_uid=uid),
            seen=data,
        )
        self._kept[namespace, name] = kept
        self._store.loaded(namespace=namespace, name=name, uid=uid, parts=kept.parts())
        return kept.decided, kept.planned

    async def save(self, simworkload: Json, *, decided: Json, planned: Json | None) -> None:
        """Remember; write what is worth it.

        Raises:
            SlimError: not written. Where writing is forbidden memory has to do.
        """
        namespace, name, uid = _identity(simworkload)
        kept = self._kept.setdefault((namespace, name), _Kept(uid, {}, {}, None))
        kept.decided = decided
        kept.planned = planned if planned is not None else kept.planned
        try:
            kept.wrote |= await self._store.save(
                namespace=namespace, name=name, uid=uid, parts=kept.parts()
            )
        except NotPermitted as error:
            _log.warning("learned state not saved", extra={"error": str(error)})

    def keep(self, simworkload: Json, *, decided: Json) -> None:
        """In memory only: for a look that saw nothing worth a write."""
        namespace, name, uid = _identity(simworkload)
        kept = self._kept.get((namespace, name))
        if kept is not None and kept.uid == uid:
            kept.decided = decided

    def kept(self, simworkload: Json) -> Json | None:
        namespace, name, uid = _identity(simworkload)
        kept = self._kept.get((namespace, name))
        return kept.decided if kept is not None and kept.uid == uid else None

    async def flush(self) -> None:
        """At an orderly end: the running figures too, so that nothing has to be learned again."""
        for (namespace, name), kept in self._kept.items():
            if kept.seen is None and not kept.wrote:
                continue
            try:
                await save(
                    self._client, namespace=namespace, name=name, uid=kept.uid, memo=kept.parts()
                )
            except SlimError as error:
                _log.warning("learned state not saved", extra={"error": str(error)})

    def forget(self, key: Key) -> None:
        self._kept.pop(key, None)
        self._store.forget(key)


def _identity(simworkload: Json) -> tuple[str, str, str]:
    metadata = simworkload["metadata"]
    return str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"])
