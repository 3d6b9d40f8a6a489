"""Follow the pod's thread count, for programs with pools of their own.

The count is a request. It becomes the acknowledged count only when the program's callback has
returned: the operator takes nothing else as current.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from slimscale.inpod.recorder import Recorder
from slimscale.inpod.threads_file import MAX_THREADS, Ignored, read_threads, threads_path

__all__ = ["ApplyThreads", "Follower", "follow"]

ApplyThreads = Callable[[int], int | None]
"""Gets the wanted count; returns the one in use when that differs (a library's own maximum)."""

_log = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 30.0
_QUIET: Final = frozenset({Ignored.ABSENT, Ignored.EMPTY})
"""Nobody has annotated the pod: that is no fault."""


class Follower:
    """One file, one pool. `apply()` or `pending()` and `acknowledge()` from the pool's owner."""

    def __init__(
        self,
        callback: ApplyThreads | None = None,
        *,
        path: str | Path | None = None,
        poll_seconds: float = 0.2,
        maximum: int = MAX_THREADS,
        recorder: Recorder | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0.0 < poll_seconds <= 60.0:
            raise ValueError("poll_seconds must be above 0 and at most 60")
        self._callback = callback
        self._path = Path(path) if path is not None else threads_path()
        self._poll_seconds = poll_seconds
        self._maximum = maximum
        self._recorder = recorder
        self._now = now
        self._lock = threading.Lock()
        self._wanted: int | None = None
        self._answered: int | None = None
        self._offered: int | None = None
        self._applied: int | None = None
        self._problem: Ignored | None = None
        self._next_look = float("-inf")
        self._next_try = float("-inf")
        self._failures = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def wanted(self) -> int | None:
        """The last good value of the file; None: there has been none."""
        return self._wanted

    @property
    def applied(self) -> int | None:
        """What was last acknowledged."""
        return self._applied

    def pending(self) -> int | None:
        """The count to apply now, or None. Cheap: reads the file once in `poll_seconds`."""
        with self._lock:
            now = self._now()
            if now >= self._next_look:
                self._next_look = now + self._poll_seconds
                self._look()
            if self._wanted is None or self._wanted == self._answered or now < self._next_try:
                return None
            self._offered = self._wanted
            return self._wanted

    def acknowledge(self, threads: int) -> None:
        """The pool uses `threads` now: the count that was pending, or what its library allows.

        Raises:
            ValueError: not positive.
        """
        if threads < 1:
            raise ValueError("threads must be at least 1")
        with self._lock:
            self._answered = self._offered
            self._applied = threads
            self._failures = 0
            self._next_try = float("-inf")
        if self._recorder is not None and not callable(self._recorder.threads_applied):
            self._recorder.threads_applied = threads

    def failed(self) -> None:
        """The pending count could not be applied: offer it again later, less and less often."""
        with self._lock:
            wait = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2 ** min(self._failures, 10))
            self._failures += 1
            self._next_try = self._now() + wait

    def apply(self) -> int | None:
        """Call the callback when a count is pending; the acknowledged count, or None.

        An exception of the callback is logged, not raised: the simulation goes on as it was.
        """
        if self._callback is None or (wanted := self.pending()) is None:
            return None
        try:
            used = self._callback(wanted)
            self.acknowledge(wanted if used is None else used)
        except Exception as error:
            if self._failures == 0:
                _log.warning("%d threads not applied (%s)", wanted, type(error).__name__)
            self.failed()
            return None
        return self._applied

    def start(self) -> None:
        """Call `apply` from a thread of its own until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="slimscale-follow", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.apply()
            self._stop.wait(self._poll_seconds)

    def _look(self) -> None:
        value = read_threads(self._path, maximum=self._maximum)
        if value.threads is not None and value.threads != self._wanted:
            self._wanted = value.threads
            # A new count has not failed yet.
            self._failures = 0
            self._next_try = float("-inf")
        if value.ignored is self._problem:
            return
        self._problem = value.ignored
        if value.ignored is None or value.ignored in _QUIET:
            return
        _log.warning(
            "the thread count in the file is %s; %s (annotate the pod with a whole number from 1 to %d)",
            value.ignored,
            _kept(value.threads),
            self._maximum,
        )
        if self._recorder is not None:
            self._recorder.value_ignored(value.ignored)


def _kept(threads: int | None) -> str:
    return f"using {threads}" if threads is not None else "keeping the last one"


def follow(
    callback: ApplyThreads,
    *,
    path: str | Path | None = None,
    poll_seconds: float = 0.2,
    apply_in: Literal["caller", "thread"] = "caller",
    maximum: int = MAX_THREADS,
    recorder: Recorder | None = None,
) -> Follower:
    """Have `callback` called with each new thread count.

    apply_in "caller": in the thread that calls the follower's `apply()`, which the pool's owner
    does in its loop. "thread": in a background thread, within `poll_seconds`; not for runtimes
    that keep the count per thread (OpenMP, numba, torch), where it would change nothing.
    """
    follower = Follower(
        callback, path=path, poll_seconds=poll_seconds, maximum=maximum, recorder=recorder
    )
    if apply_in == "thread":
        follower.start()
    elif apply_in != "caller":
        raise ValueError("apply_in must be 'caller' or 'thread'")
    return follower
