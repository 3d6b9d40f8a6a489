"""A real HTTP server on this machine, with handlers that a test writes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["Handler", "serve"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Yield the port; every path goes to the handler."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
