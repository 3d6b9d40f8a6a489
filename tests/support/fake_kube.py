"""A working Kubernetes API in memory, behind the `KubeClient` Protocol.

It keeps resourceVersions, fences by uid and resourceVersion, has status as a subresource, lets
watches follow, and records each call, so that tests can say what was written and with which rights.
"""

import asyncio
import copy
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from slimscale.exceptions import Conflict, NotPermitted
from slimscale.kubeapi.ports import Json, ListResult, Refused, WatchExpired

__all__ = ["Call", "FakeKube"]

_PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
_GROUP_VERSION = re.compile(r"^/apis/[^/]+/v[^/]+$")
_HISTORY = 1000


@dataclass(frozen=True, slots=True)
class _Address:
    api: str
    plural: str
    namespace: str | None
    name: str | None
    sub: str | None

    @property
    def collection(self) -> tuple[str, str]:
        return self.api, self.plural


@dataclass(frozen=True, slots=True)
class Call:
    """verb as in RBAC; resource with its subresource, as in RBAC."""

    verb: str
    resource: str
    path: str
    body: Json | None = None


def _parse(path: str) -> _Address:
    # "namespaces" themselves are cluster-wide objects with the same word in their path.
    match = _PATH.match(path)
    assert match is not None, f"{path} is no path of the Kubernetes API"
    api = match["core"] or f"{match['group']}/{match['version']}"
    return _Address(api, match["plural"], match["namespace"], match["name"], match["sub"])


@dataclass(slots=True)
class FakeKube:
    """Put objects in with `add`; look at `writes`, `used` and `objects` afterwards."""

    calls: list[Call] = field(default_factory=list)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """(verb, resource) that answer 403."""
    groups: dict[str, Json] = field(default_factory=dict)
    """Discovery documents of further API groups, by path."""
    before: Callable[[Call], Exception | None] | None = None
    """May return an error that the call raises instead: an outage, a conflict."""
    _objects: dict[tuple[str, str], dict[tuple[str | None, str], Json]] = field(
        default_factory=dict
    )
    _version: int = 100
    _events: deque[tuple[int, tuple[str, str], Json]] = field(
        default_factory=lambda: deque(maxlen=_HISTORY)
    )
    _oldest: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # What tests use

    def add(self, path: str, body: Json) -> Json:
        """Create an object from outside: not recorded as a call. path is its collection."""
        address = _parse(path)
        return self._store(address, copy.deepcopy(body), "ADDED")

    def edit(self, path: str, change: Callable[[Json], Any]) -> Json:
        """Change an object from outside."""
        address = _parse(path)
        thing = copy.deepcopy(self._must_get(address))
        before = copy.deepcopy(thing.get("spec"))
        change(thing)
        if thing.get("spec") != before:
            thing["metadata"]["generation"] = int(thing["metadata"].get("generation", 1)) + 1
        return self._store(address, thing, "MODIFIED")

    def remove(self, path: str) -> None:
        address = _parse(path)
        thing = self._must_get(address)
        del self._objects[address.collection][(address.namespace, str(address.name))]
        self._publish(address, "DELETED", thing)

    def peek(self, path: str) -> Json | None:
        address = _parse(path)
        thing = self._objects.get(address.collection, {}).get(
            (address.namespace, str(address.name))
        )
        return copy.deepcopy(thing)

    def expire(self) -> None:
        """Forget history, as compaction does: older watches get 410."""
        self._events.clear()
        self._oldest = self._version
        self._wake_watches()

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.verb not in ("get", "list", "watch")]

    @property
    def used(self) -> set[tuple[str, str]]:
        return {(call.verb, call.resource) for call in self.calls}

    # KubeClient

    async def get(self, path: str) -> Json | None:
        if _GROUP_VERSION.match(path):  # discovery, which needs no right
            return self.groups.get(path)
        self._record("get", path)
        return self.peek(path)

    async def list(
        self, path: str, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult:
        self._record("list", path)
        address = _parse(path)
        found = [
            # as an API server does: only the list itself says what its items are
            {k: copy.deepcopy(v) for k, v in thing.items() if k not in ("apiVersion", "kind")}
            for (namespace, _), thing in sorted(
                self._objects.get(address.collection, {}).items(), key=lambda item: str(item[0])
            )
            if address.namespace in (None, namespace)
            and _selected(thing, label_selector, field_selector)
        ]
        return ListResult(items=found, resource_version=str(self._version))

    async def create(self, path: str, body: Json) -> Json:
        self._record("create", path, body)
        address = _parse(path)
        name = body["metadata"].get("name") or (
            body["metadata"]["generateName"] + str(self._version)
        )
        if (address.namespace, name) in self._objects.get(address.collection, {}):
            raise Conflict(f"{name} exists")
        thing = copy.deepcopy(body)
        thing["metadata"]["name"] = name
        return self._store(address, thing, "ADDED")

    async def replace(self, path: str, body: Json) -> Json:
        self._record("update", path, body)
        address = _parse(path)
        stored = self._fenced(address, body, version_needed=True)
        thing = copy.deepcopy(body)
        thing["metadata"] = {**stored["metadata"], **thing["metadata"]}
        return self._store(address, thing, "MODIFIED")

    async def apply(self, path: str, body: Json, *, force: bool = False, manager: str = "") -> Json:
        self._record("patch", path, body)
        address = _parse(path)
        if self.peek(path) is None:
            if "uid" in body.get("metadata", {}):
                raise Conflict("the object is gone")  # a late write must not revive it
            return self._store(address, copy.deepcopy(body), "ADDED")
        return self._merge(address, body, by_name=True)

    async def merge_patch(self, path: str, body: Json) -> Json:
        self._record("patch", path, body)
        return self._merge(_parse(path), body, by_name=False)

    async def strategic_patch(self, path: str, body: Json) -> Json:
        self._record("patch", path, body)
        return self._merge(_parse(path), body, by_name=True)

    async def delete(self, path: str, *, uid: str) -> None:
        self._record("delete", path)
        thing = self.peek(path)
        if thing is None:
            return
        if thing["metadata"]["uid"] != uid:
            raise Conflict("another object has this name now")
        self.remove(path)

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[Json]:
        self._record("watch", path)
        address = _parse(path)
        seen = int(resource_version or 0)
        while True:
            if seen < self._oldest:
                raise WatchExpired(f"{path}: too old")
            for version, collection, event in list(self._events):
                if version <= seen or collection != address.collection:
                    continue
                seen = version
                namespace = event["object"]["metadata"].get("namespace")
                if address.namespace in (None, namespace) and _selected(
                    event["object"], label_selector, ""
                ):
                    yield copy.deepcopy(event)
            await self._changed.wait()

    # Inside

    def _record(self, verb: str, path: str, body: Json | None = None) -> None:
        address = _parse(path)
        resource = address.plural if address.sub is None else f"{address.plural}/{address.sub}"
        call = Call(verb, resource, path, copy.deepcopy(body))
        self.calls.append(call)
        if (verb, resource) in self.forbidden:
            raise NotPermitted(f"{verb} {resource}: 403")
        error = self.before(call) if self.before is not None else None
        if error is not None:
            raise error

    def _must_get(self, address: _Address) -> Json:
        thing = self._objects.get(address.collection, {}).get(
            (address.namespace, str(address.name))
        )
        if thing is None:
            raise Conflict(f"{address.name} is gone")
        return thing

    def _fenced(self, address: _Address, body: Json, *, version_needed: bool) -> Json:
        stored = self._must_get(address)
        metadata: Json = body.get("metadata") or {}
        if metadata.get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise Conflict("Precondition failed: UID in precondition differs")
        version = metadata.get("resourceVersion")
        if version_needed and version is None:
            raise Refused("metadata.resourceVersion must be specified", status=422)
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        return stored

    def _merge(self, address: _Address, body: Json, *, by_name: bool) -> Json:
        stored = self._fenced(address, body, version_needed=False)
        patch = copy.deepcopy(body)
        (patch.get("metadata") or {}).pop("resourceVersion", None)
        if address.sub == "status":
            patch = {"status": patch.get("status")}
        elif address.sub is None and address.plural == "simworkloads":
            patch.pop("status", None)
        merged = _merged(stored, patch, by_name=by_name)
        if merged == stored:
            return copy.deepcopy(stored)
        if merged.get("spec") != stored.get("spec"):
            merged["metadata"]["generation"] = int(stored["metadata"].get("generation", 1)) + 1
        return self._store(address, merged, "MODIFIED")

    def _store(self, address: _Address, thing: Json, kind: str) -> Json:
        metadata = thing.setdefault("metadata", {})
        if address.name is not None:
            metadata.setdefault("name", address.name)
        if address.namespace is not None:
            metadata.setdefault("namespace", address.namespace)
        self._version += 1
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("generation", 1)
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        metadata["resourceVersion"] = str(self._version)
        key = (metadata.get("namespace"), str(metadata["name"]))
        self._objects.setdefault(address.collection, {})[key] = thing
        self._publish(address, kind, thing)
        return copy.deepcopy(thing)

    def _publish(self, address: _Address, kind: str, thing: Json) -> None:
        if kind == "DELETED":
            self._version += 1
        event = {"type": kind, "object": copy.deepcopy(thing)}
        self._events.append((self._version, address.collection, event))
        self._wake_watches()

    def _wake_watches(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


def _merged(old: Any, patch: Any, *, by_name: bool) -> Any:
    if isinstance(old, dict) and isinstance(patch, dict):
        result = dict(old)
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = _merged(old.get(key, {}), value, by_name=by_name)
        return result
    if by_name and isinstance(old, list) and isinstance(patch, list) and _are_named(patch):
        names = [entry["name"] for entry in old]
        result_list = [copy.deepcopy(entry) for entry in old]
        for entry in patch:
            if entry["name"] in names:
                at = names.index(entry["name"])
                result_list[at] = _merged(result_list[at], entry, by_name=True)
            else:
                result_list.append(entry)
        return result_list
    return patch


def _are_named(entries: Any) -> bool:
    return all(isinstance(entry, dict) and "name" in entry for entry in entries)


def _selected(thing: Json, label_selector: str, field_selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for term in filter(None, label_selector.split(",")):
        key, equals, value = term.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    for term in filter(None, field_selector.split(",")):
        path, _, value = term.partition("=")
        found: Any = thing
        for part in path.split("."):
            found = (found or {}).get(part)
        if found != value:
            return False
    return True
