"""The pods of a service: EndpointSlices, listed and watched over plain HTTPS.

No client library and no operator: routing goes on while either is away, with the last list known.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from slimscale.exceptions import SlimError
from slimscale.serving.http.client_connection import ExchangeFailed
from slimscale.serving.http.client_stream import ClientStream, open_stream

__all__ = ["ApiServer", "Endpoint", "EndpointWatch", "endpoints_of"]

_log = logging.getLogger(__name__)

_SILENCE_SECONDS = 90.0
"""A watch gets a bookmark about once a minute; after this the connection counts as dead."""
_WATCH_SECONDS = 300
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0
_MOST_LIST_BYTES = 64 * 2**20

Json = Mapping[str, Any]


class _Expired(SlimError):
    """410: the resource version is too old; list again."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pod of the service. `name` is the pod's, or its address where no pod is named."""

    name: str
    host: str
    port: int
    ready: bool
    """May get new requests: ready, and not on its way out."""


def endpoints_of(slices: Iterable[Json]) -> dict[str, Endpoint]:
    """All endpoints of some EndpointSlices, by name. A ready entry goes before one that is not."""
    found: dict[str, Endpoint] = {}
    for one in slices:
        port = _port(one.get("ports") or ())
        if port is None:
            continue
        for entry in one.get("endpoints") or ():
            addresses = entry.get("addresses") or ()
            if not addresses:
                continue
            conditions = entry.get("conditions") or {}
            ready = conditions.get("ready") is not False and not conditions.get("terminating")
            name = (entry.get("targetRef") or {}).get("name") or addresses[0]
            if name not in found or (ready and not found[name].ready):
                found[name] = Endpoint(name, addresses[0], port, ready=ready)
    return found


def _port(ports: Iterable[Json]) -> int | None:
    """The one named http, else the first."""
    numbers = {port.get("name"): port["port"] for port in ports if port.get("port")}
    return numbers.get("http") or next(iter(numbers.values()), None)


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where and as whom to ask. Token and CA are read anew for each connection: both rotate."""

    host: str
    port: int
    token_file: Path | None = None
    ca_file: Path | None = None
    """None: plain HTTP."""
    silence_seconds: float = _SILENCE_SECONDS

    async def get(self, target: str) -> ClientStream:
        """Raises ExchangeFailed, or OSError where the CA or the token can't be read."""
        headers = [(b"accept", b"application/json"), (b"user-agent", b"slimscale-router")]
        if self.token_file is not None:
            token = self.token_file.read_bytes().strip()
            headers.append((b"authorization", b"Bearer " + token))
        tls = None if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)
        return await open_stream(
            b"GET",
            self.host,
            self.port,
            target.encode(),
            headers=headers,
            silence_seconds=self.silence_seconds,
            tls=tls,
        )


class EndpointWatch:
    """Keeps `changed` told of all endpoints of a service until `run` is cancelled."""

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        service: str,
        changed: Callable[[dict[str, Endpoint]], None],
        rng: Random,
    ) -> None:
        self._api = api
        self._changed = changed
        self._rng = rng
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices"
        self._selector = "labelSelector=" + quote(f"kubernetes.io/service-name={service}", safe="")
        self._slices: dict[str, Json] = {}
        self.listed = False
        """True from the first list on: an empty list then means that there are no pods."""
        self.failures = 0
        self.lists = 0
        self.last_contact: float | None = None
        """Loop's time at which the API server last said something."""

    async def run(self) -> None:
        """Never returns. Faults are said in the log, once each, and tried again with backoff."""
        pause = _FIRST_PAUSE_SECONDS
        complaint = ""
        while True:
            try:
                version = await self._list()
                pause, complaint = _FIRST_PAUSE_SECONDS, ""
                await self._follow(version)
            except _Expired:
                continue
            except (SlimError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                self.failures += 1
                if str(error) != complaint:
                    _log.warning("endpoints: %s; the last ones known stay in use", error)
                complaint = str(error)
            await asyncio.sleep(pause * (0.5 + self._rng.random()))
            pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)

    async def _list(self) -> str:
        stream = await self._api.get(f"{self._path}?{self._selector}")
        try:
            body = bytearray()
            async for piece in stream:
                body += piece
                if len(body) > _MOST_LIST_BYTES:
                    raise SlimError("the list of EndpointSlices is too long")
            if stream.status != 200:
                raise SlimError(f"the API server answered {stream.status} to a list")
        finally:
            stream.close()
        document = json.loads(body)
        version = str(document["metadata"]["resourceVersion"])
        self._slices = {item["metadata"]["name"]: item for item in document["items"] or ()}
        self.lists += 1
        self.listed = True
        self._tell()
        return version

    async def _follow(self, version: str) -> None:
        """Watch from `version` on; reopens a watch that has ended, raises when one breaks early."""
        while True:
            heard = False
            stream = await self._api.get(
                f"{self._path}?{self._selector}&watch=true&allowWatchBookmarks=true"
                f"&resourceVersion={quote(version)}&timeoutSeconds={_WATCH_SECONDS}"
            )
            try:
                if stream.status == 410:
                    raise _Expired("the watch's version is too old")
                if stream.status != 200:
                    raise SlimError(f"the API server answered {stream.status} to a watch")
                async for line in _lines(stream):
                    heard = True
                    version = self._take(json.loads(line), version)
            except ExchangeFailed as error:
                if not heard:
                    raise
                _log.info("endpoints: %s; watching again", error)
            finally:
                stream.close()
            if not heard:  # ended at once, or silent until its end: no reason to hurry
                await asyncio.sleep(_FIRST_PAUSE_SECONDS)

    def _take(self, event: Json, version: str) -> str:
        """One event of the watch. Returns the version to go on from."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise _Expired("the watch's version is too old")
            raise SlimError(f"the watch ended with code {item.get('code')}")
        metadata = item["metadata"]
        version = str(metadata.get("resourceVersion") or version)
        if kind != "BOOKMARK":
            if kind == "DELETED":
                self._slices.pop(metadata["name"], None)
            else:
                self._slices[metadata["name"]] = item
        self._tell(changed=kind != "BOOKMARK")
        return version

    def _tell(self, *, changed: bool = True) -> None:
        self.last_contact = asyncio.get_running_loop().time()
        if changed:
            self._changed(endpoints_of(self._slices.values()))


async def _lines(stream: ClientStream) -> AsyncIterator[bytes]:
    """The lines of a body that comes in pieces."""
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _MOST_LIST_BYTES:
            raise SlimError("an event of the watch is too long")
        for line in lines:
            if line.strip():
                yield line
