"""Routers are asked over HTTP: little, quickly, without redirects; silence is no report."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import RouterReport
from slimscale.observe import router_reports
from slimscale.observe.router_reports import RouterReader
from tests.support.http_server import serve
from tests.support.inferences import inference_spec

SPEC = SlimInferenceSpec.model_validate(inference_spec(scaling={"stableWindowSeconds": 30}))
GOOD = b'{"demand": {"stableRowsPerSecond": 5}}'


def router(name: str = "r", address: str | None = "10.0.0.1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"podIP": address}}


@asynccontextmanager
async def answering(
    monkeypatch: pytest.MonkeyPatch, handler: Any, **limits: Any
) -> AsyncIterator[RouterReader]:
    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/elsewhere":
            return web.Response(body=GOOD)
        answer: web.StreamResponse = await handler(request)
        return answer

    async with serve(handle) as port:
        monkeypatch.setattr(router_reports, "ROUTER_STATUS_PORT", port)
        monkeypatch.setattr(router_reports, "pod_address", lambda ip: ip and "127.0.0.1")
        reader = RouterReader(**limits)
        try:
            yield reader
        finally:
            await reader.close()


async def ask(
    monkeypatch: pytest.MonkeyPatch, handler: Any, *pods: dict[str, Any], **limits: Any
) -> tuple[RouterReport, ...]:
    async with answering(monkeypatch, handler, **limits) as reader:
        return await reader.fetch(pods or (router(),), SPEC)


async def test_each_router_is_asked_for_the_windows_of_the_spec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    async def state(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        return web.Response(body=GOOD)

    found = await ask(monkeypatch, state, router("a"), router("b"), router("c", None))
    assert [report.router for report in found] == ["a", "b"]
    assert asked == [{"stable": "30", "panic": "6", "percentile": "95.0"}] * 2


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 500},
        {"status": 404},
        {"status": 302, "headers": {"Location": "/elsewhere"}},
        {"body": b"<html>"},
        {"body": b" " * 5000},
    ],
)
async def test_another_answer_counts_as_none(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    """E1: an outage of the figures is never a service without load."""

    async def state(_request: web.Request) -> web.Response:
        return web.Response(**answer)

    assert await ask(monkeypatch, state, limit_bytes=4096) == ()


async def test_a_silent_router_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def state(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    assert await ask(monkeypatch, state) == ()
