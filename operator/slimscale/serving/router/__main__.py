"""`python -m slimscale.serving.router`."""

import asyncio
import logging
import signal
import sys
from random import SystemRandom

import uvloop
from pydantic import ValidationError

from slimscale.serving.router.app import Router
from slimscale.serving.router.settings import RouterSettings

_log = logging.getLogger("slimscale.serving.router")


async def serve(settings: RouterSettings) -> None:
    """Until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    router = Router(settings, SystemRandom())
    await router.start()
    await stop.wait()
    _log.info("shutting down")
    await router.stop()


def main() -> int:
    try:
        settings = RouterSettings()
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            field = ".".join(map(str, fault["loc"]))
            sys.stderr.write(f"setting {field}: {fault['msg']}\n")
        return 2
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        uvloop.run(serve(settings))
    except (OSError, ValueError) as error:
        _log.error("%s: %s", settings.config, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
