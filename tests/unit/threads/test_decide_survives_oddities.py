"""Figures of pods that no sound program serves: the decision holds or goes on, it never fails."""

import json
import math

from slimscale.threads.decide import decide
from tests.support.decide_cases import SPEC, fresh_decision
from tests.support.observations import make_observation, make_pod, make_sample


def test_a_program_with_thousands_of_threads_is_brought_within_the_bounds() -> None:
    samples = tuple(
        make_sample(
            1000.0 + 5 * i,
            tasks=500.0 * i,
            threads=5000,
            outstanding=9000.0,
            task_runqueue_seconds_total=None,
        )
        for i in range(5)
    )
    decision = fresh_decision(
        make_observation((make_pod(samples=samples),), 1020.0), threads={"max": 16}
    )
    assert decision.target is not None
    assert decision.target.threads <= 16


def test_an_infinite_quota_does_not_reach_what_is_remembered() -> None:
    samples = tuple(make_sample(1000.0 + 5 * i, tasks=100.0 * i, quota=math.inf) for i in range(4))
    pod = make_pod(samples=samples)
    decision = decide(
        observation=make_observation((pod,), 1015.0), spec=SPEC, memo={}, now_seconds=1015.0
    )
    assert decision.metrics_reason == "MetricsInvalid"
    assert json.dumps(decision.memo, allow_nan=False)
