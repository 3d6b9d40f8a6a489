"""Probes and metrics over HTTP. On the event loop, so that a stalled loop fails them by silence."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from slimscale.controllers.heartbeat import Health

__all__ = ["ProbeServer"]


class ProbeServer:
    """`/healthz` and `/readyz` on one port, `/metrics` on another; nothing that changes anything."""

    def __init__(self, *, health: Callable[[], Health], metrics: CollectorRegistry) -> None:
        self._health = health
        self._metrics = metrics
        self._runners: list[web.AppRunner] = []

    async def start(self, *, host: str, health_port: int, metrics_port: int) -> tuple[int, int]:
        """Listen; return the ports in use (for port 0)."""
        probes = web.Application()
        probes.router.add_get("/healthz", self._healthz)
        probes.router.add_get("/readyz", self._readyz)
        metrics = web.Application()
        metrics.router.add_get("/metrics", self._serve_metrics)
        return (
            await self._listen(probes, host, health_port),
            await self._listen(metrics, host, metrics_port),
        )

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(self, app: web.Application, host: str, port: int) -> int:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, host, port).start()
        return int(runner.addresses[0][1])

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _answer(ok=(health := self._health()).alive, health=health)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(ok=(health := self._health()).ready, health=health)

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


def _answer(*, ok: bool, health: Health) -> web.Response:
    return web.json_response(
        {"ok": ok, "problems": list(health.problems)}, status=200 if ok else 503
    )
