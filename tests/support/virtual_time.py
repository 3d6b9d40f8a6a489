"""An event loop whose clock jumps to the next timer: hours pass in milliseconds, no test waits."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LoopClock", "run_virtual"]

_START_WALL_SECONDS = 1_800_000_000.0
_T = TypeVar("_T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time-out, moves the clock on by it."""

    now_seconds = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the test waits for something that no timer will bring")
        if not ready and timeout is not None and timeout > 0:
            self.now_seconds += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_seconds


class LoopClock:
    """`domain.clock.Clock` on the running loop's time. Wall time can be stepped, monotonic not."""

    def __init__(self) -> None:
        self.wall_step_seconds = 0.0
        self.frozen_seconds = 0.0
        """Added to the monotonic clock: the process was stopped for so long."""

    def now_seconds(self) -> float:
        return _START_WALL_SECONDS + self._loop_seconds() + self.wall_step_seconds

    def monotonic_seconds(self) -> float:
        return self._loop_seconds() + self.frozen_seconds

    @staticmethod
    def _loop_seconds() -> float:
        return asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """`asyncio.run` in virtual time. Threads do not exist here: `to_thread` would not end."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
