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
from dataclasses import dataclass
from enum import StrEnum

from slimscale.threads.estimate import Estimate, crowd_at_dispatcher
from slimscale.threads.memo import Regime
from slimscale.threads.window import WorkloadWindow

__all__ = ["MOST_PROBES", "Probe", "Tier", "next_probe"]

MOST_PROBES = 5
"""In one load: the promise is to be near the best after at most so many steps."""
IDLE_SHARE = 0.7
"""CPU use below which waiting work says that threads are missing."""
BUSY_SHARE = 0.95
QUEUE_PER_CORE = 1.25
"""Runnable threads a core above which the rest of them only waits for a CPU."""
KEPT_PER_CORE = 1.1
LARGEST_STEP = 2.0
TRUST_RADIUS = 1.5
ROOM_ABOVE = 0.05
"""Share of throughput that the bounds must leave open for a step upwards."""
OVERHEAD = 1.3
"""CPU that a task costs over what it computes, from which threads are in each other's way."""
CONTENDED = 0.2


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
    least: int,
    most: int,
    cpu_aware: bool = True,
    search: bool = True,
) -> Probe | None:
    """The next count to try, inside `least`..`most`; None when nothing is worth trying.

    Only for a window under saturated demand whose count is the one in force: without waiting work
    the throughput says nothing about the thread count.
    """
    if not window.saturated or regime.probes >= MOST_PROBES:
        return None
    least = max(least, regime.tried_below or 1)
    most = min(most, regime.tried_above or most)
    found = _cpu_aware(window, estimate) if cpu_aware else None
    if found is None and search:
        found = _search(window, estimate, regime)
    if found is None:
        return None
    threads = min(max(found.threads, least), most)
    if threads == window.threads or (threads > window.threads) != (found.threads > window.threads):
        return None
    return Probe(threads, found.tier, found.reason)


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


def _search(window: WorkloadWindow, estimate: Estimate, regime: Regime) -> Probe | None:
    k, radius = window.threads, regime.trust_radius or TRUST_RADIUS
    bound = _bound(estimate)
    crowded = crowd_at_dispatcher(window) is not None
    rate = estimate.tasks_per_second
    if not crowded and rate < (1.0 - ROOM_ABOVE) * bound:
        room = bound / rate - 1.0
        words = f"the bounds leave {min(room, 9.99):.0%} above what is measured"
        return Probe(max(k + 1, round(k * radius)), Tier.SEARCH, words)
    if k > 1 and _in_each_others_way(estimate, crowded=crowded):
        words = "threads are in each other's way at the dispatcher or for the CPU"
        return Probe(min(k - 1, round(k / radius)), Tier.SEARCH, words)
    return None


def _bound(estimate: Estimate) -> float:
    """Tasks a second that no thread count can exceed at this CPU: min(C/D', 1/S)."""
    p = estimate.parameters
    rates = [p.cpu_servers / max(estimate.cpu_seconds_a_task, 1e-12)]
    if p.dispatch_seconds > 0:
        rates.append(1.0 / p.dispatch_seconds)
    if estimate.serial_seconds:
        rates.append(1.0 / estimate.serial_seconds)
    return min(rates)


def _in_each_others_way(estimate: Estimate, *, crowded: bool) -> bool:
    p = estimate.parameters
    if crowded or p.contention_linear + p.contention_handover > CONTENDED:
        return True
    return estimate.cpu_seconds_a_task > OVERHEAD * (p.cpu_seconds + p.dispatch_seconds)
