"""What `observe/` and `act/` need of a Kubernetes client; fakes implement the same Protocol.

Objects are plain JSON: typed models refuse objects with fields they do not know.
Every call has a time-out and follows no redirect. Errors: `NotPermitted` for 401 and 403,
`Conflict` for 409 and for an update of an object that is gone, `Refused` for other 4xx (its
message is the API server's, safe to show), `Unavailable` for time-outs, 429 and 5xx.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from slimscale.exceptions import SlimError

__all__ = ["Json", "KubeClient", "ListResult", "Refused", "WatchExpired"]

Json = dict[str, Any]


class Refused(SlimError):
    """The API server will not take this request as it is: 400, 422 and other 4xx."""

    def __init__(self, message: str, status: int, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.causes = causes


@dataclass(frozen=True, slots=True)
class ListResult:
    items: list[Json]
    resource_version: str


class KubeClient(Protocol):
    async def get(self, path: str) -> Json | None:
        """One object; None when there is none (404)."""
        ...

    async def list(
        self, path: str, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult:
        """All objects, page by page. A resource that the server lacks (404) is an empty list."""
        ...

    async def create(self, path: str, body: Json) -> Json: ...

    async def replace(self, path: str, body: Json) -> Json:
        """PUT: fails with Conflict unless body carries the current resourceVersion."""
        ...

    async def apply(self, path: str, body: Json, *, force: bool = False, manager: str = "") -> Json:
        """Server-side apply. manager empty: the client's own field manager."""
        ...

    async def merge_patch(self, path: str, body: Json) -> Json:
        """JSON merge patch; metadata.uid in body fences it: another object answers Conflict."""
        ...

    async def strategic_patch(self, path: str, body: Json) -> Json:
        """Strategic merge patch, for lists keyed by name (containers)."""
        ...

    async def delete(self, path: str, *, uid: str) -> None:
        """Gone already is success."""
        ...

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[Json]:
        """Events `{"type", "object"}` with bookmarks, until the server ends the stream.

        Raises WatchExpired on 410, in whichever of its three forms it comes.
        """
        ...


class WatchExpired(SlimError):
    """410 Gone: the caller lists again. Comes as a status, as an ERROR event, or mid-stream."""
