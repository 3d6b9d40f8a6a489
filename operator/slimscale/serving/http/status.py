"""Metrics and probes on a port of their own, so that load on the data port can't starve them."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from slimscale.serving.http.messages import Limits, Request, Response, text_response
from slimscale.serving.http.server import HttpServer

__all__ = ["StatusServer"]

_LIMITS = Limits(body_bytes=0, connections=64, receive_seconds=5.0)


class StatusServer:
    """GET `/metrics`, `/healthz` and `/readyz`; nothing here changes anything.

    `live` and `ready` give None when all is well, else the reason in words (answered with a 503).
    `refresh` is called before metrics are written: for gauges that are only worked out then.
    `pages` adds paths to read.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        live: Callable[[], str | None],
        ready: Callable[[], str | None],
        refresh: Callable[[], None] = lambda: None,
        pages: Mapping[str, Callable[[Request], Response]] | None = None,
    ) -> None:
        self._registry = registry
        self._refresh = refresh
        self._pages = dict(pages or {})
        self._probes = {"/healthz": live, "/readyz": ready}
        self.server = HttpServer(self._handle, limits=_LIMITS, name="status server")

    async def start(self, host: str | None, port: int) -> None:
        await self.server.start(host, port)

    @property
    def port(self) -> int:
        return self.server.port

    async def close(self) -> None:
        await self.server.close()

    def _handle(self, request: Request) -> Response:
        if request.method not in (b"GET", b"HEAD"):
            return text_response(405, "only GET\n")
        if request.path == "/metrics":
            self._refresh()
            accept = request.headers.get(b"accept", b"").decode("latin-1")
            encode, content_type = choose_encoder(accept)
            body = encode(self._registry)
            return Response(200, body, ((b"content-type", content_type.encode()),))
        page = self._pages.get(request.path)
        if page is not None:
            return page(request)
        probe = self._probes.get(request.path)
        if probe is None:
            known = ", ".join(("/metrics", *self._probes, *self._pages))
            return text_response(404, f"known: {known}\n")
        problem = probe()
        return text_response(200 if problem is None else 503, f"{problem or 'ok'}\n")
