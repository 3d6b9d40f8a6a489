"""C2: a limit that is just reached hides what more CPU would bring; throttling shows it."""

import pytest

from slimscale.domain.decision import Confidence, PodTarget
from slimscale.threads.guards import Proposal, weigh
from slimscale.threads.memo import Memo
from tests.support.observations import make_spec

HELD = PodTarget(2, 1000, 1999)


@pytest.mark.parametrize(
    ("throttled_ratio", "limit_millicores", "changed"),
    [
        (0.5, 2600, True),
        (0.0, 2600, False),
        (None, 2600, False),
        (0.5, 1999, False),
    ],
    ids=["throttled", "not throttled", "unknown", "no more CPU proposed"],
)
def test_a_throttled_pod_gets_its_cpu_without_a_predicted_gain(
    throttled_ratio: float | None, limit_millicores: int, changed: bool
) -> None:
    proposal = Proposal(
        target=PodTarget(2, 1000, limit_millicores),
        tasks_per_second=101.0,
        current=HELD,
        current_tasks_per_second=100.0,
        confidence=Confidence.HIGH,
        throttled_ratio=throttled_ratio,
        least_threads=1,
        most_threads=64,
    )
    memo = Memo(target=HELD, changed_at_seconds=0.0)
    verdict = weigh(proposal, spec=make_spec(), memo=memo, now_seconds=1e6)
    assert verdict.changed is changed
    if changed:
        assert verdict.target.cpu_limit_millicores == limit_millicores
