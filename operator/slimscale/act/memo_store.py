"""Save what was learned in a ConfigMap owned by the SimWorkload; `observe/` reads it back."""

import json
import math
from collections.abc import Mapping
from typing import Any

from slimscale.act.builders import memo_config_map
from slimscale.act.child_names import memo_name
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["DECIDE_KEY", "PLAN_KEY", "MemoStore", "memo_path", "same_memo", "save"]

DECIDE_KEY = "decide.json"
PLAN_KEY = "plan.json"
MAX_BYTES = 256 * 1024
SAME_RATIO = 0.2
"""Learned figures that moved by less are not worth a write: a restart would learn them again."""

# Running sums of the change detector and the like: they move with each sample, and a restarted
# operator gathers them anew within a window.
_VOLATILE = frozenset(
    {
        "trends", "trend_threads", "trend_cores", "trend_seen_until_seconds", "carried_cpu_log",
        "deviating_since_seconds", "rate_variance", "proposals", "points", "invalid_predictions",
        "repredict", "settled", "drifting_since_seconds", "beliefs", "belief_threads", "belief_cores", "reference",
    }
)  # fmt: skip

Key = tuple[str, str]
Parts = Mapping[str, Mapping[str, object]]


class MemoStore:
    """Knows what it last wrote for each object, and writes only what is worth it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._stored: dict[Key, tuple[str, dict[str, Json]]] = {}

    def loaded(self, *, namespace: str, name: str, uid: str, parts: Parts) -> None:
        """What the ConfigMap held, so that a restart does not write it again."""
        self._stored[namespace, name] = (uid, {key: dict(part) for key, part in parts.items()})

    async def save(self, *, namespace: str, name: str, uid: str, parts: Parts) -> bool:
        """Write when something that matters has changed; whether it was written.

        Raises:
            SlimError: the API server's answer; what was learned is kept for the next try.
        """
        known = self._stored.get((namespace, name))
        if known is not None and known[0] == uid and _all_same(known[1], parts):
            return False
        await save(self._client, namespace=namespace, name=name, uid=uid, memo=parts)
        self.loaded(namespace=namespace, name=name, uid=uid, parts=parts)
        return True

    def forget(self, key: Key) -> None:
        """The object is gone; its ConfigMap goes with it, by the owner reference."""
        self._stored.pop(key, None)


async def save(client: KubeClient, *, namespace: str, name: str, uid: str, memo: Parts) -> None:
    """Write the ConfigMap by server-side apply.

    Args:
        name, uid: of the SimWorkload.
        memo: a JSON document for each key of the ConfigMap.

    Raises:
        SlimError: the memo is too large, or the API server did not take it.
    """
    texts = {
        key: json.dumps(part, allow_nan=False, separators=(",", ":"), sort_keys=True)
        for key, part in memo.items()
    }
    size = sum(len(text) for text in texts.values())
    if size > MAX_BYTES:
        raise SlimError(f"learned state of {name} is {size} bytes, more than {MAX_BYTES}")
    body = memo_config_map(namespace=namespace, name=name, uid=uid, parts=texts)
    await client.apply(memo_path(namespace=namespace, name=name), body, force=True)


def memo_path(*, namespace: str, name: str) -> str:
    """Path of the ConfigMap of the SimWorkload `name`."""
    return item("v1", "configmaps", memo_name(name), namespace)


def same_memo(old: Any, new: Any, *, key: str = "") -> bool:
    """Equal in everything that matters: figures within a ratio, times and counts exactly."""
    if key in _VOLATILE:
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(same_memo(old.get(name), new.get(name), key=str(name)) for name in {*old, *new})
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(same_memo(a, b) for a, b in zip(old, new, strict=True))
    is_time = key.endswith(("_at_seconds", "since_seconds"))
    if isinstance(old, float) and isinstance(new, float) and not is_time:
        return math.isclose(old, new, rel_tol=SAME_RATIO)
    return bool(old == new)


def _all_same(old: Parts, new: Parts) -> bool:
    return all(same_memo(old.get(key, {}), new.get(key, {})) for key in {*old, *new})
