"""How many threads a session gets: the configuration's count, the contract's, or the CPU quota's."""

import math
import os
from collections.abc import Callable

from slimscale.inpod.cgroup import affinity_count, cpu_count_available
from slimscale.inpod.follower import Follower
from slimscale.inpod.recorder import Recorder
from slimscale.inpod.threads_file import THREADS_ENV, parse_threads

__all__ = ["ThreadSource"]


class ThreadSource:
    """`wanted` is cheap enough to be asked several times a second.

    `fixed` of the configuration goes first; then the file that SimWorkload writes, then the
    variable SLIMSCALE_THREADS, then the CPU quota rounded down, which is looked at each time since
    a pod can be resized. Never more than the CPUs that the process may use: a batch is computing.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        cores: Callable[[], float] = cpu_count_available,
        most: Callable[[], int] = affinity_count,
    ) -> None:
        self.fixed: int | None = None
        self._follower = Follower(recorder=recorder)
        self._cores = cores
        self._most = most

    def wanted(self) -> int:
        """At least 1."""
        self._follower.pending()  # reads the file now and then, and logs what is wrong with it
        given = self.fixed or self._follower.wanted or _from_environment()
        if given is None:
            given = math.floor(self._cores())
        return max(1, min(given, self._most()))


def _from_environment() -> int | None:
    return parse_threads(os.environ.get(THREADS_ENV, "").encode()).threads
