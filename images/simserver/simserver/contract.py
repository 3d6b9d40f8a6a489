"""The thread contract through `slimscale.inpod`: follow a count, measure tasks, serve metrics.

Heavy and blocking tasks run in inpod's pool, which counts them itself. The lock-step team is a
pool of the program's own: its blocks are reported here.
"""

import time
from bisect import bisect_left
from typing import Self

from slimscale.inpod import Follower, Recorder, ThreadPool
from slimscale.inpod.cgroup import cpu_count_available
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.inpod.server import MetricsServer, page

from .figures import Figures
from .settings import MOST_THREADS
from .team import Block

__all__ = ["InpodContract", "LocalContract"]

CORES_SECONDS = 1.0
"""How long a reading of the quota is used: an in-place resize changes it."""


class LocalContract:
    """Pool and recorder without a pod round them: the count is set with `want`."""

    def __init__(self, threads: int) -> None:
        self._lockstep = 0
        self.recorder = Recorder()
        self.pool = ThreadPool(threads, "simserver", recorder=self.recorder)
        self.recorder.outstanding = self._outstanding  # of both kinds
        # A chunk's time is what it takes with a CPU (team.py): it waits for none, and costs its length.
        self.recorder.costs_are_recorded(cpu=True, runqueue=True)
        self._wanted = threads
        self._cores = 1.0
        self._cores_until = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    @property
    def cores(self) -> float:
        now = time.monotonic()
        if now >= self._cores_until:
            self._cores, self._cores_until = cpu_count_available(), now + CORES_SECONDS
        return self._cores

    def want(self, threads: int) -> None:
        self._wanted = threads

    def wanted_threads(self) -> int:
        return self._wanted

    def apply(self, threads: int) -> None:
        if threads != self.pool.max_workers:
            self.pool.resize(threads)

    def record(self, block: Block) -> None:
        """All of a block's chunks at once: they are too many to be counted one by one."""
        accumulator = self.recorder.accumulator()
        seconds = block.task_seconds
        accumulator.task_counts[bisect_left(BUCKET_BOUNDS_SECONDS, seconds)] += block.tasks
        accumulator.task_seconds += seconds * block.tasks
        accumulator.cpu_seconds += seconds * block.tasks  # it computes all the time (team.py)
        accumulator.dispatch(block.dispatch_seconds, block.tasks)

    def outstanding(self, tasks: int) -> None:
        self._lockstep = tasks

    def _outstanding(self) -> int:
        return self.pool.outstanding + self._lockstep


class InpodContract(LocalContract):
    """In a pod: the count comes from the annotation's file, the figures go out on a port.

    Raises OSError where the port is taken: without its metrics the pod would never be ready.
    """

    def __init__(self, threads: int, *, metrics_port: int, figures: Figures) -> None:
        super().__init__(threads)
        self._follower = Follower(recorder=self.recorder, maximum=MOST_THREADS)
        self._server = MetricsServer(
            lambda: page(self.recorder) + figures.render(), port=metrics_port
        )

    def __exit__(self, *arguments: object) -> None:
        self._server.close()
        super().__exit__(*arguments)

    @property
    def metrics_port(self) -> int:
        return self._server.port

    def wanted_threads(self) -> int:
        pending = self._follower.pending()
        if pending is not None:
            self._wanted = pending
        return self._wanted

    def apply(self, threads: int) -> None:
        super().apply(threads)
        self._follower.acknowledge(threads)
