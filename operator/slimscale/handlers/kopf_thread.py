"""kopf in a thread and an event loop of its own.

When kopf ends it cancels every task of its loop, ours too, and some answers of an API server end it
(410 to a watch). Apart from us it can be started again, and nothing of ours is cut off. What it
hears comes over by `call_soon_threadsafe`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import kopf

from slimscale.controllers.queue import Backoff
from slimscale.handlers.startup import kopf_settings

__all__ = ["run_kopf"]

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first_seconds=1.0, cap_seconds=60.0)
_STOP_SECONDS = 10.0


async def run_kopf(
    make_registry: Callable[[], kopf.OperatorRegistry],
    *,
    namespaces: tuple[str, ...],
    rng: Random,
    on_failure: Callable[[], None],
) -> None:
    """Run until cancelled; start again whenever kopf ends or fails."""
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    failures = 0
    with_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kopf")
    running: asyncio.Future[None] | None = None
    try:
        while True:
            running = loop.run_in_executor(with_thread, _run, make_registry(), namespaces, stop)
            started = loop.time()
            try:
                await asyncio.shield(running)
            except Exception as error:  # whatever ended it, it is started again
                _log.warning("kopf failed", extra={"error": type(error).__name__})
            failures = 1 if loop.time() - started > _BACKOFF.cap_seconds else failures + 1
            on_failure()
            await asyncio.sleep(_BACKOFF.pause_seconds(failures, rng))
    finally:
        stop.set()
        if running is not None:
            await asyncio.wait([running], timeout=_STOP_SECONDS)
        with_thread.shutdown(wait=False, cancel_futures=True)


def _run(
    registry: kopf.OperatorRegistry, namespaces: tuple[str, ...], stop: threading.Event
) -> None:
    # The process's own loop handles signals, so kopf need not say that it does not.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    asyncio.run(
        kopf.operator(
            registry=registry,
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
    )
