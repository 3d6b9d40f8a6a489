"""Where to look next, once the model has nothing left to say: the second and the third tier.

The first tier predicts anew when the load changes (`change.py`). What it chose is then doubted in
small steps, one at a time, each compared with the window before it and kept only if it was worth
it (`verify.py`):

- CPU-aware: idle CPU beside waiting work asks for threads, a long run queue for fewer of them. It
  needs no model, so it also finds what the model has wrong.
- Search: a step inside a trust region around the present count (Conn, Gould and Toint 2000),
  upwards only where the operational bounds of docs/model.md 3 leave room, downwards only where
  something says that threads are in each other's way.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from slimscale.threads.closed_network import MAX_THREADS, throughput_curve
from slimscale.threads.estimate import Estimate, crowd_at_dispatcher
from slimscale.threads.memo import Regime
from slimscale.threads.window import WorkloadWindow

__all__ = ["MOST_PROBES", "Probe", "Tier", "in_each_others_way", "next_probe"]

MOST_PROBES = 5
"""In one load: the promise is to be near the best after at most so many steps."""
IDLE_SHARE = 0.7
"""CPU use below which waiting work says that threads are missing."""
BUSY_SHARE = 0.95
QUEUE_PER_CORE = 2.0
"""Runnable threads a core above which the rest of them only waits for a CPU."""
KEPT_PER_CORE = 1.5
LARGEST_STEP = 2.0
TRUST_RADIUS = 1.5
ROOM_ABOVE = 0.05
"""Share of throughput that the bounds must leave open for a step upwards."""
OVERHEAD = 1.3
"""CPU that a task costs over what it computes, from which threads are in each other's way."""
CONTENDED = 0.2
SMALLEST_STEP = 1.2
MOST_EXPECTED_LOSS = 0.08
HELD_BACK = 0.15
"""How far below the model without contention a measurement must lie to ask for fewer threads."""


class Tier(StrEnum):
    CPU_AWARE = "CpuAware"
    SEARCH = "Search"


@dataclass(frozen=True, slots=True)
class Probe:
    threads: int
    tier: Tier
    reason: str


def next_probe(
    window: WorkloadWindow,
    estimate: Estimate,
    regime: Regime,
    *,
    predicted: Callable[[int], float],
    least: int,
    most: int,
    cpu_aware: bool = True,
    search: bool = True,
) -> Probe | None:
    """The next count to try, inside `least`..`most`; None when nothing is worth trying.

    Only for a window under saturated demand whose count is the one in force: without waiting work
    the throughput says nothing about the thread count. `predicted` gives the model's tasks a
    second at the present CPU, not yet moved onto measured points (their own rule is that half the way to a
    worse one is open): a step on which it expects a clear loss is made smaller or left out.
    """
    if not window.saturated or regime.probes >= MOST_PROBES:
        return None
    low, high = _known_worse(window, regime)
    least = max(least, regime.tried_below or 1, low)
    most = min(most, regime.tried_above or most, high)
    radius = regime.trust_radius or TRUST_RADIUS
    held_back = _held_back(window, estimate) if search else None
    found = [held_back, _cpu_aware(window, estimate) if cpu_aware else None]
    if search:
        found += [_upwards(window, estimate, radius), _downwards(window, estimate, radius)]
    for probe in found:
        if probe is None:
            continue
        threads = min(max(probe.threads, least), most)
        if probe is not held_back:
            threads = _expected(threads, window.threads, predicted)
        if _is_a_step(window.threads, threads, up=probe.threads > window.threads):
            return Probe(threads, probe.tier, probe.reason)
    return None


def _is_a_step(k: int, threads: int, *, up: bool) -> bool:
    """In the direction meant, and large enough to be told from noise."""
    if (threads > k) is not up or threads == k:
        return False
    return max(threads, k) >= SMALLEST_STEP * min(threads, k)


def _known_worse(window: WorkloadWindow, regime: Regime) -> tuple[int, int]:
    """Between this count and one that was measured to do less there is half the way, in log k."""
    k, rate = window.threads, window.tasks_per_second
    worse = [p.threads for p in regime.points if p.tasks_per_second < rate]
    above = min((n for n in worse if n > k), default=None)
    below = max((n for n in worse if n < k), default=None)
    high = MAX_THREADS if above is None else math.floor(math.sqrt(k * above))
    low = 1 if below is None else math.ceil(math.sqrt(k * below))
    return (low if low <= k / SMALLEST_STEP else k), (high if high >= k * SMALLEST_STEP else k)


def _expected(wanted: int, k: int, predicted: Callable[[int], float]) -> int:
    """`wanted`, or nearer to k where the model expects too much of a loss."""
    for _ in range(4):
        if wanted == k or predicted(wanted) >= (1.0 - MOST_EXPECTED_LOSS) * predicted(k):
            return wanted
        nearer = round(math.sqrt(wanted * k))
        wanted = nearer if nearer != wanted else k
    return k


def _cpu_aware(window: WorkloadWindow, estimate: Estimate) -> Probe | None:
    used, cores, k = window.cpu_used_cores, estimate.parameters.cpu_servers, window.threads
    if used is None or not math.isfinite(cores):
        return None
    if used < IDLE_SHARE * cores and crowd_at_dispatcher(window) is None:
        factor = min(LARGEST_STEP, 0.9 * cores / max(used, 1e-9))
        threads = max(k + 1, round(k * factor))
        return Probe(
            threads, Tier.CPU_AWARE, f"work waits and {used / cores:.0%} of the CPU is in use"
        )
    runnable = _runnable(window)
    if runnable is None or used < BUSY_SHARE * cores or runnable <= QUEUE_PER_CORE * cores:
        return None
    threads = max(math.ceil(cores), math.ceil(k * KEPT_PER_CORE * cores / runnable))
    if threads > 0.8 * k:
        return None  # nothing to speak of
    words = f"{runnable:.1f} threads are runnable on {cores:.3g} CPUs: the rest only queues"
    return Probe(max(threads, math.ceil(k / LARGEST_STEP)), Tier.CPU_AWARE, words)


def _runnable(window: WorkloadWindow) -> float | None:
    """Mean number of threads on a CPU or in its run queue (Little's law)."""
    if window.task_cpu_seconds is None or window.task_runqueue_seconds is None:
        return None
    return window.tasks_per_second * (window.task_cpu_seconds + window.task_runqueue_seconds)


def _upwards(window: WorkloadWindow, estimate: Estimate, radius: float) -> Probe | None:
    k, bound, rate = window.threads, _bound(estimate), estimate.tasks_per_second
    if crowd_at_dispatcher(window) is not None or rate >= (1.0 - ROOM_ABOVE) * bound:
        return None
    words = f"the bounds leave {min(bound / rate - 1.0, 9.99):.0%} above what is measured"
    return Probe(max(k + 1, round(k * radius)), Tier.SEARCH, words)


def _downwards(window: WorkloadWindow, estimate: Estimate, radius: float) -> Probe | None:
    k, crowded = window.threads, crowd_at_dispatcher(window) is not None
    if k <= 1 or not in_each_others_way(estimate, crowded=crowded):
        return None
    words = "threads are in each other's way at the dispatcher or for the CPU"
    return Probe(min(k - 1, round(k / radius)), Tier.SEARCH, words)


def _held_back(window: WorkloadWindow, estimate: Estimate) -> Probe | None:
    """Fewer threads would do as much if nothing held them back, so something does.

    The model without contention gives more with fewer threads than was measured with all of them.
    It is not anchored to the measurement, so its promise for few threads stands on its own.
    """
    k = window.threads
    if k <= 1 or estimate.serial_seconds is not None:
        return None
    free = replace(
        estimate.parameters,
        contention_linear=0.0,
        contention_quadratic=0.0,
        contention_handover=0.0,
    )
    curve = throughput_curve(free, k)
    if estimate.tasks_per_second > (1.0 - HELD_BACK) * curve[-1]:
        return None
    enough = int(np.argmax(curve >= 1.03 * estimate.tasks_per_second)) + 1
    threads = max(enough, math.floor(math.sqrt(enough * k)) if k > 4 else enough)
    if threads >= k:
        return None
    share = estimate.tasks_per_second / curve[-1]
    words = f"{k} threads do {share:.0%} of what they could alone: something holds them back"
    return Probe(threads, Tier.SEARCH, words)


def _bound(estimate: Estimate) -> float:
    """Tasks a second that no thread count can exceed at this CPU: min(C/D', 1/S)."""
    p = estimate.parameters
    rates = [p.cpu_servers / max(estimate.cpu_seconds_a_task, 1e-12)]
    if p.dispatch_seconds > 0:
        rates.append(1.0 / p.dispatch_seconds)
    if estimate.serial_seconds:
        rates.append(1.0 / estimate.serial_seconds)
    return min(rates)


def in_each_others_way(estimate: Estimate, *, crowded: bool) -> bool:
    p = estimate.parameters
    if crowded or p.contention_linear + p.contention_handover > CONTENDED:
        return True
    return estimate.cpu_seconds_a_task > OVERHEAD * (p.cpu_seconds + p.dispatch_seconds)
