"""The learned state of a SimWorkload, out of its ConfigMap. `act/` writes it."""

import json
import logging
from typing import Any

from slimscale.kubeapi.ports import Json

__all__ = ["memo_from_config_map"]

_log = logging.getLogger(__name__)
_LIMIT_BYTES = 256 * 1024


def memo_from_config_map(config_map: Json | None, *, key: str, owner_uid: str) -> Json:
    """An empty memo where there is none, it is broken, or it belongs to an earlier object.

    A SimWorkload that was deleted and made anew under its name starts from nothing.
    """
    if config_map is None:
        return {}
    owners = (config_map.get("metadata") or {}).get("ownerReferences") or []
    if not any(owner.get("uid") == owner_uid for owner in owners):
        return {}
    text: Any = (config_map.get("data") or {}).get(key, "")
    if not isinstance(text, str) or len(text) > _LIMIT_BYTES:
        return {}
    try:
        memo = json.loads(text)
    except ValueError:
        _log.warning("the learned state is no JSON; starting from nothing")
        return {}
    return memo if isinstance(memo, dict) else {}
