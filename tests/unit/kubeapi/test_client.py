"""The client against a server on this machine that behaves well, badly and not at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from slimscale.exceptions import Conflict, NotPermitted, SlimError, Unavailable
from slimscale.kubeapi.client import AioKubeClient
from slimscale.kubeapi.ports import Json, Refused, WatchExpired
from tests.support.http_server import Handler, serve

POD = "/api/v1/namespaces/ns/pods/a"
PODS = "/api/v1/namespaces/ns/pods"


@asynccontextmanager
async def client_of(handler: Handler, **limits: Any) -> AsyncIterator[AioKubeClient]:
    async with serve(handler) as port:
        configuration = Configuration(host=f"http://127.0.0.1:{port}")
        configuration.api_key["BearerToken"] = "bearer first"
        client = AioKubeClient(configuration, **limits)
        try:
            yield client
        finally:
            await client.close()


def _status(code: int, message: str = "no", **more: Any) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, **more}
    return web.json_response(body, status=code)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (401, NotPermitted),
        (403, NotPermitted),
        (404, Conflict),
        (409, Conflict),
        (410, WatchExpired),
        (422, Refused),
        (400, Refused),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
async def test_each_answer_becomes_the_error_that_callers_know(
    code: int, error: type[SlimError]
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return _status(code, "the server's words")

    async with client_of(answer) as client:
        with pytest.raises(error, match=rf"PATCH {POD}: {code} the server's words"):
            await client.merge_patch(POD, {})


async def test_a_refusal_carries_the_fields_that_are_wrong() -> None:
    async def answer(_request: web.Request) -> web.Response:
        details = {"causes": [{"field": "spec.cpu", "message": "too much"}]}
        return _status(422, details=details)

    async with client_of(answer) as client:
        with pytest.raises(Refused) as caught:
            await client.create(PODS, {})
        assert caught.value.causes == ("spec.cpu: too much",)


async def test_a_page_that_is_no_status_is_never_quoted() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>internal-proxy.example secret</html>")

    async with client_of(answer) as client:
        with pytest.raises(Unavailable) as caught:
            await client.get(POD)
        assert "secret" not in str(caught.value)


async def test_a_busy_server_s_pause_reaches_the_queue() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"})

    async with client_of(answer) as client:
        with pytest.raises(Unavailable) as caught:
            await client.list(PODS)
        assert caught.value.retry_after_seconds == 7


async def test_what_is_not_there_is_none_in_a_read_and_empty_in_a_list() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return _status(404)

    async with client_of(answer) as client:
        assert await client.get(POD) is None
        assert (await client.list(PODS)).items == []
        await client.delete(POD, uid="u")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_refused_and_the_token_goes_nowhere(code: int) -> None:
    seen: list[str] = []

    async def other(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async with serve(other) as port:

        async def answer(_request: web.Request) -> web.Response:
            location = f"http://127.0.0.1:{port}/metadata"
            return web.Response(status=code, headers={"Location": location})

        async with client_of(answer) as client:
            with pytest.raises(Unavailable):
                await client.get(POD)
    assert seen == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"kind": "Pod"})

    async with client_of(answer) as client:
        assert await client.get(POD) == {"kind": "Pod"}


async def test_a_rotated_token_is_used_from_the_next_call() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with client_of(answer) as client:
        await client.get(POD)

        def rotate(configuration: Configuration) -> None:
            configuration.api_key["BearerToken"] = "bearer second"

        client._api.configuration.refresh_api_key_hook = rotate
        await client.get(POD)
    assert seen == ["bearer first", "bearer second"]


async def test_a_server_that_never_answers_is_given_up() -> None:
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    limits = {"call_timeout_seconds": 0.05, "write_timeout_seconds": 0.05}
    async with client_of(answer, **limits) as client:
        with pytest.raises(Unavailable):
            await client.get(POD)
        with pytest.raises(Unavailable):
            await client.merge_patch(POD, {})


async def test_a_server_that_is_not_there_is_unavailable_and_its_address_is_not_told() -> None:
    client = AioKubeClient(Configuration(host="http://127.0.0.1:1"))
    with pytest.raises(Unavailable) as caught:
        await client.get(POD)
    await client.close()
    assert "127.0.0.1" not in str(caught.value)


async def test_a_list_is_read_to_its_last_page_and_begun_anew_when_its_snapshot_is_gone() -> None:
    asked: list[tuple[str, str]] = []
    expired = False

    async def answer(request: web.Request) -> web.Response:
        nonlocal expired
        token = request.query.get("continue", "")
        asked.append((token, request.query.get("labelSelector", "")))
        if token == "2" and not expired:
            expired = True
            return _status(410)
        following = {"": "1", "1": "2", "2": ""}[token]
        metadata = {"continue": following, "resourceVersion": "77"}
        return web.json_response({"items": [{"page": token}], "metadata": metadata})

    async with client_of(answer) as client:
        listed = await client.list(PODS, label_selector="app in (a,b)")
    assert [item["page"] for item in listed.items] == ["", "1", "2"]
    assert listed.resource_version == "77"
    assert {selector for _, selector in asked} == {"app in (a,b)"}


async def test_each_write_says_who_writes_and_in_which_form() -> None:
    seen: list[tuple[str, str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        query = request.query.get("fieldManager", "") + request.query.get("force", "")
        seen.append((request.method, request.content_type, query, await request.json()))
        return web.json_response({})

    async with client_of(answer) as client:
        await client.create(PODS, {"a": 1})
        await client.replace(POD, {"a": 1})
        await client.apply(POD, {"a": 1}, force=True)
        await client.merge_patch(POD, {"a": 1})
        await client.strategic_patch(POD, {"a": 1})
        await client.delete(POD, uid="u1")
    assert [entry[:3] for entry in seen[:5]] == [
        ("POST", "application/json", "slimscale"),
        ("PUT", "application/json", "slimscale"),
        ("PATCH", "application/apply-patch+yaml", "slimscaletrue"),
        ("PATCH", "application/merge-patch+json", "slimscale"),
        ("PATCH", "application/strategic-merge-patch+json", "slimscale"),
    ]
    assert all(entry[3] == {"a": 1} for entry in seen[:5])
    assert seen[5][3]["preconditions"] == {"uid": "u1"}


def _stream(*chunks: bytes, hang: bool = False) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hang:
            await asyncio.Event().wait()
        return response

    return answer


def _event(kind: str = "MODIFIED", **more: Any) -> bytes:
    return (
        json.dumps({"type": kind, "object": {"metadata": {"name": "a"}, **more}}).encode() + b"\n"
    )


async def _watch(client: AioKubeClient) -> list[Json]:
    return [event async for event in client.watch(PODS, resource_version="5")]


async def test_a_watch_yields_whole_events_however_the_network_cuts_them() -> None:
    large = _event(data="x" * 600_000)
    stream = _event() + large + _event("BOOKMARK")
    chunks = [stream[at : at + 70_001] for at in range(0, len(stream), 70_001)]
    async with client_of(_stream(*chunks)) as client:
        events = await _watch(client)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "BOOKMARK"]
    assert len(events[1]["object"]["data"]) == 600_000


async def test_a_watch_asks_for_bookmarks_and_for_an_end() -> None:
    asked: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        asked.update(request.query)
        return web.Response()

    async with client_of(answer) as client:
        assert await _watch(client) == []
    assert asked["allowWatchBookmarks"] == "true"
    assert asked["resourceVersion"] == "5"
    assert int(asked["timeoutSeconds"]) > 0


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            _stream(json.dumps({"type": "ERROR", "object": GONE}).encode()),
            id="last-line-without-an-end",
        ),
        pytest.param(
            _stream(_event(), json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"),
            id="error-event",
        ),
        pytest.param(_stream(json.dumps(GONE).encode() + b"\n"), id="status-in-the-stream"),
    ],
)
async def test_a_watch_that_is_too_old_is_never_taken_for_data_or_an_end(answer: Handler) -> None:
    async with client_of(answer) as client:
        with pytest.raises(WatchExpired):
            await _watch(client)


async def test_410_as_the_answer_to_a_watch_is_an_expiry() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return _status(410)

    async with client_of(answer) as client:
        with pytest.raises(WatchExpired):
            await _watch(client)


async def test_a_watch_that_goes_silent_without_an_end_is_given_up() -> None:
    async with client_of(_stream(_event(), hang=True), watch_silence_seconds=0.1) as client:
        events = client.watch(PODS, resource_version="5")
        assert (await anext(events))["type"] == "MODIFIED"
        with pytest.raises(Unavailable):
            await anext(events)


@pytest.mark.parametrize(
    "line",
    [b'{"type":', b"not json\n", b'{"object": {}}\n', b"[]\n", b'{"type":"ERROR","object":null}\n'],
)
async def test_what_is_no_event_interrupts_the_watch_instead_of_reaching_callers(
    line: bytes,
) -> None:
    async with client_of(_stream(line)) as client:
        with pytest.raises(Unavailable):
            await _watch(client)
