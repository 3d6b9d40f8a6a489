"""The work queue: any trigger says `wake(key)`, one reconcile of a key runs at a time.

Wakes of a key that is waiting or running become one more run, never many. A run that fails comes
again after a growing pause with jitter, so that an outage is not met by a stampede; a run may ask
to be looked at again by itself. Times are the event loop's own, so that tests run in virtual time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from slimscale.exceptions import SlimError, Unavailable

__all__ = ["Backoff", "Key", "QueueObserver", "WorkQueue"]

Key = tuple[str, str]
"""Namespace and name."""

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Returns seconds until the next look even if nothing happens; None: only when woken."""

_log = logging.getLogger(__name__)


class QueueObserver(Protocol):
    """For metrics; all calls are cheap."""

    def queued(self, depth: int) -> None: ...
    def failed(self, key: Key, attempts: int, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause before attempt n: first x 2^(n-1), at most cap, times 1 +- jitter."""

    first_seconds: float = 0.5
    cap_seconds: float = 300.0
    jitter_ratio: float = 0.2

    def pause_seconds(self, attempts: int, rng: Random) -> float:
        pause = min(self.cap_seconds, self.first_seconds * 2.0 ** min(attempts - 1, 32))
        return pause * (1.0 + self.jitter_ratio * (2.0 * rng.random() - 1.0))


@dataclass(slots=True)
class _State:
    ready: bool = False
    running: bool = False
    again: bool = False
    again_urgent: bool = False
    woken: bool = False
    """By something that happened; not by the time that its last run asked for."""
    attempts: int = 0
    gone: bool = False
    timer: asyncio.TimerHandle | None = None


class WorkQueue:
    def __init__(
        self,
        reconcile: Reconcile,
        *,
        rng: Random,
        backoff: Backoff = Backoff(),
        workers: int = 4,
        run_limit_seconds: float = 120.0,
        observer: QueueObserver | None = None,
    ) -> None:
        """run_limit_seconds: a reconcile that takes longer is cancelled and counts as failed."""
        self._reconcile = reconcile
        self._rng = rng
        self._backoff = backoff
        self._workers = workers
        self._run_limit_seconds = run_limit_seconds
        self._observer = observer
        self._states: dict[Key, _State] = {}
        self._ready: asyncio.Queue[Key] = asyncio.Queue()

    def wake(self, key: Key, *, after_seconds: float = 0.0, urgent: bool = True) -> None:
        """Look at the key, at once or later. The earliest of several wishes wins.

        Not urgent (a pod changed): a key that fails keeps its pause. Urgent (the user changed the
        object): it is looked at even then.
        """
        state = self._states.setdefault(key, _State())
        state.gone = False
        state.woken = True
        self._wake(key, state, after_seconds=after_seconds, urgent=urgent)

    def was_woken(self, key: Key) -> bool:
        """Whether something happened since this was last asked; else a run is merely due again."""
        state = self._states.get(key)
        if state is None:
            return True
        woken, state.woken = state.woken or state.attempts > 0, False
        return woken

    def _wake(self, key: Key, state: _State, *, after_seconds: float, urgent: bool) -> None:
        if after_seconds > 0:
            self._wake_later(key, state, after_seconds)
        elif state.running:
            state.again = True
            state.again_urgent = state.again_urgent or urgent
        elif not state.ready and (urgent or not state.attempts):
            self._make_ready(key, state)

    def forget(self, key: Key) -> None:
        """The object is gone: no timer, no memory of failures. A later wake begins anew."""
        state = self._states.get(key)
        if state is None:
            return
        self._stop_timer(state)
        state.gone, state.attempts = True, 0
        state.again = state.again_urgent = False
        if not state.running and not state.ready:
            del self._states[key]

    def attempts(self, key: Key) -> int:
        """Failures in a row."""
        state = self._states.get(key)
        return state.attempts if state is not None else 0

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return self._ready.qsize()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"reconcile-{number}")

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            state = self._states[key]
            state.ready, state.running = False, True
            self._stop_timer(state)
            try:
                async with asyncio.timeout(self._run_limit_seconds):
                    next_seconds = await self._reconcile(key)
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise  # we are to end; a task group takes any other one for that, silently
                self._failed(key, state, RuntimeError("something in it was cancelled"))
            except Exception as error:  # whatever it is, other keys go on
                self._failed(key, state, error)
            else:
                state.attempts = 0
                if next_seconds is not None and not state.gone:
                    self._wake_later(key, state, next_seconds)
            finally:
                state.running = False
            self._after(key, state)

    def _after(self, key: Key, state: _State) -> None:
        if state.again:
            state.again = state.again_urgent = False
            self._make_ready(key, state)
        elif state.gone:
            self._stop_timer(state)
            self._states.pop(key, None)

    def _failed(self, key: Key, state: _State, error: Exception) -> None:
        if state.gone:
            return
        state.attempts += 1
        pause = self._backoff.pause_seconds(state.attempts, self._rng)
        if isinstance(error, Unavailable) and error.retry_after_seconds is not None:
            pause = max(pause, error.retry_after_seconds)
        state.again = state.again_urgent  # what is not urgent waits for the pause to end
        self._wake_later(key, state, pause)
        expected = isinstance(error, SlimError | TimeoutError)
        _log.warning(
            "reconcile failed, trying again",
            extra={
                "object": "/".join(key),
                "attempts": state.attempts,
                "pause_seconds": round(pause, 1),
                "error": str(error) if isinstance(error, SlimError) else type(error).__name__,
            },
            exc_info=None if expected else error,
        )
        if self._observer is not None:
            self._observer.failed(key, state.attempts, error)

    def _make_ready(self, key: Key, state: _State) -> None:
        state.ready = True
        self._ready.put_nowait(key)
        if self._observer is not None:
            self._observer.queued(self._ready.qsize())

    def _wake_later(self, key: Key, state: _State, after_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + after_seconds
        if state.timer is not None and state.timer.when() <= due:
            return
        self._stop_timer(state)
        state.timer = loop.call_at(due, self._due, key)

    def _due(self, key: Key) -> None:
        state = self._states.get(key)
        if state is not None and not state.gone:
            state.timer = None
            # Urgent: the pause, if there was one, ends here.
            self._wake(key, state, after_seconds=0.0, urgent=True)

    @staticmethod
    def _stop_timer(state: _State) -> None:
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
