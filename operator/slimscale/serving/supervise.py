"""Background loops that must not end: a fault is logged, counted, and the loop starts anew."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

__all__ = ["Supervised"]

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class Supervised:
    """Runs `loop` again and again until cancelled. `failed` is told of each fault, for a metric.

    `well` is False from a fault until the loop calls `alive()` again: part of readiness.
    """

    def __init__(
        self,
        name: str,
        loop: Callable[[], Awaitable[None]],
        *,
        failed: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self.name = name
        self.well = True
        self._loop = loop
        self._failed = failed
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._task: asyncio.Task[None] | None = None

    def alive(self) -> None:
        """The loop has gone round once more."""
        self.well = True
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._loop()
                _log.error("the loop %s has ended and starts anew", self.name)
            except Exception:
                _log.exception("the loop %s failed and starts anew", self.name)
            self.well = False
            self._failed(self.name)
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
