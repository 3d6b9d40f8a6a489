"""`FakeKube` over HTTP, for kopf and for our own client at once, with faults to order."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from slimscale.exceptions import Conflict, NotPermitted, SlimError, Unavailable
from slimscale.kubeapi.ports import Json, Refused, WatchExpired
from tests.support.fake_kube import FakeKube
from tests.support.http_server import serve

__all__ = ["FakeApiServer", "WatchFault", "fake_api_server"]

_STATUS_OF: list[tuple[type[SlimError], int]] = [
    (NotPermitted, 403),
    (Conflict, 409),
    (WatchExpired, 410),
    (Unavailable, 503),
]
_RESOURCES = {
    "/api/v1": [("namespaces", "Namespace", False), ("events", "Event", True)],
    "/apis/apiextensions.k8s.io/v1": [
        ("customresourcedefinitions", "CustomResourceDefinition", False)
    ],
    "/apis/slimscale.dev/v1alpha1": [
        ("simworkloads", "SimWorkload", True),
        ("sliminferences", "SlimInference", True),
    ],
}
_GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]


class WatchFault(StrEnum):
    NONE = "none"
    BLACK_HOLE = "silent for ever, never closed"
    GONE_AS_STATUS = "410 as the answer"
    GONE_IN_STREAM = "200, then an ERROR event with 410"
    CUT = "closed at once"


@dataclass(slots=True)
class FakeApiServer:
    kube: FakeKube = field(default_factory=FakeKube)
    url: str = ""
    fault: WatchFault = WatchFault.NONE
    fault_plural: str = "simworkloads"
    served: set[str] = field(default_factory=lambda: set(_RESOURCES))
    """Discovery paths that are there: take one out and the CRD is not established."""
    documents: dict[str, Json] = field(default_factory=dict)
    """Answers to further paths, such as the OpenAPI documents."""
    faults_met: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    _streams: set[asyncio.Task[Any]] = field(default_factory=set)

    def break_watches(self, fault: WatchFault) -> None:
        """Cut all watches that are open; new ones meet the fault."""
        self.fault = fault
        for stream in list(self._streams):
            stream.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.requests.append((request.method, path))
        if path in ("/version", "/api", "/apis") or path in _RESOURCES:
            return self._discovery(path)
        if path in self.documents:
            return web.json_response(self.documents[path])
        if not path.startswith(("/api/", "/apis/")):
            return _status(404, "no such path")
        try:
            if request.query.get("watch") == "true":
                return await self._watch(request)
            return web.json_response(await self._answer(request))
        except SlimError as error:
            status = error.status if isinstance(error, Refused) else _status_of(error)
            return _status(status, str(error))

    def _discovery(self, path: str) -> web.Response:
        if path == "/api":
            return web.json_response({"versions": ["v1"]})
        if path == "/apis":
            groups = [
                {
                    "name": group,
                    "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                    "preferredVersion": {"version": version},
                }
                for group, version in (
                    name.removeprefix("/apis/").split("/")
                    for name in sorted(self.served)
                    if name.startswith("/apis/")
                )
            ]
            return web.json_response({"groups": groups})
        if path not in self.served:
            return _status(404, "no such group")
        resources = [
            {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": namespaced,
             "verbs": _VERBS}
            for plural, kind, namespaced in _RESOURCES.get(path, [])
        ]  # fmt: skip
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    async def _answer(self, request: web.Request) -> Json:
        path, kube = request.path, self.kube
        if request.method != "GET":
            return await self._write(request)
        if _is_item(path):
            found = await kube.get(path)
            if found is None:
                raise Refused("not found", status=404)
            return found
        listed = await kube.list(
            path,
            label_selector=request.query.get("labelSelector", ""),
            field_selector=request.query.get("fieldSelector", ""),
        )
        version = {"resourceVersion": listed.resource_version}
        return {"kind": "List", "apiVersion": "v1", "metadata": version, "items": listed.items}

    async def _write(self, request: web.Request) -> Json:
        path, kube = request.path, self.kube
        body: Json = json.loads(await request.text())
        if request.method == "DELETE":
            await kube.delete(path, uid=body["preconditions"]["uid"])
            return {}
        if request.method == "PATCH" and "strategic" in request.content_type:
            return await kube.strategic_patch(path, body)
        if request.method == "PATCH" and "apply" in request.content_type:
            return await kube.apply(path, body)
        verbs = {"POST": kube.create, "PUT": kube.replace, "PATCH": kube.merge_patch}
        return await verbs[request.method](path, body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        fault = self.fault if request.path.endswith(self.fault_plural) else WatchFault.NONE
        self.faults_met += fault is not WatchFault.NONE
        if fault is WatchFault.GONE_AS_STATUS:
            return _status(410, "too old resource version")
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            match fault:
                case WatchFault.CUT:
                    return response
                case WatchFault.BLACK_HOLE:
                    await asyncio.Event().wait()
                case WatchFault.GONE_IN_STREAM:
                    await _send(response, {"type": "ERROR", "object": _GONE})
                case _:
                    events = self.kube.watch(
                        request.path,
                        resource_version=request.query.get("resourceVersion", ""),
                        label_selector=request.query.get("labelSelector", ""),
                    )
                    try:
                        async for event in events:
                            await _send(response, event)
                    except WatchExpired:
                        await _send(response, {"type": "ERROR", "object": _GONE})
        finally:
            self._streams.discard(task)
        return response


async def _send(response: web.StreamResponse, event: Json) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def _is_item(path: str) -> bool:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return len(parts) > 1


def _status_of(error: SlimError) -> int:
    return next((code for kind, code in _STATUS_OF if isinstance(error, kind)), 500)


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return web.json_response(body, status=code)


@asynccontextmanager
async def fake_api_server() -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    async with serve(server.handle) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
