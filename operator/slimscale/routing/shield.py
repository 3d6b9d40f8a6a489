"""What a learned policy may do: its choice stands, or the base heuristic decides instead.

With d the expected delay of a choice, m the least one of all candidates, S the
request's slack and B what is left of its SLO and deadline (S = 0.8 B), a choice stands where

    d <= S    or    ( d <= kappa * m  and  m <= 1.5 B )

So a slow pod or a wide model may be picked on purpose while that keeps the SLO, never a hundred times
the delay of a better one, and where nothing keeps the SLO any more the heuristic works the queues
off. Hence stability: no choice of the policy makes a queue longer than max(S, 1.5 kappa B), and as
soon as every queue is longer than 1.5 B, the heuristic alone acts, which is stable wherever it is on its own.
A hold for a fuller batch is cut to what the slack leaves: holding is no reason to be late.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.feasibility import may_take
from slimscale.routing.heuristics import HEADROOM
from slimscale.routing.policy import PodView, RequestView

__all__ = ["Objection", "ShieldRules", "bounded_hold", "object_to", "why_infeasible"]


class Objection(StrEnum):
    """Why the base heuristic decides instead: a bounded label."""

    TOO_SLOW = "FarFromLeastDelay"
    OVERLOADED = "NothingInTime"
    UNHEALTHY = "UnhealthyPod"
    INACCURATE = "BelowMinAccuracy"
    NO_CHOICE = "NoChoice"
    """The policy gave none, or one that is no number."""


_TOO_SLOW, _OVERLOADED, _UNHEALTHY, _INACCURATE, _NO_CHOICE = Objection
"""Looked up once: an enumeration's member costs a microsecond each time in Python 3.11."""


@dataclass(frozen=True, slots=True)
class ShieldRules:
    kappa: float = 3.0
    """Most of the least expected delay, once the slack is not kept."""
    overload: float = 1.5
    """Of the SLO: where even the least delay is above that, the heuristic decides. At 1 a policy lost .03
    to .05 J with old telemetry, on which delays look longer than they are (simulated)."""


def object_to(
    delay: float, delays: Sequence[float], request: RequestView, rules: ShieldRules
) -> Objection | None:
    """None: the choice stands. `delay`: its expected one; `delays`: of all feasible ones."""
    budget = min(request.slo_seconds, request.deadline_seconds)
    if delay <= HEADROOM * budget:
        return None
    least = min(delays)
    if least > rules.overload * budget:
        return _OVERLOADED
    # not `>`: a delay that is no number stands nowhere
    return None if delay <= rules.kappa * least else _TOO_SLOW


def bounded_hold(hold_seconds: float, chosen: Candidate, request: RequestView) -> float:
    """What is left of a hold; 0 also for one that is no number."""
    slack = HEADROOM * min(request.slo_seconds, request.deadline_seconds)
    left = slack - chosen.expected_seconds
    return min(hold_seconds, left) if hold_seconds > 0.0 and left > 0.0 else 0.0


def why_infeasible(pod: PodView | None, accuracy: float, request: RequestView) -> Objection:
    """Why a named pod and width are not among the candidates."""
    if accuracy < request.min_accuracy:
        return _INACCURATE
    if pod is None or not may_take(pod, request):
        return _UNHEALTHY
    return _NO_CHOICE
