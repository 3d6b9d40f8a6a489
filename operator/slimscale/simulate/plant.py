"""One pod that runs: it can be told to go on, given other threads, CPU and work, and looked at."""

import math
from itertools import accumulate

from slimscale.domain.contract import ContractSample, HistogramSnapshot
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.distributions import seed_state
from slimscale.simulate.engine import run, start_threads
from slimscale.simulate.state import new_state, set_quota_cores, set_workload, wanted_threads
from slimscale.simulate.workload import MOST_THREADS, Host, Workload
from slimscale.threads.checks import require_count, require_in_range

__all__ = ["Plant"]

_NO_END = 2**62
_BOUNDS_SECONDS = (*BUCKET_BOUNDS_SECONDS, math.inf)


class Plant:
    """A simulated pod whose state goes on from call to call.

    Calls in the same order with the same values and seed give the same figures, bit by bit.
    """

    def __init__(
        self,
        workload: Workload,
        host: Host,
        *,
        threads: int,
        seed: int,
        pod_uid: str = "plant-0",
        start_seconds: float = 0.0,
    ) -> None:
        """`start_seconds`: what the clock shows when the pod starts. Raises ValueError on counts."""
        self.pod_uid = pod_uid
        self.host = host
        self.start_seconds = start_seconds
        self._workload = workload
        self._quota_cores = host.quota_cores
        self._threads = 0
        self._state = new_state(workload, host, seed=seed_state(seed))
        self.set_threads(threads)

    @property
    def now_seconds(self) -> float:
        return self.start_seconds + float(self._state["now"][0])

    @property
    def threads(self) -> int:
        """As set; surplus threads may still run their last task."""
        return self._threads

    @property
    def quota_cores(self) -> float | None:
        return self._quota_cores

    @property
    def workload(self) -> Workload:
        return self._workload

    @property
    def tasks_done(self) -> int:
        return int(self._state["tasks"][0])

    def set_workload(self, workload: Workload) -> None:
        """Parts of tasks that begin from now on are of the new load."""
        self._workload = workload
        set_workload(self._state, workload)
        self._want()

    def set_threads(self, threads: int) -> None:
        """New threads start now; surplus threads end after their task. Raises ValueError."""
        self._threads = require_count(
            "threads", threads, 1, MOST_THREADS, remedy="a pod has at least one thread"
        )
        self._want()

    def set_quota(self, cores: float | None) -> None:
        """A new period with a full budget begins at once. None: no quota. Raises ValueError."""
        if cores is not None:
            require_in_range("cores", cores, 1e-3, 1e6, remedy="give None for no quota")
        self._quota_cores = cores
        set_quota_cores(self._state, cores)

    def advance(self, seconds: float) -> None:
        """Go on for so many seconds. Raises ValueError where they are negative or not finite."""
        require_in_range("seconds", seconds, 0.0, 1e9, remedy="time does not run backwards")
        run(self._state, float(self._state["now"][0]) + seconds, _NO_END)

    def sample(self) -> ContractSample:
        """What a scrape would find now: cumulative, as `slimscale.inpod` serves it.

        Run-queue time holds the time stopped by the quota, as older kernels count it. The
        dispatch histogram holds CPU time inside the dispatcher: without the wait for it, for a
        CPU, or for a woken thread (the hand-over).
        """
        s = self._state[0]
        active = int(s["active"])
        return ContractSample(
            pod_uid=self.pod_uid,
            sampled_at_seconds=self.now_seconds,
            process_start_seconds=self.start_seconds,
            threads_applied=self._applied(active),
            tasks_total=float(s["tasks"]),
            tasks_outstanding=self._outstanding(active),
            task=_histogram(s["task_counts"].tolist(), float(s["task_seconds"])),
            dispatch=_histogram(s["dispatch_counts"].tolist(), float(s["dispatch_seconds"])),
            task_cpu_seconds_total=float(s["task_cpu_seconds"]),
            task_runqueue_seconds_total=float(s["task_runqueue_seconds"]),
            cpu_quota_cores=self._quota_cores,
            cpu_usage_seconds_total=float(s["used_core_seconds"]),
            cpu_periods_total=float(s["periods"]),
            cpu_throttled_periods_total=float(s["throttled_periods"]),
            cpu_throttled_seconds_total=float(s["throttled_seconds"]),
        )

    def _applied(self, active: int) -> int:
        """Surplus threads count until they have ended; threads without a task count as well."""
        return max(self._threads, active)

    def _outstanding(self, active: int) -> float:
        if self._workload.outstanding is None:
            return 2.0 * self._applied(active)
        return float(max(self._workload.outstanding, active))

    def _want(self) -> None:
        self._state["wanted"] = wanted_threads(self._workload, self._threads)
        start_threads(self._state)


def _histogram(counts: list[int], sum_seconds: float) -> HistogramSnapshot:
    cumulative = tuple(float(count) for count in accumulate(counts))
    return HistogramSnapshot(_BOUNDS_SECONDS, cumulative, sum_seconds)
