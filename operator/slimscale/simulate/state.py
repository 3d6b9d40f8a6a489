"""All that a simulated pod is, in plain arrays, so that it can stop and go on at any instant."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.distributions import ROW, distribution_row
from slimscale.simulate.workload import MOST_THREADS, Host, Waiting, Workload

__all__ = ["PodState", "new_state", "set_quota_cores", "set_workload", "wanted_threads"]

_SCALARS = np.dtype(
    [
        # The clock, and a second one that counts the CPU seconds of a thread that always runs:
        # all runnable threads advance at one speed, so each one's end is fixed on it.
        ("now", np.float64),
        ("virtual", np.float64),
        # What the pod runs on.
        ("cores", np.float64),
        ("quota_cores", np.float64),
        ("period_seconds", np.float64),
        ("period_ends", np.float64),
        ("budget", np.float64),
        ("stopped", np.int64),
        ("used_in_period", np.int64),
        # The dispatcher: who holds it, until when on the second clock, and how slow it is made.
        ("linear", np.float64),
        ("quadratic", np.float64),
        ("handover", np.float64),
        ("spinning", np.int64),
        ("holder", np.int64),
        ("hold_ends", np.float64),
        ("hold_counted_to", np.float64),
        ("hold_growth", np.float64),
        ("hold_handover", np.float64),
        ("hold_seconds", np.float64),
        ("waiting", np.int64),
        ("queue_head", np.int64),
        # Threads by where they are, and how many there should be.
        ("computing", np.int64),
        ("blocked", np.int64),
        ("active", np.int64),
        ("wanted", np.int64),
        ("free", np.int64),
        # Counters since the start.
        ("tasks", np.int64),
        ("task_seconds", np.float64),
        ("task_cpu_seconds", np.float64),
        ("task_runqueue_seconds", np.float64),
        ("dispatch_seconds", np.float64),
        ("used_core_seconds", np.float64),
        ("periods", np.int64),
        ("throttled_periods", np.int64),
        ("throttled_seconds", np.float64),
        ("dispatcher_busy_seconds", np.float64),
    ],
    align=True,
)


class PodState(NamedTuple):
    """Arrays that the compiled loop reads and writes; n is the most threads it can hold."""

    scalars: NDArray[Any]
    """(1,) of named fields."""
    rng: NDArray[np.uint64]
    times: NDArray[np.float64]
    """(3, ROW): CPU, blocking, dispatch."""
    cpu_keys: NDArray[np.float64]
    """(n,) a heap of the threads that compute, by the end on the second clock."""
    cpu_threads: NDArray[np.int64]
    block_keys: NDArray[np.float64]
    """(n,) a heap of the threads that block, by the end on the clock."""
    block_threads: NDArray[np.int64]
    queue: NDArray[np.int64]
    """(n,) a ring: who waits for the dispatcher."""
    free: NDArray[np.int64]
    """(n,) a stack: numbers that no thread has."""
    started: NDArray[np.float64]
    """(n,) when each thread's task began."""
    work: NDArray[np.float64]
    """(n,) CPU seconds of each thread's task."""
    runqueue: NDArray[np.float64]
    """(n,) seconds that it was runnable without a CPU."""
    bounds: NDArray[np.float64]
    """Upper bounds of the histograms' buckets, without infinity."""
    task_counts: NDArray[np.int64]
    dispatch_counts: NDArray[np.int64]


def new_state(workload: Workload, host: Host, *, most_threads: int, seed: NDArray[Any]) -> PodState:
    """A pod at time 0 without threads. `seed` from `draw.seed_state`."""
    n = most_threads
    buckets = len(BUCKET_BOUNDS_SECONDS) + 1
    scalars = np.zeros(1, dtype=_SCALARS)
    state = PodState(
        scalars=scalars,
        rng=seed.astype(np.uint64),
        times=np.zeros((3, ROW)),
        cpu_keys=np.zeros(n),
        cpu_threads=np.zeros(n, dtype=np.int64),
        block_keys=np.zeros(n),
        block_threads=np.zeros(n, dtype=np.int64),
        queue=np.zeros(n, dtype=np.int64),
        free=np.arange(n - 1, -1, -1, dtype=np.int64),
        started=np.zeros(n),
        work=np.zeros(n),
        runqueue=np.zeros(n),
        bounds=np.array(BUCKET_BOUNDS_SECONDS),
        task_counts=np.zeros(buckets, dtype=np.int64),
        dispatch_counts=np.zeros(buckets, dtype=np.int64),
    )
    scalars["free"] = n
    scalars["holder"] = -1
    scalars["cores"] = host.cores
    scalars["period_seconds"] = host.period_seconds
    set_quota_cores(state, host.quota_cores)
    set_workload(state, workload)
    return state


def set_quota_cores(state: PodState, quota_cores: float | None) -> None:
    """As the kernel does it: a new period with a full budget begins at once."""
    s = state.scalars
    s["quota_cores"] = math.inf if quota_cores is None else quota_cores
    s["budget"] = s["quota_cores"] * s["period_seconds"]
    s["period_ends"] = s["now"] + s["period_seconds"]
    s["stopped"] = s["used_in_period"] = 0


def set_workload(state: PodState, workload: Workload) -> None:
    """Times drawn from now on are of the new load; what is under way keeps its own."""
    for row, time in enumerate((workload.cpu, workload.blocking, workload.dispatch)):
        state.times[row] = distribution_row(time)
    s = state.scalars
    s["linear"] = workload.contention_linear
    s["quadratic"] = workload.contention_quadratic
    s["handover"] = workload.contention_handover
    s["spinning"] = 1 if workload.waiting is Waiting.SPIN else 0


def wanted_threads(workload: Workload, threads: int) -> int:
    """Threads that can have a task."""
    return min(threads, workload.outstanding or MOST_THREADS)
