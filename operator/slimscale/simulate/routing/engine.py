"""The compiled event loop: devices that batch greedily, load widths, slow down, and fail.

The rules are the sidecar's (`slimscale.routing.queues`, `.instances`, `.batch_times`): earliest deadline
first among the widths that are loaded, heads of one queue while they stay within the smallest cap, no
two batches in a row cut short for a deadline, loading beside computing. A request that may hold waits
for a full batch until the latest start that keeps its SLO; one that may not wait makes its queue start.
"""

import math
from typing import Any, cast

import numpy as np

from slimscale.routing.learned.layout import FAST_SECONDS, SLOW_SECONDS
from slimscale.simulate.routing.compiled import compiled, inner
from slimscale.simulate.routing.randomness import normal, uniform
from slimscale.simulate.routing.state import Requests
from slimscale.simulate.routing.telling import tell

__all__ = ["advance_to_next_arrival", "apply_action", "normal", "tell", "uniform"]

_NONE, _ZERO = cast(int, np.int64(-1)), cast(int, np.int64(0))
"""Typed: plain numbers would make each function that gets them be compiled for those very numbers too."""

_HOLD_HEADROOM = 0.8
"""Share of the SLO by which a held batch is to be done: service times scatter."""
_LATE_RATIO = 2.0
"""Latency over SLO that a dropped request counts as, which is also the most an answer does."""
_GAIN, _CLIP, _CLIPPED_IN_A_ROW = 0.05, 0.5, 6
"""As `slimscale.routing.batch_times` learns: little from one batch, anew from six in a row."""
_SLOWDOWN_GAIN, _MOST_SLOWDOWN = 0.1, 100.0


@compiled
def advance_to_next_arrival(s: Any, q: Requests) -> int:
    """Let time pass until a request is to be routed; its number. -1: all have ended.

    Requests that a failing device has lost come again, before the next one arrives.
    """
    while True:
        if s.retry_head >= 0:
            request = s.retry_head
            s.retry_head = q.each[request].following
            q.each[request].following = -1
            return int(request)
        device, at = _ZERO, s.event_at[0]
        for other in range(1, s.devices):
            if s.event_at[other] < at:
                device, at = other, s.event_at[other]
        arrives = q.each[s.next_request].arrival if s.next_request < s.total else np.inf
        if at <= arrives and at < np.inf and (arrives < np.inf or s.inside > 0):
            _pass_time(s, at)
            _act(s, q, device)
            continue
        if arrives == np.inf:
            _give_up_rest(s, q)
            return -1
        _pass_time(s, arrives)
        request = s.next_request
        s.next_request += 1
        s.inside += 1
        _count_arrival(s)
        return int(request)


@compiled
def apply_action(  # noqa: PLR0917 - compiled code is called by position
    s: Any, q: Requests, request: int, device: int, width: int, cap: int, hold: int,
    expected_seconds: float,
) -> None:  # fmt: skip
    """Route a request that `advance_to_next_arrival` gave. `expected_seconds`: until its answer.

    Where the device is down the request waits until some device returns, and is to be routed again.
    """
    decision = s.decisions
    s.decisions += 1
    q.decisions[decision].request = request
    q.decisions[decision].area = s.area - s.area_counted
    s.area_counted = s.area
    one = q.each[request]
    one.decision = decision
    one.device = device
    one.width = width
    one.cap = cap
    one.hold = hold
    one.sent_at = s.now
    one.expected_at = s.now + expected_seconds
    if s.down[device] == 1:
        one.following = s.parked_head
        s.parked_head = request
        return
    one.open_following = -1
    s.changed[device] = 1
    if s.open_head[device] < 0:
        s.open_head[device] = request
    else:
        q.each[s.open_tail[device]].open_following = request
    s.open_tail[device] = request
    s.sent[device, width] += 1
    s.received[device, width] += 1
    s.queued[device, width] += 1
    s.eager[device, width] += 1 - hold
    _enqueue(s, q, request, device, width)
    if s.busy_until[device] == np.inf or s.warm[device, width] == 0:
        _work(s, q, device)


@inner
def _enqueue(s: Any, q: Requests, request: int, device: int, width: int) -> None:
    klass = q.each[request].klass
    tail = s.tail[device, width, klass]
    if tail < 0:
        s.head[device, width, klass] = request
        s.tail[device, width, klass] = request
        q.each[request].following = -1
    elif q.each[tail].arrival <= q.each[request].arrival:
        q.each[tail].following = request
        s.tail[device, width, klass] = request
        q.each[request].following = -1
    else:  # one that comes again is older than some that wait
        before, after = _NONE, s.head[device, width, klass]
        while q.each[after].arrival <= q.each[request].arrival:
            before, after = after, q.each[after].following
        q.each[request].following = after
        if before < 0:
            s.head[device, width, klass] = request
        else:
            q.each[before].following = request


@inner
def _pass_time(s: Any, at: float) -> None:
    s.area += s.inside * (at - s.now)
    s.now = at


@inner
def _count_arrival(s: Any) -> None:
    if s.rate_began < 0.0:
        s.rate_began = s.now
        s.rate_at = s.now
    gap = s.now - s.rate_at
    s.rate_at = s.now
    s.rate_fast = s.rate_fast * math.exp(-gap / FAST_SECONDS) + 1.0 / FAST_SECONDS
    s.rate_slow = s.rate_slow * math.exp(-gap / SLOW_SECONDS) + 1.0 / SLOW_SECONDS


@inner
def _act(s: Any, q: Requests, device: int) -> None:
    """What is due at a device now, then what follows from it."""
    if s.down[device] == 1:
        if s.down_until[device] <= s.now:
            _return(s, q, device)
    elif s.down_from[device] <= s.now:
        _fail(s, q, device)
    if s.busy_until[device] <= s.now:
        _finish(s, q, device)
        tell(s, device)
    if s.load_until[device] <= s.now:
        s.warm[device, s.load_width[device]] = 1
        s.used_at[device, s.load_width[device]] = s.now
        s.load_until[device] = np.inf
        s.load_width[device] = -1
        tell(s, device)
    _work(s, q, device)


@inner
def _work(s: Any, q: Requests, device: int) -> None:
    """Load what is asked for, start a batch where the device is idle, and note the next event."""
    s.check_at[device] = np.inf
    s.hold_until[device] = np.inf
    if s.down[device] == 0:
        if s.busy_until[device] == np.inf:
            _start(s, q, device)
        if s.load_until[device] == np.inf:
            _load(s, device)
    at = min(s.busy_until[device], s.load_until[device])
    health = s.down_until[device] if s.down[device] == 1 else s.down_from[device]
    s.event_at[device] = min(at, s.hold_until[device], s.check_at[device], health)


@inner
def _first(s: Any, q: Requests, device: int, width: int) -> int:
    """The request of a queue with the earliest deadline; -1: it is empty."""
    first, due = _NONE, np.inf
    for klass in range(s.classes):
        head = s.head[device, width, klass]
        if head >= 0:
            at = q.each[head].arrival + s.slo[klass]
            if at < due:
                first, due = head, at
    return first


@inner
def _start(s: Any, q: Requests, device: int) -> None:
    while True:
        chosen, due, rows = _NONE, np.inf, _ZERO
        hold_until = np.inf
        for width in range(s.widths):
            queued = s.queued[device, width]
            if queued == 0 or s.warm[device, width] == 0:
                continue
            head = _first(s, q, device, width)
            at = q.each[head].arrival + s.slo[q.each[head].klass]
            if s.eager[device, width] == 0:
                full = min(q.each[head].cap, s.max_rows)
                until = _latest_start(s, q, head, full)
                if queued < full and until > s.now:
                    hold_until = min(hold_until, until)
                    continue
            if at < due or (at == due and queued > rows):
                chosen, due, rows = width, at, queued
        if chosen < 0:
            s.hold_until[device] = hold_until
            return
        if _take(s, q, device, chosen) > 0:
            return


@inner
def _latest_start(s: Any, q: Requests, head: int, rows: int) -> float:
    """Until when a queue may wait for `rows` so that its first request still keeps its SLO."""
    device, width = q.each[head].device, q.each[head].width
    lasts = (s.base[device, width] + s.row[device, width] * rows) * s.scale[device, width]
    until: float = q.each[head].arrival + _HOLD_HEADROOM * s.slo[q.each[head].klass] - lasts
    return until


@inner
def _take(s: Any, q: Requests, device: int, width: int) -> int:
    """Start the next batch of a queue; its rows. 0: all that was queued had to be given up."""
    base = s.base[device, width] * s.scale[device, width]
    row = s.row[device, width] * s.scale[device, width]
    head = _first(s, q, device, width)
    fitting = _ZERO
    while head >= 0:
        wanted = min(q.each[head].cap, s.max_rows, s.queued[device, width])
        slack = q.each[head].arrival + s.drop_ratio * s.slo[q.each[head].klass] - s.now - base
        fitting = 0
        if slack >= row:
            fitting = wanted if slack >= row * wanted else int(slack / row)
        cut_short = 1 if 2 * fitting < wanted else 0
        if fitting >= 1 and not (cut_short == 1 and s.cut_short[device] == 1):
            s.cut_short[device] = cut_short
            break
        _leave_queue(s, q, device, width, head)
        _drop(s, q, head)
        head = _first(s, q, device, width)
    if head < 0:
        return 0
    first, last, rows, cap = _NONE, _NONE, _ZERO, s.max_rows
    while head >= 0:
        cap = min(cap, q.each[head].cap)
        if rows > 0 and rows + 1 > min(cap, fitting):
            break
        _leave_queue(s, q, device, width, head)
        if last < 0:
            first = head
        else:
            q.each[last].following = head
        last = head
        rows += 1
        head = _first(s, q, device, width)
    work = s.base[device, width] + s.row[device, width] * rows
    if s.noise > 0.0:
        work *= math.exp(s.noise * normal(s))
    s.run_width[device] = width
    s.run_rows[device] = rows
    s.run_head[device] = first
    s.run_began[device] = s.now
    s.busy_until[device] = _end_of(s, device, s.now, work)
    s.batches += 1
    return rows


@inner
def _end_of(s: Any, device: int, began: float, work: float) -> float:
    """When `work` seconds are done, slow-downs included."""
    at = began
    if s.slow_gap == np.inf:
        return at + work
    while True:
        while s.slow_until[device] <= at:
            s.slow_from[device] = s.slow_until[device] - s.slow_gap * math.log(uniform(s))
            s.slow_until[device] = s.slow_from[device] + s.slow_seconds
        if at < s.slow_from[device]:
            well: float = s.slow_from[device] - at
            if work <= well:
                return at + work
            work -= well
            at = s.slow_from[device]
        end: float = at + work * s.slow_factor
        if end <= s.slow_until[device]:
            return end
        work -= (s.slow_until[device] - at) / s.slow_factor
        at = s.slow_until[device]


@inner
def _leave_queue(s: Any, q: Requests, device: int, width: int, request: int) -> None:
    """Take the head of a class's queue out."""
    klass = q.each[request].klass
    s.head[device, width, klass] = q.each[request].following
    if q.each[request].following < 0:
        s.tail[device, width, klass] = -1
    q.each[request].following = -1
    s.queued[device, width] -= 1
    s.eager[device, width] -= 1 - q.each[request].hold


@inner
def _finish(s: Any, q: Requests, device: int) -> None:
    width, rows = s.run_width[device], s.run_rows[device]
    lasted = s.now - s.run_began[device]
    joules = s.dynamic_watts[device] * lasted
    s.busy_seconds[device] += lasted
    s.energy_joules[device] += joules
    s.busy_until[device] = np.inf
    s.used_at[device, width] = s.now
    _learn(s, device, width, rows, lasted)
    request = s.run_head[device]
    s.run_head[device] = -1
    s.run_rows[device] = 0
    shared = joules / rows
    worth = s.weight_accuracy * (s.accuracy[width] - s.reference) - s.weight_energy * shared
    while request >= 0:
        one = q.each[request]
        latency = s.now - one.arrival
        slo = s.slo[one.klass]
        one.latency = latency
        one.energy = shared
        one.value = (
            worth
            - s.weight_latency * min(latency / slo, _LATE_RATIO)
            - s.weight_miss * (1.0 if latency > slo else 0.0)
        )
        one.done = 1
        expected = max(one.expected_at - one.sent_at, 1e-4)
        ratio = min((s.now - one.sent_at) / expected, _MOST_SLOWDOWN)
        s.slowdown[device] += _SLOWDOWN_GAIN * (ratio - s.slowdown[device])
        s.answered += 1
        s.inside -= 1
        request = one.following
        one.following = -1


@inner
def _learn(s: Any, device: int, width: int, rows: int, lasted: float) -> None:
    """The device's estimate of its own speed at a width, as a factor of what it is when well."""
    expected = (s.base[device, width] + s.row[device, width] * rows) * s.scale[device, width]
    error = lasted / expected - 1.0
    if abs(error) > _CLIP:
        sign = 1 if error > 0.0 else -1
        same = s.clipped[device, width] * sign >= 0
        s.clipped[device, width] = s.clipped[device, width] + sign if same else sign
        if abs(s.clipped[device, width]) >= _CLIPPED_IN_A_ROW:
            s.scale[device, width] *= lasted / expected
            s.clipped[device, width] = 0
            return
        error = _CLIP * sign
    else:
        s.clipped[device, width] = 0
    s.scale[device, width] *= 1.0 + _GAIN * error


@inner
def _drop(s: Any, q: Requests, request: int) -> None:
    """No answer: the worst latency that counts, a miss, no accuracy gained, no energy of its own."""
    q.each[request].latency = np.inf
    q.each[request].value = -_LATE_RATIO * s.weight_latency - s.weight_miss
    q.each[request].done = 1
    s.dropped += 1
    s.inside -= 1


@inner
def _give_up_rest(s: Any, q: Requests) -> None:
    """Nothing will happen any more: what still waits never gets its width loaded."""
    for device in range(s.devices):
        for width in range(s.widths):
            head = _first(s, q, device, width)
            while head >= 0:
                _leave_queue(s, q, device, width, head)
                _drop(s, q, head)
                head = _first(s, q, device, width)


@inner
def _load(s: Any, device: int) -> None:
    """Begin to load the cold width with the most queued; make room by unloading what is long idle."""
    wanted, rows = _NONE, _ZERO
    for width in range(s.widths):
        if s.warm[device, width] == 0 and s.queued[device, width] > rows:
            wanted, rows = width, s.queued[device, width]
    if wanted < 0:
        return
    while s.memory_free[device] < s.memory[device, wanted] - 1e-9:
        victim, used = _NONE, np.inf
        for width in range(s.widths):
            running = s.busy_until[device] < np.inf and s.run_width[device] == width
            idle = s.warm[device, width] == 1 and s.queued[device, width] == 0 and not running
            if idle and s.used_at[device, width] < used:
                victim, used = width, s.used_at[device, width]
        if victim < 0:
            return  # looked at again with the next batch's end
        if used + s.evict_after > s.now:
            s.check_at[device] = used + s.evict_after
            return
        s.warm[device, victim] = 0
        s.memory_free[device] += s.memory[device, victim]
    s.memory_free[device] -= s.memory[device, wanted]
    s.load_width[device] = wanted
    s.load_until[device] = s.now + s.load[device, wanted]


@inner
def _fail(s: Any, q: Requests, device: int) -> None:
    """A random shutdown: what it had comes again to the router, its telemetry and instances go."""
    s.down[device] = 1
    s.mask_changed = 1
    s.changed[device] = 1
    s.down_since[device] = s.now
    s.down_until[device] = s.now + s.down_seconds
    if s.busy_until[device] < np.inf:
        lasted = s.now - s.run_began[device]
        s.busy_seconds[device] += lasted
        s.energy_joules[device] += s.dynamic_watts[device] * lasted
        s.busy_until[device] = np.inf
        request = s.run_head[device]
        while request >= 0:
            following = q.each[request].following
            _again(s, q, request)
            request = following
        s.run_head[device] = -1
        s.run_rows[device] = 0
    for width in range(s.widths):
        head = _first(s, q, device, width)
        while head >= 0:
            _leave_queue(s, q, device, width, head)
            _again(s, q, head)
            head = _first(s, q, device, width)
        s.sent[device, width] = 0
        s.received[device, width] = 0
    s.open_head[device] = -1
    s.load_until[device] = np.inf
    s.load_width[device] = -1


@inner
def _again(s: Any, q: Requests, request: int) -> None:
    """To be routed anew, unless its time is over or there is no room to note one more decision."""
    over = q.each[request].arrival + s.drop_ratio * s.slo[q.each[request].klass] <= s.now
    left = len(q.decisions) - s.decisions - (s.total - s.next_request)
    if over or left < 2 * s.inside:
        _drop(s, q, request)
        return
    q.each[request].following = -1
    if s.retry_head < 0:
        s.retry_head = request
    else:
        q.each[s.retry_tail].following = request
    s.retry_tail = request


@inner
def _return(s: Any, q: Requests, device: int) -> None:
    s.down[device] = 0
    s.mask_changed = 1
    s.down_from[device] = s.now - s.down_gap * math.log(uniform(s))
    s.slowdown[device] = 1.0
    tell(s, device)
    request = s.parked_head
    s.parked_head = -1
    while request >= 0:
        following = q.each[request].following
        _again(s, q, request)
        request = following
