"""Write a custom resource's status: only what differs, fenced by the object's uid."""

from collections.abc import Mapping
from typing import Any, Protocol

from slimscale.act.builders import merge_diff
from slimscale.act.status import status_needs_write
from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.exceptions import Conflict
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient, Refused

__all__ = ["StatusWriter"]

Key = tuple[str, str]


class NeedsWrite(Protocol):
    def __call__(
        self,
        previous: Mapping[str, Any] | None,
        new: Mapping[str, Any],
        *,
        last_written_seconds: float | None,
        now_seconds: float,
    ) -> bool: ...


class StatusWriter:
    """Remembers when it last wrote each status, so that figures alone are written seldom."""

    def __init__(
        self,
        client: KubeClient,
        *,
        plural: str = SIMWORKLOAD_PLURAL,
        needs_write: NeedsWrite = status_needs_write,
    ) -> None:
        self._client = client
        self._plural = plural
        self._needs_write = needs_write
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
        if not self._needs_write(previous, new, last_written_seconds=last, now_seconds=now_seconds):
            return previous
        patch = merge_diff(previous, new)
        if not patch:
            return previous
        path = item(API_VERSION, self._plural, key[1], key[0], "status")
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
