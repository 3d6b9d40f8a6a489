"""Priority rules of job shops: which waiting job a free machine takes (science brief 3, ISBJSSP).

    FIFO   the one that came first           EDD    earliest due date
    SPT    shortest processing time          LWKR   least work remaining over all its operations

EDD is what a pod's queue does by itself (`slimscale.routing.queues`). As routing rules on arrival, SPT
sends to the pod and width that computes it soonest whatever waits there, and LWKR to the pod with the
least work before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from random import Random

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.heuristics import Delay, Heuristic, Reason, least, widest_within_slack
from slimscale.routing.policy import RequestView

__all__ = ["Job", "LeastWorkRemaining", "PriorityRule", "ShortestProcessingTime", "next_job"]


class PriorityRule(StrEnum):
    FIFO = "FIFO"
    SPT = "SPT"
    EDD = "EDD"
    LWKR = "LWKR"


@dataclass(frozen=True, slots=True)
class Job:
    """A request that waits for its next operation. Seconds on one clock."""

    number: int
    arrived: float
    due: float
    next_seconds: float
    """Of the next operation on the machine that asks."""
    remaining_seconds: float
    """Of all its operations."""


def next_job(rule: PriorityRule, jobs: Sequence[Job]) -> Job:
    """The job that the rule takes; ties go to the older one."""
    if not jobs:
        raise ValueError("no job waits; ask only where one does")
    key = {
        PriorityRule.FIFO: attrgetter("arrived"),
        PriorityRule.SPT: attrgetter("next_seconds"),
        PriorityRule.EDD: attrgetter("due"),
        PriorityRule.LWKR: attrgetter("remaining_seconds"),
    }[rule]
    return min(jobs, key=lambda job: (key(job), job.arrived, job.number))


class ShortestProcessingTime(Heuristic):
    """The pod with the shortest service of the request's width: what waits there does not count."""

    name = "SPT"

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        return widest_within_slack(candidates, request, _service, rng)


class LeastWorkRemaining(Heuristic):
    """The pod with the least work before it, there the widest within slack."""

    name = "LWKR"

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        pod = least(candidates, _drain, rng).pod
        own = [one for one in candidates if one.pod.name == pod.name]
        return widest_within_slack(own, request, self._delay, rng)


_service: Delay = attrgetter("service_seconds")
_drain: Delay = attrgetter("drain_seconds")
