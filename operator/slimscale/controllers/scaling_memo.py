"""What scaling remembers of a SlimInference: in memory, and in a ConfigMap for the next process."""

import json
import logging
from dataclasses import dataclass

from slimscale.act.child_names import child_name, owner_label
from slimscale.api.names import API_VERSION, FIELD_MANAGER, LABEL_INFERENCE, SLIMINFERENCE_KIND
from slimscale.domain.clock import Clock
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient
from slimscale.observe.memo_reader import memo_from_config_map

__all__ = ["ScalingMemoKeeper"]

_log = logging.getLogger(__name__)
_KEY = "scaling.json"
_WRITE_SECONDS = 60.0
Key = tuple[str, str]


@dataclass(slots=True)
class _Kept:
    uid: str
    memo: dict[str, object]
    written: str
    written_at_seconds: float


class ScalingMemoKeeper:
    """Windows move with every look, so a change is written once a minute at most.

    A cooldown that a crash forgets may start anew from what was written: it holds for longer, which
    is the safe side.
    """

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: dict[Key, _Kept] = {}

    async def load(self, raw: Json) -> dict[str, object]:
        """Of this object, by its uid; nothing where none was kept."""
        key, uid = _identity(raw)
        kept = self._kept.get(key)
        if kept is None or kept.uid != uid:
            found = await self._client.get(self._path(key))
            memo = memo_from_config_map(found, key=_KEY, owner_uid=uid)
            kept = _Kept(uid, memo, _text(memo), self._clock.monotonic_seconds())
            self._kept[key] = kept
        return kept.memo

    async def save(self, raw: Json, memo: dict[str, object], *, urgent: bool) -> None:
        """Remember; write when urgent (replicas have changed) or when it is due."""
        key, uid = _identity(raw)
        kept = self._kept.setdefault(key, _Kept(uid, {}, "", 0.0))
        kept.memo = memo
        due = self._clock.monotonic_seconds() - kept.written_at_seconds >= _WRITE_SECONDS
        if memo and _text(memo) != kept.written and (urgent or due):
            await self._write(key, kept)

    async def flush(self) -> None:
        """At an orderly end."""
        for key, kept in self._kept.items():
            if kept.memo and _text(kept.memo) != kept.written:
                await self._write(key, kept)

    def forget(self, key: Key) -> None:
        """The object is gone; its ConfigMap goes with it, by the owner reference."""
        self._kept.pop(key, None)

    async def _write(self, key: Key, kept: _Kept) -> None:
        namespace, name = key
        text = _text(kept.memo)
        owner = {"apiVersion": API_VERSION, "kind": SLIMINFERENCE_KIND, "name": name}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": child_name(name, "memory"),
                "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/managed-by": FIELD_MANAGER,
                    LABEL_INFERENCE: owner_label(name),
                },
                "ownerReferences": [owner | {"uid": kept.uid}],
            },
            "data": {_KEY: text},
        }
        try:
            await self._client.apply(self._path(key), body, force=True)
        except SlimError as error:
            _log.warning("memory of scaling not saved", extra={"error": str(error)})
            return
        kept.written, kept.written_at_seconds = text, self._clock.monotonic_seconds()

    @staticmethod
    def _path(key: Key) -> str:
        return item("v1", "configmaps", child_name(key[1], "memory"), key[0])


def _identity(raw: Json) -> tuple[Key, str]:
    metadata = raw["metadata"]
    return (str(metadata["namespace"]), str(metadata["name"])), str(metadata["uid"])


def _text(memo: dict[str, object]) -> str:
    return json.dumps(memo, allow_nan=False, separators=(",", ":"), sort_keys=True)
