"""KaiS-like control: its reward, the slow policy that learns from it, and the dispatch within it."""

from math import exp
from random import Random

import pytest

from slimscale.routing.policy import Outcome
from slimscale.routing.related.two_time_scales import FramePolicy, TwoTimeScales, kais_reward
from tests.support.routing_cases import WIDTHS, pod, request, telemetry


def test_the_reward_is_that_of_its_public_code() -> None:
    even = kais_reward(failed=0, total=10, utilisations=[0.5, 0.5])
    assert even == pytest.approx(2.0)
    uneven = kais_reward(failed=5, total=10, utilisations=[0.0, 1.0])
    assert uneven == pytest.approx(exp(-0.5) + exp(-0.5))
    assert kais_reward(failed=0, total=0, utilisations=[]) == pytest.approx(2.0)


def test_the_slow_policy_learns_the_plan_whose_frames_end_well() -> None:
    frames = FramePolicy(3)
    rng = Random(1)
    plan = frames.chosen
    for _ in range(400):
        plan = frames.next_frame((1.2, 1.9, 1.4)[plan] + rng.gauss(0.0, 0.05), rng.random())
    assert max(frames.shares()) == frames.shares()[1] > 0.8


def test_late_frames_narrow_what_dispatch_may_use() -> None:
    """Telemetry does not show that everything but the slimmest width is late; the frames do."""
    policy = TwoTimeScales(max_batch_rows=32, frame_answers=20)
    rng = Random(3)
    views = [pod("a", telemetry()), pod("b", telemetry())]
    asked = request(slo=0.1)
    used = []
    for _ in range(4000):
        route = policy.choose(asked, views, WIDTHS, rng)
        assert route is not None
        used.append(route.width.ratio)
        late = route.width.ratio > 0.25
        policy.learn(Outcome(asked, route, latency_seconds=0.3 if late else 0.02, succeeded=True))
    assert used[:20] == [1.0] * 20
    assert used[-1000:].count(0.25) > 700


def test_a_request_that_needs_a_wide_width_gets_one_whatever_the_frame() -> None:
    policy = TwoTimeScales(max_batch_rows=32)
    policy.frames.chosen = 0
    route = policy.choose(request(min_accuracy=0.755), [pod("a", telemetry())], WIDTHS, Random(5))
    assert route is not None
    assert route.width.accuracy >= 0.755
