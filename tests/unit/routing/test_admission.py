"""Early answers: routed, held until a pod is there, or refused with the time to come back."""

import pytest

from slimscale.routing.admission import Admission, BufferLimits, Refusal, Verdict, admit, may_hold
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.policy import PodView, RequestView
from tests.support.routing_cases import WIDTHS, pod, request, telemetry


def verdict(asked: RequestView, *pods: PodView) -> Admission:
    return admit(asked, pods, WIDTHS, DelayModel(max_batch_rows=32))


@pytest.mark.parametrize(
    "pods",
    [
        (),
        (pod("a", telemetry(draining=True)),),
        (pod("a", telemetry(), ejected=True),),
        (pod("a", telemetry(draining=True)), pod("b", telemetry(), ejected=True, refusing=True)),
    ],
    ids=["no pods", "all draining", "all ejected", "draining and ejected"],
)
def test_a_request_is_held_while_nobody_is_there_to_serve_it(pods: tuple[PodView, ...]) -> None:
    assert verdict(request(), *pods).verdict is Verdict.HOLD


def test_full_pods_refuse_with_the_time_that_the_emptiest_needs() -> None:
    answer = verdict(
        request(),
        pod("a", telemetry(backlog=3.0), refusing=True),
        pod("b", telemetry(backlog=1.5), refusing=True),
    )
    assert answer == Admission(Verdict.REFUSE, Refusal.QUEUES_FULL, 1.5)


def test_one_pod_with_room_is_enough() -> None:
    views = (pod("a", telemetry(backlog=3.0), refusing=True), pod("b", telemetry()))
    assert verdict(request(), *views).verdict is Verdict.ROUTE


def test_a_deadline_that_no_pod_can_keep_is_refused_at_once() -> None:
    views = (pod("a", telemetry(backlog=3.0)), pod("b", telemetry(backlog=2.0)))
    answer = verdict(request(deadline=1.5), *views)
    assert (answer.verdict, answer.refusal) == (Verdict.REFUSE, Refusal.TOO_LATE)
    assert answer.retry_after_seconds == pytest.approx(0.5, abs=0.01)


def test_nothing_is_refused_on_a_guess() -> None:
    unknown = pod("a", telemetry(base=None, row=None, backlog=3.0))
    assert verdict(request(deadline=1.5), unknown).verdict is Verdict.ROUTE
    known_and_unknown = (
        pod("b", telemetry(backlog=3.0)),
        pod("c", None, in_flight={"m-w100": 900}),
    )
    assert verdict(request(deadline=1.5), *known_and_unknown).verdict is Verdict.ROUTE


def test_a_deadline_that_has_passed_is_refused_even_with_idle_pods() -> None:
    assert verdict(request(deadline=0.0), pod("a", telemetry())).refusal is Refusal.DEADLINE


def test_an_accuracy_that_no_width_has_is_refused_not_held() -> None:
    assert verdict(request(min_accuracy=0.99)).refusal is Refusal.NOT_ACCURATE


def test_the_buffer_is_bounded_by_count_and_by_bytes() -> None:
    limits = BufferLimits(requests=2, total_bytes=100)
    assert may_hold(held=1, held_bytes=40, body_bytes=60, limits=limits) is None
    assert may_hold(held=2, held_bytes=0, body_bytes=1, limits=limits) is Refusal.BUFFER_COUNT
    assert may_hold(held=1, held_bytes=40, body_bytes=61, limits=limits) is Refusal.BUFFER_BYTES
