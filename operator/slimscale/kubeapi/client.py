"""`KubeClient` on the asynchronous client of the package `kubernetes`: raw JSON, bounded waits.

That client follows redirects, trusts proxy variables and waits five minutes by default. Here no
redirect is followed (a token must never reach another host), proxies come from the kubeconfig
alone, and each call ends in time: reads by `call_timeout_seconds`, writes by `write_timeout_seconds`.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from slimscale.exceptions import Conflict, Unavailable
from slimscale.kubeapi.errors import error_of
from slimscale.kubeapi.ports import Json, ListResult, WatchExpired
from slimscale.kubeapi.watching import decode_event, lines_of

__all__ = ["AioKubeClient", "load_configuration"]

_APPLY = "application/apply-patch+yaml"
_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_PAGE_SIZE = 500
_MAX_PAGES = 1000
_MAX_RELISTS = 3

_Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class _RedirectRefused(aiohttp.ClientError):
    pass


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: _Handler
) -> aiohttp.ClientResponse:
    response = await handler(request)
    if response.status in (301, 302, 303, 307, 308):
        response.close()
        raise _RedirectRefused(f"redirected with {response.status}")
    return response


# The library warns of a missing kubeconfig and raises as well; our error says both, with the remedy.
logging.getLogger("kubernetes.aio.config.kube_config").setLevel(logging.ERROR)


async def load_configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """In the cluster: the service account, its token read again each minute. Else a kubeconfig.

    Raises:
        Unavailable: neither can be read.
    """
    configuration = Configuration()
    try:
        if not kubeconfig and not context:
            try:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except ConfigException:
                await load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig or None,
                context=context or None,
                client_configuration=configuration,
            )
    except (ConfigException, OSError) as error:
        raise Unavailable(
            f"no access to a cluster: {error}; this is no pod, and no kubeconfig could be read: set"
            " KUBECONFIG to one or put it at ~/.kube/config"
        ) from error
    return configuration


class AioKubeClient:
    """Implements `ports.KubeClient`. Use inside the event loop that made it; close it at the end."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        call_timeout_seconds: float = 15.0,
        write_timeout_seconds: float = 5.0,
        connect_timeout_seconds: float = 5.0,
        watch_silence_seconds: float = 70.0,
        field_manager: str = "slimscale",
    ) -> None:
        """write_timeout_seconds: a late write may outlive our lease, so it is the shorter one.

        watch_silence_seconds: servers send a bookmark each minute, so longer means a dead line.
        """
        configuration.client_session_kwargs = {
            "trust_env": False,
            "middlewares": (_refuse_redirects,),
            "read_bufsize": 2**18,
        }
        configuration.retries = None  # our queue retries, with backoff and jitter
        self._api = ApiClient(configuration)
        self._api.user_agent = "slimscale-operator"
        self._field_manager = field_manager
        self._read_limits = aiohttp.ClientTimeout(
            total=call_timeout_seconds, sock_connect=connect_timeout_seconds
        )
        self._write_limits = aiohttp.ClientTimeout(
            total=write_timeout_seconds, sock_connect=connect_timeout_seconds
        )
        self._connect_timeout_seconds = connect_timeout_seconds
        self._watch_silence_seconds = watch_silence_seconds

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str) -> Json | None:
        return await self._json("GET", path, missing=None)

    async def list(
        self, path: str, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult:
        for _ in range(_MAX_RELISTS):
            try:
                return await self._all_pages(path, label_selector, field_selector)
            except WatchExpired:
                continue  # the continue token outlived its snapshot: start over
        raise Unavailable(f"GET {path}: the list changed too fast to be read page by page")

    async def create(self, path: str, body: Json) -> Json:
        return await self._write("POST", path, body, _JSON)

    async def replace(self, path: str, body: Json) -> Json:
        return await self._write("PUT", path, body, _JSON)

    async def apply(self, path: str, body: Json, *, force: bool = False, manager: str = "") -> Json:
        query = {"force": "true"} if force else {}
        if manager:
            query["fieldManager"] = manager
        return await self._write("PATCH", path, body, _APPLY, query)

    async def merge_patch(self, path: str, body: Json) -> Json:
        return await self._write("PATCH", path, body, _MERGE)

    async def strategic_patch(self, path: str, body: Json) -> Json:
        return await self._write("PATCH", path, body, _STRATEGIC)

    async def delete(self, path: str, *, uid: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        await self._json("DELETE", path, body=body, missing={})

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[Json]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        if label_selector:
            query["labelSelector"] = label_selector
        # The client waits longer than the server, so that a normal end is the server's word; a
        # line that is cut without a word ends by silence, long before that.
        limits = aiohttp.ClientTimeout(
            total=timeout_seconds + 2 * self._watch_silence_seconds,
            sock_connect=self._connect_timeout_seconds,
            sock_read=self._watch_silence_seconds,
        )
        request = f"WATCH {path}"
        response = await self._send("GET", path, query=query, limits=limits, name=request)
        try:
            if response.status != 200:
                body = await self._read(response, request)
                raise error_of(
                    status=response.status, headers=response.headers, body=body, request=request
                )
            async for line in lines_of(response.content, request):
                yield decode_event(line, request)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{request}: {type(error).__name__}") from error
        finally:
            response.close()

    async def _all_pages(self, path: str, label_selector: str, field_selector: str) -> ListResult:
        query = {"limit": str(_PAGE_SIZE)}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        items: list[Json] = []
        for _ in range(_MAX_PAGES):
            page = await self._json("GET", path, query=query, missing={})
            items.extend((page or {}).get("items") or [])
            metadata: Json = (page or {}).get("metadata") or {}
            if not metadata.get("continue"):
                return ListResult(items=items, resource_version=metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]
        raise Unavailable(f"GET {path}: the list has no end")

    async def _write(
        self, verb: str, path: str, body: Json, content_type: str, query: Json | None = None
    ) -> Json:
        query = {"fieldManager": self._field_manager, **(query or {})}
        answer = await self._json(verb, path, query=query, body=body, content_type=content_type)
        if answer is None:
            raise Conflict(f"{verb} {path}: the object is gone")
        return answer

    async def _json(
        self,
        verb: str,
        path: str,
        *,
        query: Json | None = None,
        body: Json | None = None,
        content_type: str = _JSON,
        missing: Json | None = None,
    ) -> Json | None:
        """missing: what a 404 stands for in a read or a deletion."""
        request = f"{verb} {path}"
        response = await self._send(
            verb,
            path,
            query=query or {},
            body=body,
            content_type=content_type,
            limits=self._read_limits if verb == "GET" else self._write_limits,
            name=request,
        )
        data = await self._read(response, request)
        if response.status == 404 and verb in ("GET", "DELETE"):
            return missing
        if not 200 <= response.status < 300:
            raise error_of(
                status=response.status, headers=response.headers, body=data, request=request
            )
        try:
            answer = (
                await asyncio.to_thread(json.loads, data)
                if len(data) > 2**19
                else (json.loads(data))
            )
        except ValueError as error:
            raise Unavailable(f"{request}: the answer is no JSON") from error
        if not isinstance(answer, dict):
            raise Unavailable(f"{request}: the answer is no object")
        return answer

    async def _send(
        self,
        verb: str,
        path: str,
        *,
        query: Json,
        limits: aiohttp.ClientTimeout,
        name: str,
        body: Json | None = None,
        content_type: str = _JSON,
    ) -> aiohttp.ClientResponse:
        try:
            method, url, headers, _, _ = await self._api.param_serialize(
                verb,
                path,
                header_params={"Accept": _JSON, "Content-Type": content_type},
                auth_settings=["BearerToken"],
            )
            if query:
                url = f"{url}?{urlencode(query)}"
            answer = await self._api.call_api(
                method, url, headers, body=body, _request_timeout=limits
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            # The text of a transport error may hold the address; its class says enough.
            raise Unavailable(f"{name}: {type(error).__name__}") from error
        response: aiohttp.ClientResponse = answer.response
        return response

    @staticmethod
    async def _read(response: aiohttp.ClientResponse, name: str) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{name}: {type(error).__name__}") from error
