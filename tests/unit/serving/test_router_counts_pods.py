"""What the router counts of a pod: rows in flight, telemetry, link time, health."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.domain.serving import PodTelemetry
from slimscale.routing.ejection import EjectionRules
from slimscale.serving.router.endpoints import Endpoint
from slimscale.serving.router.pods import Pod, Pods, Sent
from slimscale.serving.telemetry import encode_telemetry
from tests.support.routing_cases import telemetry

A = Endpoint("a", "10.0.0.1", 8080, ready=True)
B = Endpoint("b", "10.0.0.2", 8080, ready=True)


def pods(*endpoints: Endpoint) -> Pods:
    found = Pods(EjectionRules(), changed=lambda _gone: None)
    found.update({endpoint.name: endpoint for endpoint in endpoints or (A, B)})
    return found


def send(pod: Pod, rows: int = 1, *, now: float, model: str = "m-w100") -> Sent:
    return pod.sent(model, rows, now=now, expected_seconds=0.1)


def in_flight(pod: Pod, *, now: float) -> dict[str, int]:
    from slimscale.routing.ejection import Health

    return dict(pod.view(Health.WELL, now=now).in_flight_rows)


def test_rows_count_from_the_moment_they_leave_until_they_are_given_back() -> None:
    pod = Pod(A)
    first, second = send(pod, 3, now=1.0), send(pod, 4, now=1.0, model="m-w025")
    assert in_flight(pod, now=1.0) == {"m-w100": 3, "m-w025": 4}
    pod.given_back(first)
    assert in_flight(pod, now=1.0) == {"m-w025": 4}
    pod.given_back(second)
    pod.given_back(second)
    assert in_flight(pod, now=1.0) == {}


def test_rows_that_telemetry_has_counted_do_not_come_on_top() -> None:
    pod = Pod(A)
    send(pod, 3, now=1.0)
    send(pod, 5, now=2.0)
    pod.told(encode_telemetry(telemetry()), now=1.5)
    assert in_flight(pod, now=2.0) == {"m-w100": 5}
    assert pod.in_flight_rows == 8


def test_rows_still_on_their_way_when_telemetry_was_written_come_on_top() -> None:
    pod = Pod(A)
    pod.measured_link(0.3)
    send(pod, 3, now=1.0)
    send(pod, 5, now=1.3)
    pod.told(encode_telemetry(telemetry()), now=1.5)
    assert in_flight(pod, now=1.5) == {"m-w100": 5}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "give back", "telemetry"]), st.integers(0, 30)),
        max_size=60,
    )
)
def test_whatever_the_order_all_that_was_sent_is_given_back(steps: list[tuple[str, int]]) -> None:
    pod = Pod(A)
    out: list[Sent] = []
    now = 0.0
    for index, (step, number) in enumerate(steps):
        now += 0.01
        if step == "send":
            out.append(send(pod, number + 1, now=now))
        elif step == "give back" and out:
            pod.given_back(out.pop(number % len(out)))
        elif step == "telemetry":
            pod.told(encode_telemetry(telemetry(backlog=float(index))), now=now)
        counted = in_flight(pod, now=now)
        assert all(rows > 0 for rows in counted.values())
        assert sum(counted.values()) <= pod.in_flight_rows == sum(sent.rows for sent in out)
    for sent in out:
        pod.given_back(sent)
    assert in_flight(pod, now=now) == {}
    assert pod.in_flight_rows == 0


def test_telemetry_is_read_a_few_hundred_times_a_second_at_most() -> None:
    pod = Pod(A)
    pod.told(encode_telemetry(telemetry(backlog=1.0)), now=1.0)
    in_flight(pod, now=1.0)
    pod.told(encode_telemetry(telemetry(backlog=2.0)), now=1.001)
    in_flight(pod, now=1.001)
    first = pod.telemetry
    in_flight(pod, now=1.006)
    assert first is not None
    assert pod.telemetry is not None
    assert (first.backlog_seconds, pod.telemetry.backlog_seconds) == (1.0, 2.0)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"widths": 3, "backlog_seconds": 1}', b'{"widths": []}', b"\xff\xfe"],
)
def test_telemetry_that_cannot_be_read_leaves_the_last_one(text: bytes) -> None:
    pod = Pod(A)
    pod.told(encode_telemetry(telemetry(backlog=1.0)), now=1.0)
    in_flight(pod, now=1.0)
    pod.told(text, now=2.0)
    in_flight(pod, now=2.0)
    assert pod.telemetry == telemetry(backlog=1.0)


def test_numbers_that_are_none_arrive_as_unknown() -> None:
    odd = PodTelemetry(widths=(), backlog_seconds=0.0, utilisation=float("nan"))
    pod = Pod(A)
    pod.told(encode_telemetry(odd), now=1.0)
    in_flight(pod, now=1.0)
    assert pod.telemetry is not None
    assert pod.telemetry.utilisation is None


def test_an_answer_past_its_expected_time_makes_the_pod_overdue() -> None:
    from slimscale.routing.ejection import Health

    pod = Pod(A)
    sent = send(pod, now=1.0)
    assert pod.view(Health.WELL, now=1.05).overdue_seconds == 0.0
    assert pod.view(Health.WELL, now=1.6).overdue_seconds == pytest.approx(0.5)
    pod.given_back(sent)
    assert pod.view(Health.WELL, now=9.0).overdue_seconds == 0.0


def test_one_slow_exchange_does_not_make_a_pod_look_far_away() -> None:
    pod = Pod(A)
    for seconds in (0.001, 0.5, 0.001, 0.5):
        pod.measured_link(seconds)
    assert pod.link_seconds < 0.0011


def test_a_way_that_has_become_longer_is_believed_after_a_while() -> None:
    pod = Pod(A)
    pod.measured_link(0.001)
    for _ in range(200):
        pod.measured_link(0.02)
    assert pod.link_seconds == pytest.approx(0.02)


def test_a_pod_that_cannot_be_connected_is_left_alone_for_longer_and_longer() -> None:
    found = pods()
    pod = found.get("a")
    assert pod is not None
    pauses = []
    for _ in range(7):
        pod.unreachable(now=10.0)
        pauses.append(round(pod.unreachable_until - 10.0, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert [view.ejected for view in found.views(now=11.0)] == [True, False]
    pod.reached()
    assert [view.ejected for view in found.views(now=11.0)] == [False, False]


def test_a_pod_of_the_same_name_at_another_address_starts_anew() -> None:
    gone: list[str] = []
    found = Pods(EjectionRules(), changed=lambda pods: gone.extend(pod.host for pod in pods))
    found.update({"a": A})
    first = found.get("a")
    found.update({"a": Endpoint("a", "10.0.0.9", 8080, ready=True)})
    assert found.get("a") is not first
    assert gone == ["10.0.0.1"]


def test_pods_that_are_not_ready_are_no_choice() -> None:
    found = pods(A, Endpoint("b", "10.0.0.2", 8080, ready=False))
    assert [view.name for view in found.views(now=0.0)] == ["a"]


def test_late_news_of_a_pod_that_has_gone_do_not_blame_its_successor() -> None:
    found = pods()
    old = found.get("a")
    assert old is not None
    found.update({"a": Endpoint("a", "10.0.0.9", 8080, ready=True), "b": B})
    for _ in range(10):
        found.failed(old, now=1.0)
    assert not any(view.ejected for view in found.views(now=1.0))
