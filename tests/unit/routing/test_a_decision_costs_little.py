"""A decision over many pods is on the way of each request: its work is counted, not timed."""

import sys
from collections.abc import Callable
from random import Random
from types import FrameType

import pytest

from slimscale.routing.heuristics import ColdAwareSED
from slimscale.routing.policy import PodView
from tests.support.routing_cases import WIDTHS, pod, request, telemetry


def python_calls(action: Callable[[], object]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("seen", "most"),
    [(telemetry(backlog=0.01), 350), (telemetry(base=None, row=None), 1600), (None, 800)],
    ids=["measured", "nothing measured yet", "no telemetry at all"],
)
def test_eight_pods_and_four_widths_cost_a_bounded_number_of_calls(seen: object, most: int) -> None:
    views: list[PodView] = [
        pod(f"p{index}", seen, in_flight={"m-w100": 3})  # type: ignore[arg-type]
        for index in range(8)
    ]
    policy = ColdAwareSED(max_batch_rows=32)
    asked, rng = request(), Random(1)
    policy.choose(asked, views, WIDTHS, rng)
    assert python_calls(lambda: policy.choose(asked, views, WIDTHS, rng)) <= most


def test_what_was_worked_out_from_the_same_telemetry_is_not_worked_out_again() -> None:
    views = [pod(f"p{index}", telemetry()) for index in range(8)]
    policy = ColdAwareSED(max_batch_rows=32)

    def choose() -> None:
        policy.choose(request(), views, WIDTHS, Random(1))

    assert python_calls(choose) > 1.5 * python_calls(choose)
