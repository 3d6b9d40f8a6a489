"""Steady throughput of a workload against its thread count."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.distributions import seed_state
from slimscale.simulate.engine import run, start_threads
from slimscale.simulate.state import PodState, new_state, wanted_threads
from slimscale.simulate.workload import MOST_THREADS, Host, Workload
from slimscale.threads.checks import require_count

__all__ = ["measure_batches", "measure_curve", "warmed_state"]

FloatArray = NDArray[np.float64]

_NO_END_SECONDS = 1e300
_NO_END_TASKS = 2**62
_WARM_UP_ROUNDS = 5
"""Tasks of each thread before anything counts: all begin together at the dispatcher."""
_ROUNDS = 4
"""Tasks of each thread in a batch, at least, and a whole number of them: threads whose times hardly
vary end their tasks in bunches, and part of a round would hold too many or too few bunches."""
_ROUNDS_OF_PERIODS = 20
"""The same where a batch ends with a quota period, in the middle of a round."""
_QUOTA_PERIODS = 20
_ENOUGH = 20
"""Times the tasks asked for: where a period holds that many, it needs no further ones."""


def measure_curve(
    workload: Workload, host: Host, threads: Sequence[int], *, seed: int, tasks: int = 5000
) -> FloatArray:
    """Tasks a second with each count of `threads`, shape (len(threads),).

    Each count is a run of its own, whose random numbers depend on the seed and the count alone.
    At least `tasks` tasks are counted after the warm-up, and at least four of each thread; under a
    quota that throttles, whole periods, at least 20 of them unless they hold 20 times the tasks. Raises ValueError for a
    count of threads outside 1 to 4096 or of tasks below 1.
    """
    require_count("tasks", tasks, 1, 10**9, remedy="count at least one task")
    rates = [
        float(measure_batches(workload, host, count, seed=seed, tasks=tasks, batches=1)[0])
        for count in threads
    ]
    return np.array(rates, dtype=np.float64)


def measure_batches(
    workload: Workload, host: Host, threads: int, *, seed: int, tasks: int, batches: int
) -> FloatArray:
    """Tasks a second in consecutive batches of at least `tasks` tasks each, shape (batches,).

    Batches of several rounds are nearly independent: their spread gives a confidence interval.
    """
    state = warmed_state(workload, host, threads, seed=seed, tasks=tasks)
    return np.array([_batch(state, tasks) for _ in range(batches)], dtype=np.float64)


def warmed_state(
    workload: Workload, host: Host, threads: int, *, seed: int, tasks: int
) -> PodState:
    """A pod in its steady state, at the start of a quota period where the quota throttles it."""
    require_count("threads", threads, 1, MOST_THREADS, remedy="measure with at least one thread")
    wanted = wanted_threads(workload, threads)
    state = new_state(workload, host, seed=seed_state(seed, threads))
    state["wanted"] = wanted
    start_threads(state)
    run(state, _NO_END_SECONDS, max(tasks // 5, _WARM_UP_ROUNDS * wanted))
    if bool(state["quota_cores"][0] < state["cores"][0]):
        run(state, float(state["period_ends"][0]), _NO_END_TASKS)
    return state


def _batch(state: PodState, tasks: int) -> float:
    s = state[0]
    began, before = float(s["now"]), int(s["tasks"])
    if int(s["throttled_periods"]) > 0:
        _whole_periods(state, tasks)
    else:
        threads = int(s["active"])
        rounds = max(_ROUNDS, -(-tasks // threads))
        run(state, _NO_END_SECONDS, before + rounds * threads)
    return (int(s["tasks"]) - before) / (float(s["now"]) - began)


def _whole_periods(state: PodState, tasks: int) -> None:
    """A part of a period would count its fast beginning or its standstill twice."""
    s = state[0]
    before, throttled = int(s["tasks"]), int(s["throttled_periods"])
    least = max(tasks, _ROUNDS_OF_PERIODS * int(s["active"]))
    periods = 0
    while True:
        # By a quarter more each time: slow work may need a million periods.
        more = 1 + periods // 4
        in_the_last = float(s["period_ends"]) + (more - 1.5) * float(s["period_seconds"])
        run(state, in_the_last, _NO_END_TASKS)
        run(state, float(s["period_ends"]), _NO_END_TASKS)
        periods += more
        done = int(s["tasks"]) - before
        unthrottled = int(s["throttled_periods"]) == throttled
        if done >= least and (unthrottled or periods >= _QUOTA_PERIODS or done >= _ENOUGH * tasks):
            return
