"""Priority rules: each takes the job that it is named for, and does what it is known for."""

from random import Random

import pytest

from slimscale.routing.related.dispatch_rules import (
    Job,
    LeastWorkRemaining,
    PriorityRule,
    ShortestProcessingTime,
    next_job,
)
from tests.support.routing_cases import WIDTHS, pod, request, telemetry

JOBS = (
    Job(0, arrived=0.0, due=9.0, next_seconds=3.0, remaining_seconds=5.0),
    Job(1, arrived=1.0, due=4.0, next_seconds=2.0, remaining_seconds=6.0),
    Job(2, arrived=2.0, due=8.0, next_seconds=1.0, remaining_seconds=4.5),
    Job(3, arrived=3.0, due=7.0, next_seconds=2.5, remaining_seconds=2.5),
)


@pytest.mark.parametrize(("rule", "number"), list(zip(PriorityRule, (0, 2, 1, 3), strict=True)))
def test_each_rule_takes_its_own_first(rule: PriorityRule, number: int) -> None:
    assert next_job(rule, JOBS).number == number


def _serve(rule: PriorityRule, jobs: list[Job]) -> tuple[float, float]:
    """One machine, all jobs there from the start: (mean flow time, largest lateness)."""
    now, flows, late = 0.0, [], []
    left = list(jobs)
    while left:
        job = next_job(rule, left)
        left.remove(job)
        now += job.next_seconds
        flows.append(now)
        late.append(now - job.due)
    return sum(flows) / len(flows), max(late)


@pytest.mark.parametrize("seed", range(5))
def test_spt_has_the_least_mean_flow_time_and_edd_the_least_largest_lateness(seed: int) -> None:
    """Smith 1956 and Jackson 1955, on one machine."""
    rng = Random(seed)
    jobs = []
    for number in range(12):
        work = rng.uniform(0.1, 2.0)
        jobs.append(Job(number, 0.0, rng.uniform(1.0, 12.0), work, work))
    flows = {rule: _serve(rule, jobs)[0] for rule in PriorityRule}
    lates = {rule: _serve(rule, jobs)[1] for rule in PriorityRule}
    assert flows[PriorityRule.SPT] == min(flows.values())
    assert lates[PriorityRule.EDD] == min(lates.values())


def test_spt_runs_after_the_fast_pod_and_lwkr_after_the_idle_one() -> None:
    views = [
        pod("fast", telemetry(backlog=0.2, row=0.001)),
        pod("slow", telemetry(backlog=0.0, row=0.02)),
    ]
    asked = request(slo=0.5, deadline=5.0)
    for policy, expected in (
        (ShortestProcessingTime(max_batch_rows=32), "fast"),
        (LeastWorkRemaining(max_batch_rows=32), "slow"),
    ):
        route = policy.choose(asked, views, WIDTHS, Random(1))
        assert route is not None
        assert route.pod == expected


def test_asking_without_a_job_is_refused() -> None:
    with pytest.raises(ValueError, match="no job waits"):
        next_job(PriorityRule.SPT, [])
