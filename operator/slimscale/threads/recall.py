"""Loads that came before: a program that goes to and fro between phases is not learned anew each time.

When a load ends, what it settled on is kept beside what its tasks cost. When a load begins whose
tasks cost the same on the same CPU, its thread count is tried first. It is verified like any other
change, so a wrong memory costs one window.
"""

import math
from dataclasses import dataclass, replace

from slimscale.threads.closed_network import MAX_THREADS
from slimscale.threads.memo import MAX_LOADS, KnownLoad, Memo

__all__ = ["Signature", "before_cliff", "recall", "remember_load"]

SAME_CPU_TIME = 0.25
"""Log ratio of CPU a task within which two loads are one."""
SAME_WAIT = 0.35
A_CROWD = 8
"""Threads from which a raise that lost says something of other loads: the second thread of light tasks
is a matter of theirs alone."""
REAL_WAIT = 0.2
"""Share of a task's own time from which its wait belongs to the signature."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a task costs, in seconds, and on how many CPUs."""

    cpu_seconds: float
    blocked_seconds: float
    cores: float

    @property
    def waits(self) -> bool:
        return self.blocked_seconds > REAL_WAIT * (self.blocked_seconds + self.cpu_seconds)

    def like(self, other: "Signature") -> bool:
        if min(self.cpu_seconds, other.cpu_seconds) <= 0 or self.waits != other.waits:
            return False
        if abs(math.log(self.cpu_seconds / other.cpu_seconds)) > SAME_CPU_TIME:
            return False
        if not math.isclose(self.cores, other.cores, rel_tol=0.05):
            return False
        return not self.waits or (
            abs(math.log(self.blocked_seconds / other.blocked_seconds)) <= SAME_WAIT
        )


def remember_load(memo: Memo) -> Memo:
    """Keep what the load that ends now settled on; only what stood verified, newest last."""
    points = [p for p in memo.regime.points if memo.target and p.threads == memo.target.threads]
    if memo.target is None or memo.pending is not None or not points:
        return memo
    if not memo.regime.settled:
        return memo
    point = points[-1]
    if point.windows < 2 or not point.cpu_seconds:
        return memo
    known = KnownLoad(
        threads=point.threads,
        cpu_seconds=point.cpu_seconds,
        blocked_seconds=point.blocked_seconds or 0.0,
        cores=point.cpu_cores,
        tasks_per_second=point.tasks_per_second,
    )
    others = tuple(k for k in memo.loads if not _signature(k).like(_signature(known)))
    return replace(memo, loads=(*others, known)[-MAX_LOADS:])


def recall(memo: Memo, signature: Signature) -> KnownLoad | None:
    """The newest load that was like this one; None: it is new."""
    for known in reversed(memo.loads):
        if _signature(known).like(signature):
            return known
    return None


def before_cliff(memo: Memo, threads: int) -> int:
    """Most threads to go to in one step from `threads`: half the way, in log, to where a raise once
    lost much. Having stood there, a load may go on: what it measured counts more.
    """
    refusal = memo.refusal
    if refusal is None or refusal.before < A_CROWD or threads >= refusal.after:
        return MAX_THREADS
    half = round(math.sqrt(refusal.before * refusal.after))
    if threads >= half or any(p.threads >= half for p in memo.regime.points):
        return MAX_THREADS
    return half


def _signature(known: KnownLoad) -> Signature:
    return Signature(known.cpu_seconds, known.blocked_seconds, known.cores)
