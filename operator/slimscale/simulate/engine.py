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
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))


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
def _uniform(s: Any) -> float:
    """A number between 0 and 1, both excluded."""
    s.rng += _STEP
    mixed = s.rng
    mixed = (mixed ^ (mixed >> _30)) * _MIX_A
    mixed = (mixed ^ (mixed >> _27)) * _MIX_B
    mixed = mixed ^ (mixed >> _31)
    return (np.float64(mixed >> _11) + 0.5) * _UNIT


@compiled
def _is_any(row: Any) -> bool:
    """False for a part that tasks do not have."""
    return bool(row[0] != _NONE)


@compiled
def draw(s: Any, row: Any) -> float:
    """A time in seconds from the distribution of `row`."""
    kind = int(row[0])
    seconds: float = row[1]
    if kind == _EXPONENTIAL:
        seconds *= -math.log(_uniform(s))
    elif kind == _LOGNORMAL:
        radius = math.sqrt(-2.0 * math.log(_uniform(s)))  # Box and Muller 1958
        seconds = math.exp(seconds + row[2] * radius * math.cos(2.0 * math.pi * _uniform(s)))
    elif kind == _TWO_VALUES:
        if _uniform(s) < row[3]:
            seconds = row[2]
    elif kind == _PARETO:
        seconds *= (1.0 - row[2] * _uniform(s)) ** row[3]
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
    s: Any = pod[0]
    while s.now < until_seconds and s.tasks < until_tasks:
        runnable = s.computing + s.spinning * s.waiting
        if s.holder >= 0:
            runnable += 1
        busy = min(np.float64(runnable), s.cores)
        speed = 0.0
        if runnable > 0 and s.stopped == 0:
            speed = busy / runnable
        at, what = _next_event(s, until_seconds, busy, speed)
        _pass_time(s, at, busy, speed)
        if what == _COMPUTED:
            _end_computing(s)
        elif what == _BLOCKED_END:
            s.blocked -= 1
            _end_task(s, _heap_pop(s.block_keys, s.block_threads, s.blocked + 1))
        elif what == _HANDED_OVER:
            _end_dispatch(s)
        elif what == _USED_UP:
            s.stopped = 1
            s.budget = 0.0
        elif what == _PERIOD_END:
            _end_period(s)


@compiled
def start_threads(pod: PodState) -> None:
    """Start threads until there are as many as wanted; each goes to the dispatcher."""
    s: Any = pod[0]
    while s.active < s.wanted and s.free > 0:
        s.free -= 1
        s.active += 1
        _arrive(s, s.free_numbers[s.free])


@compiled
def _next_event(s: Any, until_seconds: float, busy: float, speed: float) -> tuple[float, int]:
    at, what = until_seconds, _UNTIL
    if s.blocked > 0 and s.block_keys[0] < at:
        at, what = s.block_keys[0], _BLOCKED_END
    if speed > 0.0:
        if s.computing > 0:
            end = s.now + (s.cpu_keys[0] - s.virtual) / speed
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
def _pass_time(s: Any, at: float, busy: float, speed: float) -> None:
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
def _end_period(s: Any) -> None:
    if s.quota_cores < np.inf:
        s.periods += s.used_in_period | s.stopped
        s.throttled_periods += s.stopped
    s.stopped = 0
    s.used_in_period = 0
    s.budget = s.quota_cores * s.period_seconds
    s.period_ends += s.period_seconds


@compiled
def _end_computing(s: Any) -> None:
    s.virtual = s.cpu_keys[0]
    thread = _heap_pop(s.cpu_keys, s.cpu_threads, s.computing)
    s.computing -= 1
    waited = s.now - s.started[thread] - s.work[thread]
    s.runqueue[thread] = max(waited, 0.0)
    if _is_any(s.times[_BLOCKING]):
        _begin_blocking(s, thread)
    else:
        _end_task(s, thread)


@compiled
def _begin_blocking(s: Any, thread: int) -> None:
    end = s.now + draw(s, s.times[_BLOCKING])
    _heap_push(s.block_keys, s.block_threads, s.blocked, end, thread)
    s.blocked += 1


@compiled
def _begin_task(s: Any, thread: int) -> None:
    s.started[thread] = s.now
    s.work[thread] = 0.0
    s.runqueue[thread] = 0.0
    if _is_any(s.times[_CPU]):
        work = draw(s, s.times[_CPU])
        s.work[thread] = work
        _heap_push(s.cpu_keys, s.cpu_threads, s.computing, s.virtual + work, thread)
        s.computing += 1
    else:
        _begin_blocking(s, thread)


@compiled
def _end_task(s: Any, thread: int) -> None:
    seconds = s.now - s.started[thread]
    s.tasks += 1
    s.task_seconds += seconds
    s.task_cpu_seconds += s.work[thread]
    s.task_runqueue_seconds += s.runqueue[thread]
    s.task_counts[_bucket(s.bounds, seconds)] += 1
    if s.active > s.wanted:
        _retire(s, thread)
    else:
        _arrive(s, thread)


@compiled
def _retire(s: Any, thread: int) -> None:
    s.free_numbers[s.free] = thread
    s.free += 1
    s.active -= 1


@compiled
def _arrive(s: Any, thread: int) -> None:
    """Take the dispatcher, or queue for it and slow it down."""
    if not _is_any(s.times[_DISPATCH]) and s.holder < 0:
        _begin_task(s, thread)
    elif s.holder < 0:
        _hold(s, thread)
    else:
        place = s.queue_head + s.waiting
        s.queue[place if place < len(s.queue) else place - len(s.queue)] = thread
        s.waiting += 1
        _count_hold(s)
        rest = (s.hold_ends - s.virtual) / s.hold_growth
        _set_growth(s)
        s.hold_ends = s.virtual + rest * s.hold_growth


@compiled
def _hold(s: Any, thread: int) -> None:
    s.holder = thread
    s.hold_seconds = 0.0
    s.hold_counted_to = s.virtual
    _set_growth(s)
    s.hold_ends = s.virtual + draw(s, s.times[_DISPATCH]) * s.hold_growth


@compiled
def _set_growth(s: Any) -> None:
    """How many times longer the dispatcher takes with the threads that are there now."""
    others = np.float64(s.waiting)
    s.hold_handover = s.handover if others > 0.0 else 0.0
    inside = 1.0 + s.linear * others + s.quadratic * (others + 1.0) * others
    s.hold_growth = inside + s.hold_handover


@compiled
def _count_hold(s: Any) -> None:
    """What a program measures inside its lock: not the waking of the next thread, all the rest."""
    seconds = s.virtual - s.hold_counted_to
    s.hold_seconds += seconds * (1.0 - s.hold_handover / s.hold_growth)
    s.hold_counted_to = s.virtual


@compiled
def _end_dispatch(s: Any) -> None:
    s.virtual = s.hold_ends
    _count_hold(s)
    s.dispatch_seconds += s.hold_seconds
    s.dispatch_counts[_bucket(s.bounds, s.hold_seconds)] += 1
    _begin_task(s, s.holder)
    s.holder = -1
    while s.waiting > 0 and s.holder < 0:
        thread = s.queue[s.queue_head]
        s.queue_head = s.queue_head + 1 if s.queue_head + 1 < len(s.queue) else 0
        s.waiting -= 1
        if s.active > s.wanted:
            _retire(s, thread)  # it has no task yet
        elif not _is_any(s.times[_DISPATCH]):
            _begin_task(s, thread)  # the load has changed to one without a dispatcher
        else:
            _hold(s, thread)


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
