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
from kopf._cogs.structs.credentials import Vault

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
    failures = 0
    threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kopf")
    run = _Run(namespaces)
    running: asyncio.Future[None] | None = None
    try:
        while True:
            started = loop.time()
            running = loop.run_in_executor(threads, run, make_registry())
            try:
                await asyncio.shield(running)
            except Exception as error:  # whatever ended it, it is started again
                _log.warning("kopf failed", extra={"error": type(error).__name__})
            failures = 1 if loop.time() - started > _BACKOFF.cap_seconds else failures + 1
            on_failure()
            await asyncio.sleep(_BACKOFF.pause_seconds(failures, rng))
    finally:
        run.stop()
        if running is not None:
            await asyncio.wait([running], timeout=_STOP_SECONDS)
        threads.shutdown(wait=False, cancel_futures=True)


class _Run:
    """One kopf after another, in one thread; stopped from another thread."""

    def __init__(self, namespaces: tuple[str, ...]) -> None:
        self._namespaces = namespaces
        self._lock = threading.Lock()
        self._stopped = False
        self._stop_this: Callable[[], object] = lambda: None

    def __call__(self, registry: kopf.OperatorRegistry) -> None:
        # The process's own loop handles signals, so kopf need not say that it does not.
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
        asyncio.run(self._operator(registry))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._stop_this()

    async def _operator(self, registry: kopf.OperatorRegistry) -> None:
        # An event of this loop: for one of `threading`, kopf leaves a thread behind that waits.
        flag, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            if self._stopped:
                return
            self._stop_this = lambda: loop.call_soon_threadsafe(flag.set)
        vault = Vault()
        try:
            await kopf.operator(
                registry=registry,
                settings=kopf_settings(),
                standalone=True,
                # Only peering uses it, which is off; left out, kopf asks for the user's name, and
                # a numeric user of a container has none.
                identity="slimscale",  # type: ignore[arg-type]
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=flag,
                vault=vault,
            )
        finally:
            # Once more: a watch that tried again while kopf was ending has opened another session.
            await vault.close()
            with self._lock:
                self._stop_this = lambda: None
