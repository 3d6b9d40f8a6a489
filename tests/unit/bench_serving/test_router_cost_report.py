"""The page about a policy's cost: ratios of the same repetition, losses like wins."""

from slimscale.bench.router.decisions import DecisionTime, time_decisions
from slimscale.bench.router.measure import Cost
from slimscale.bench.router.report import document_of, page_of

RAN = {
    "command": "c", "machine": "m", "code": "x", "policy": "p", "pods": 8, "clients": 16,
    "seconds": 1.0, "repetitions": 2, "load_average": "1 to 2",
}  # fmt: skip


def document(ppo_microseconds: float, decision_microseconds: float) -> str:
    costs = [
        Cost(policy, 8, 1000 * scale, 1.0, cpu * scale)
        for scale in (1, 3)  # the second repetition ran on a machine three times as busy
        for policy, cpu in (("SED", 180.0), ("PPO", ppo_microseconds))
    ]
    decisions = [DecisionTime("PPO", 8, decision_microseconds, 50.0, 600.0)]
    return page_of(document_of(costs, decisions, RAN, seed=1))


def test_a_policy_is_compared_with_sed_in_the_same_repetition() -> None:
    page = document(200.0, 40.0)
    assert "| PPO | 400 | 0.900 (0.900 to 0.900) |" in page
    assert "| PPO: capacity of SED's | at least 0.9 | 0.900 | yes |" in page
    assert "| PPO: median decision at 8 pods | under 200 µs | 40 µs | yes |" in page


def test_a_goal_that_is_missed_stands_there_as_missed() -> None:
    page = document(240.0, 250.0)
    assert "| PPO: capacity of SED's | at least 0.9 | 0.750 | **no** |" in page
    assert "under 200 µs | 250 µs | **no** |" in page


def test_every_policy_is_timed() -> None:
    found = time_decisions(2, decisions=20)
    assert [one.policy for one in found] == [
        "SED", "ColdAwareSED", "network at each request", "PPO",
    ]  # fmt: skip
    assert all(0 < one.median_microseconds <= one.p99_microseconds for one in found)
