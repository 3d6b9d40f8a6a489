"""Follow and serve with one call."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from slimscale.inpod.executor import ThreadPool
from slimscale.inpod.follower import ApplyThreads, Follower, follow
from slimscale.inpod.recorder import Recorder

if TYPE_CHECKING:
    from slimscale.inpod.server import MetricsServer

__all__ = ["Session", "start"]

_log = logging.getLogger(__name__)


class Session:
    """What `start` has started. Ends with the process, with `stop`, or as a context manager."""

    def __init__(
        self, recorder: Recorder, follower: Follower, server: "MetricsServer | None"
    ) -> None:
        self.recorder = recorder
        self.follower = follower
        self.server = server

    def stop(self) -> None:
        self.follower.stop()
        if self.server is not None:
            self.server.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    pool: ThreadPool | None = None,
    *,
    callback: ApplyThreads | None = None,
    recorder: Recorder | None = None,
    threads: int | None = None,
    path: str | Path | None = None,
    port: int | None = None,
    poll_seconds: float = 0.2,
) -> Session:
    """Follow the pod's thread count and serve its metrics.

    With `pool`: it is resized from a background thread, which is safe for our pool. With
    `callback`: your own pool; call `session.follower.apply()` in the loop of the thread that owns
    it, report tasks to `session.recorder`, and say in `threads` with how many it started.

    A metrics port that is taken is logged: a simulation does not stop for its metrics.

    Raises:
        ValueError: not exactly one of `pool` and `callback`.
    """
    if (pool is None) == (callback is None):
        raise ValueError("give either a pool or a callback")
    if pool is not None:
        recorder = pool.recorder
        follower = follow(
            pool.resize,
            path=path,
            poll_seconds=poll_seconds,
            apply_in="thread",
            recorder=recorder,
        )
    else:
        recorder = recorder if recorder is not None else Recorder()
        if threads is not None:
            recorder.threads_applied = threads
        follower = Follower(callback, path=path, poll_seconds=poll_seconds, recorder=recorder)
    return Session(recorder, follower, _serve(recorder, port))


def _serve(recorder: Recorder, port: int | None) -> "MetricsServer | None":
    from slimscale.inpod.server import serve  # http.server is the dearest import of all

    try:
        return serve(recorder, port=port)
    except OSError as error:
        _log.warning("metrics are not served: %s", error.strerror or type(error).__name__)
        return None
