"""All that a simulated pod is, in one record, so that it can stop and go on at any instant."""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS
from slimscale.simulate.distributions import ROW, distribution_row
from slimscale.simulate.workload import MOST_THREADS, Host, Waiting, Workload

__all__ = ["PodState", "new_state", "set_quota_cores", "set_workload", "wanted_threads"]

PodState: TypeAlias = NDArray[Any]
"""Shape (1,), of the fields below: one record, so that compiled code needs one pointer to it."""

_MOST = MOST_THREADS
_BUCKETS = len(BUCKET_BOUNDS_SECONDS) + 1

_RECORD = np.dtype(
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
        # The generator, and what times are drawn from: CPU, blocking, dispatch.
        ("rng", np.uint64),
        ("times", np.float64, (3, ROW)),
        # Histograms, as counts per bucket; the bounds without infinity.
        ("bounds", np.float64, (_BUCKETS - 1,)),
        ("task_counts", np.int64, (_BUCKETS,)),
        ("dispatch_counts", np.int64, (_BUCKETS,)),
        # Heaps of the threads that compute and that block, by the end on the second clock and on
        # the clock; a ring of those that wait for the dispatcher; a stack of numbers to give.
        ("cpu_keys", np.float64, (_MOST,)),
        ("cpu_threads", np.int64, (_MOST,)),
        ("block_keys", np.float64, (_MOST,)),
        ("block_threads", np.int64, (_MOST,)),
        ("queue", np.int64, (_MOST,)),
        ("free_numbers", np.int64, (_MOST,)),
        # By thread, of its task: when it began, its CPU seconds, its wait for a CPU.
        ("started", np.float64, (_MOST,)),
        ("work", np.float64, (_MOST,)),
        ("runqueue", np.float64, (_MOST,)),
    ],
    align=True,
)


def new_state(workload: Workload, host: Host, *, seed: int) -> PodState:
    """A pod at time 0 without threads. `seed` from `distributions.seed_state`."""
    state = np.zeros(1, dtype=_RECORD)
    state["rng"] = seed
    state["free"] = _MOST
    state["free_numbers"][0] = np.arange(_MOST)[::-1]
    state["holder"] = -1
    state["cores"] = host.cores
    state["period_seconds"] = host.period_seconds
    state["bounds"][0] = BUCKET_BOUNDS_SECONDS
    set_quota_cores(state, host.quota_cores)
    set_workload(state, workload)
    return state


def set_quota_cores(state: PodState, quota_cores: float | None) -> None:
    """As the kernel does it: a new period with a full budget begins at once."""
    s = state
    s["quota_cores"] = math.inf if quota_cores is None else quota_cores
    s["budget"] = s["quota_cores"] * s["period_seconds"]
    s["period_ends"] = s["now"] + s["period_seconds"]
    s["stopped"] = s["used_in_period"] = 0


def set_workload(state: PodState, workload: Workload) -> None:
    """Times drawn from now on are of the new load; what is under way keeps its own."""
    for row, time in enumerate((workload.cpu, workload.blocking, workload.dispatch)):
        state["times"][0, row] = distribution_row(time)
    s = state
    s["linear"] = workload.contention_linear
    s["quadratic"] = workload.contention_quadratic
    s["handover"] = workload.contention_handover
    s["spinning"] = 1 if workload.waiting is Waiting.SPIN else 0


def wanted_threads(workload: Workload, threads: int) -> int:
    """Threads that can have a task."""
    return min(threads, workload.outstanding or MOST_THREADS)
