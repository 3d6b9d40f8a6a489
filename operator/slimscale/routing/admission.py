"""What happens to a request before it is routed: at once, held until a pod is there, or refused early.

A refusal comes at once, with the time after which another try makes sense. Nothing is refused on a
guess: only delays from measured service times count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from slimscale.routing.expected_delay import Candidate, DelayModel
from slimscale.routing.policy import PodView, RequestView, Width

__all__ = ["Admission", "BufferLimits", "Refusal", "Verdict", "admit", "may_hold"]


class Verdict(StrEnum):
    ROUTE = "Route"
    HOLD = "Hold"
    REFUSE = "Refuse"


class Refusal(StrEnum):
    """Why a request is refused: a bounded label."""

    QUEUES_FULL = "QueuesFull"
    TOO_LATE = "DeadlineCannotBeKept"
    BUFFER_COUNT = "BufferFull"
    BUFFER_BYTES = "BufferBytes"
    NOT_ACCURATE = "NoWidthAccurateEnough"
    DEADLINE = "DeadlinePassed"


@dataclass(frozen=True, slots=True)
class Admission:
    verdict: Verdict
    refusal: Refusal | None = None
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BufferLimits:
    requests: int
    total_bytes: int


_ROUTE = Admission(Verdict.ROUTE)
_HOLD = Admission(Verdict.HOLD)


def admit(
    request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], delays: DelayModel
) -> Admission:
    """Whether to route now. Meant for a request that no pod has tried yet.

    HOLD: nobody is there to refuse it (no pods, or all draining or ejected), so that scaling from zero
    or a replacement can serve it. REFUSE: the pods that are there are full, or the soonest answer would
    come after the deadline.
    """
    if request.deadline_seconds <= 0.0:
        return Admission(Verdict.REFUSE, Refusal.DEADLINE)
    if not any(width.accuracy >= request.min_accuracy for width in widths):
        return Admission(Verdict.REFUSE, Refusal.NOT_ACCURATE)
    return judge(request, delays.candidates(request, pods, widths), pods)


def judge(
    request: RequestView, candidates: Sequence[Candidate], pods: Sequence[PodView]
) -> Admission:
    """`admit` over candidates that are already worked out."""
    if not candidates:
        full = [pod for pod in pods if pod.refusing and not (pod.ejected and not pod.probing)]
        if not full:
            return _HOLD
        wait = min(_backlog(pod) for pod in full)
        return Admission(Verdict.REFUSE, Refusal.QUEUES_FULL, wait)
    late = min(candidate.expected_seconds for candidate in candidates) - request.deadline_seconds
    if late <= 0.0 or not all(candidate.time.measured for candidate in candidates):
        return _ROUTE
    return Admission(Verdict.REFUSE, Refusal.TOO_LATE, late)


def may_hold(
    *, held: int, held_bytes: int, body_bytes: int, limits: BufferLimits
) -> Refusal | None:
    """None where one more request of `body_bytes` may wait, else what is full."""
    if held >= limits.requests:
        return Refusal.BUFFER_COUNT
    if held_bytes + body_bytes > limits.total_bytes:
        return Refusal.BUFFER_BYTES
    return None


def _backlog(pod: PodView) -> float:
    backlog = pod.telemetry.backlog_seconds if pod.telemetry is not None else 0.0
    return backlog if math.isfinite(backlog) and backlog > 0.0 else 0.1
