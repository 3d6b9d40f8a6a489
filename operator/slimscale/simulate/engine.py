"""The compiled event loop: threads that pass a dispatcher, compute on shared CPUs, and block.

CPUs are processor-shared: n runnable threads on C cores each run at speed min(1, C/n), and at
speed 0 while the quota is used up. A second clock advances at that speed, so that the end of each
CPU part is a fixed point on it and an event costs O(log n), whatever n does in between.

The holder of the dispatcher is one of the runnable threads. How slow the crowd makes it changes
with the crowd, not only with each hand-over: its rest is stretched when one more thread arrives.
With exponential times and cores enough that is the product-form station of
`slimscale.threads.closed_network`.

Random numbers come from SplitMix64 (Steele, Lea and Flood 2014), whose whole state is one number
of the pod: two pods never disturb each other, and a seed gives the same run bit by bit on the same
machine. All compiled code is in this one file because numba's cache looks at the file of a function
alone: a change to what it calls in another file would go unseen.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from slimscale.simulate.distributions import Kind
from slimscale.simulate.state import PodState

__all__ = ["draw", "run", "start_threads"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, kept on disk between runs. Typed as it was."""
    return cast(F, numba.njit(cache=True)(function))


_CPU, _BLOCKING, _DISPATCH = 0, 1, 2
_UNTIL, _BLOCKED_END, _COMPUTED, _HANDED_OVER, _USED_UP, _PERIOD_END = range(6)

_NONE, _EXPONENTIAL, _LOGNORMAL = Kind.NONE, Kind.EXPONENTIAL, Kind.LOGNORMAL
_TWO_VALUES, _PARETO = Kind.TWO_VALUES, Kind.PARETO

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@compiled
def _uniform(rng: Any) -> float:
    """A number between 0 and 1, both excluded."""
    rng[0] += _STEP
    mixed = rng[0]
    mixed = (mixed ^ (mixed >> _30)) * _MIX_A
    mixed = (mixed ^ (mixed >> _27)) * _MIX_B
    mixed = mixed ^ (mixed >> _31)
    return (np.float64(mixed >> _11) + 0.5) * _UNIT


@compiled
def _is_any(row: Any) -> bool:
    """False for a part that tasks do not have."""
    return bool(row[0] != _NONE)


@compiled
def draw(rng: Any, row: Any) -> float:
    """A time in seconds from the distribution of `row`."""
    kind = int(row[0])
    seconds: float = row[1]
    if kind == _EXPONENTIAL:
        seconds *= -math.log(_uniform(rng))
    elif kind == _LOGNORMAL:
        radius = math.sqrt(-2.0 * math.log(_uniform(rng)))  # Box and Muller 1958
        seconds = math.exp(seconds + row[2] * radius * math.cos(2.0 * math.pi * _uniform(rng)))
    elif kind == _TWO_VALUES:
        if _uniform(rng) < row[3]:
            seconds = row[2]
    elif kind == _PARETO:
        seconds *= (1.0 - row[2] * _uniform(rng)) ** row[3]
    return seconds


@compiled
def _heap_push(keys: Any, threads: Any, size: int, key: float, thread: int) -> None:
    """Add one to a heap of `size`. The caller keeps the size."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place] = keys[parent]
        threads[place] = threads[parent]
        place = parent
    keys[place] = key
    threads[place] = thread


@compiled
def _heap_pop(keys: Any, threads: Any, size: int) -> int:
    """Take out the thread with the least key from a heap of `size`, at least 1."""
    first: int = threads[0]
    last = size - 1
    key, thread = keys[last], threads[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        threads[place] = threads[child]
        place = child
    keys[place] = key
    threads[place] = thread
    return first


@compiled
def run(pod: PodState, until_seconds: float, until_tasks: int) -> None:
    """Go on until that time or that count of finished tasks, whichever comes first."""
    s: Any = pod.scalars[0]
    while s.now < until_seconds and s.tasks < until_tasks:
        runnable = s.computing + s.spinning * s.waiting
        if s.holder >= 0:
            runnable += 1
        busy = min(np.float64(runnable), s.cores)
        speed = 0.0
        if runnable > 0 and s.stopped == 0:
            speed = busy / runnable
        at, what = _next_event(pod, until_seconds, busy, speed)
        _pass_time(pod, at, busy, speed)
        if what == _COMPUTED:
            _end_computing(pod)
        elif what == _BLOCKED_END:
            s.blocked -= 1
            _end_task(pod, _heap_pop(pod.block_keys, pod.block_threads, s.blocked + 1))
        elif what == _HANDED_OVER:
            _end_dispatch(pod)
        elif what == _USED_UP:
            s.stopped = 1
            s.budget = 0.0
        elif what == _PERIOD_END:
            _end_period(pod)


@compiled
def start_threads(pod: PodState) -> None:
    """Start threads until there are as many as wanted; each goes to the dispatcher."""
    s: Any = pod.scalars[0]
    while s.active < s.wanted and s.free > 0:
        s.free -= 1
        s.active += 1
        _arrive(pod, pod.free[s.free])


@compiled
def _next_event(
    pod: PodState, until_seconds: float, busy: float, speed: float
) -> tuple[float, int]:
    s: Any = pod.scalars[0]
    at, what = until_seconds, _UNTIL
    if s.blocked > 0 and pod.block_keys[0] < at:
        at, what = pod.block_keys[0], _BLOCKED_END
    if speed > 0.0:
        if s.computing > 0:
            end = s.now + (pod.cpu_keys[0] - s.virtual) / speed
            if end < at:
                at, what = end, _COMPUTED
        if s.holder >= 0:
            end = s.now + (s.hold_ends - s.virtual) / speed
            if end < at:
                at, what = end, _HANDED_OVER
        if s.quota_cores < s.cores:
            end = s.now + s.budget / busy
            if end < at:
                at, what = end, _USED_UP
    if s.period_ends <= at:
        at, what = s.period_ends, _PERIOD_END
    return max(at, s.now), what


@compiled
def _pass_time(pod: PodState, at: float, busy: float, speed: float) -> None:
    s: Any = pod.scalars[0]
    seconds = at - s.now
    s.now = at
    if s.holder >= 0:
        s.dispatcher_busy_seconds += seconds
    if speed > 0.0:
        s.virtual += seconds * speed
        used = seconds * busy
        s.used_core_seconds += used
        s.budget = max(s.budget - used, 0.0)
        s.used_in_period = 1
    elif s.stopped == 1:
        s.throttled_seconds += seconds * busy


@compiled
def _end_period(pod: PodState) -> None:
    s: Any = pod.scalars[0]
    if s.quota_cores < np.inf:
        s.periods += s.used_in_period | s.stopped
        s.throttled_periods += s.stopped
    s.stopped = 0
    s.used_in_period = 0
    s.budget = s.quota_cores * s.period_seconds
    s.period_ends += s.period_seconds


@compiled
def _end_computing(pod: PodState) -> None:
    s: Any = pod.scalars[0]
    s.virtual = pod.cpu_keys[0]
    thread = _heap_pop(pod.cpu_keys, pod.cpu_threads, s.computing)
    s.computing -= 1
    waited = s.now - pod.started[thread] - pod.work[thread]
    pod.runqueue[thread] = max(waited, 0.0)
    if _is_any(pod.times[_BLOCKING]):
        _begin_blocking(pod, thread)
    else:
        _end_task(pod, thread)


@compiled
def _begin_blocking(pod: PodState, thread: int) -> None:
    s: Any = pod.scalars[0]
    end = s.now + draw(pod.rng, pod.times[_BLOCKING])
    _heap_push(pod.block_keys, pod.block_threads, s.blocked, end, thread)
    s.blocked += 1


@compiled
def _begin_task(pod: PodState, thread: int) -> None:
    s: Any = pod.scalars[0]
    pod.started[thread] = s.now
    pod.work[thread] = 0.0
    pod.runqueue[thread] = 0.0
    if _is_any(pod.times[_CPU]):
        work = draw(pod.rng, pod.times[_CPU])
        pod.work[thread] = work
        _heap_push(pod.cpu_keys, pod.cpu_threads, s.computing, s.virtual + work, thread)
        s.computing += 1
    else:
        _begin_blocking(pod, thread)


@compiled
def _end_task(pod: PodState, thread: int) -> None:
    s: Any = pod.scalars[0]
    seconds = s.now - pod.started[thread]
    s.tasks += 1
    s.task_seconds += seconds
    s.task_cpu_seconds += pod.work[thread]
    s.task_runqueue_seconds += pod.runqueue[thread]
    pod.task_counts[_bucket(pod.bounds, seconds)] += 1
    if s.active > s.wanted:
        _retire(pod, thread)
    else:
        _arrive(pod, thread)


@compiled
def _retire(pod: PodState, thread: int) -> None:
    s: Any = pod.scalars[0]
    pod.free[s.free] = thread
    s.free += 1
    s.active -= 1


@compiled
def _arrive(pod: PodState, thread: int) -> None:
    """Take the dispatcher, or queue for it and slow it down."""
    s: Any = pod.scalars[0]
    if not _is_any(pod.times[_DISPATCH]) and s.holder < 0:
        _begin_task(pod, thread)
    elif s.holder < 0:
        _hold(pod, thread)
    else:
        pod.queue[(s.queue_head + s.waiting) % len(pod.queue)] = thread
        s.waiting += 1
        _count_hold(pod)
        rest = (s.hold_ends - s.virtual) / s.hold_growth
        _set_growth(pod)
        s.hold_ends = s.virtual + rest * s.hold_growth


@compiled
def _hold(pod: PodState, thread: int) -> None:
    s: Any = pod.scalars[0]
    s.holder = thread
    s.hold_seconds = 0.0
    s.hold_counted_to = s.virtual
    _set_growth(pod)
    s.hold_ends = s.virtual + draw(pod.rng, pod.times[_DISPATCH]) * s.hold_growth


@compiled
def _set_growth(pod: PodState) -> None:
    """How many times longer the dispatcher takes with the threads that are there now."""
    s: Any = pod.scalars[0]
    others = np.float64(s.waiting)
    s.hold_handover = s.handover if others > 0.0 else 0.0
    inside = 1.0 + s.linear * others + s.quadratic * (others + 1.0) * others
    s.hold_growth = inside + s.hold_handover


@compiled
def _count_hold(pod: PodState) -> None:
    """What a program measures inside its lock: not the waking of the next thread, all the rest."""
    s: Any = pod.scalars[0]
    seconds = s.virtual - s.hold_counted_to
    s.hold_seconds += seconds * (1.0 - s.hold_handover / s.hold_growth)
    s.hold_counted_to = s.virtual


@compiled
def _end_dispatch(pod: PodState) -> None:
    s: Any = pod.scalars[0]
    s.virtual = s.hold_ends
    _count_hold(pod)
    s.dispatch_seconds += s.hold_seconds
    pod.dispatch_counts[_bucket(pod.bounds, s.hold_seconds)] += 1
    _begin_task(pod, s.holder)
    s.holder = -1
    while s.waiting > 0 and s.holder < 0:
        thread = pod.queue[s.queue_head]
        s.queue_head = (s.queue_head + 1) % len(pod.queue)
        s.waiting -= 1
        if s.active > s.wanted:
            _retire(pod, thread)  # it has no task yet
        elif not _is_any(pod.times[_DISPATCH]):
            _begin_task(pod, thread)  # the load has changed to one without a dispatcher
        else:
            _hold(pod, thread)


@compiled
def _bucket(bounds: Any, seconds: float) -> int:
    """The bucket whose upper bound is the first at or above `seconds`."""
    low, high = 0, len(bounds)
    while low < high:
        middle = (low + high) >> 1
        if bounds[middle] < seconds:
            low = middle + 1
        else:
            high = middle
    return low
