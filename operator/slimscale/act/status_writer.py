"""Write a SimWorkload's status: only what differs, fenced by the object's uid."""

from collections.abc import Mapping
from typing import Any

from slimscale.act.builders import merge_diff
from slimscale.act.status import status_needs_write
from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.exceptions import Conflict
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient, Refused

__all__ = ["StatusWriter"]

Key = tuple[str, str]


class StatusWriter:
    """Remembers when it last wrote each status, so that figures alone are written seldom."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._written_at_seconds: dict[Key, float] = {}

    async def write(self, simworkload: Json, new: Mapping[str, Any], *, now_seconds: float) -> Json:
        """Return the status as it now stands: the new one where it was written, else the old one.

        An object that is gone, or is another one by now, is left alone.

        Raises:
            SlimError: any other answer; the next reconcile tries again.
        """
        metadata: Json = simworkload["metadata"]
        key = (str(metadata["namespace"]), str(metadata["name"]))
        previous: Json = simworkload.get("status") or {}
        last = self._written_at_seconds.get(key)
        if not status_needs_write(
            previous, new, last_written_seconds=last, now_seconds=now_seconds
        ):
            return previous
        patch = merge_diff(previous, new)
        if not patch:
            return previous
        path = item(API_VERSION, SIMWORKLOAD_PLURAL, key[1], key[0], "status")
        body = {"metadata": {"uid": metadata["uid"]}, "status": patch}
        try:
            await self._client.merge_patch(path, body)
        except Conflict:
            return previous
        except Refused as error:
            if "metadata.uid" in " ".join((str(error), *error.causes)):
                return previous
            raise
        self._written_at_seconds[key] = now_seconds
        return dict(new)

    def forget(self, key: Key) -> None:
        self._written_at_seconds.pop(key, None)
