"""Which pod, width and cap the policies choose, in cases that can be checked by hand."""

from collections import Counter
from random import Random

import pytest

from slimscale.api.serving_config import PolicyName
from slimscale.domain.serving import PodTelemetry
from slimscale.routing.heuristics import (
    CheapestWithinSlack,
    ColdAwareSED,
    Fastest,
    Reason,
    RoundRobin,
    ShortestExpectedDelay,
)
from slimscale.routing.policy import PodView, Route
from slimscale.routing.registry import make_policy
from tests.support.routing_cases import WIDTHS, pod, request, telemetry, width_telemetry

WIDEST, SLIMMEST = WIDTHS[3], WIDTHS[0]
ALL_COLD = tuple(width.model for width in WIDTHS)


def sed(*pods: PodView, kind: type = ColdAwareSED, **asked: float) -> Route:
    route = kind(max_batch_rows=32).choose(
        request(**asked),  # type: ignore[arg-type]
        pods,
        WIDTHS,
        Random(1),
    )
    assert isinstance(route, Route)
    return route


def test_an_idle_pod_answers_with_the_widest_width() -> None:
    route = sed(pod("a", telemetry()))
    assert (route.width, route.reason) == (WIDEST, Reason.WITHIN_SLACK)
    assert route.expected_seconds == pytest.approx(0.002 + 0.004)


def test_the_width_narrows_as_the_slo_gets_near() -> None:
    chosen = [
        sed(pod("a", telemetry(backlog=backlog, row=0.040)), slo=0.1).width.ratio
        for backlog in (0.0, 0.04, 0.06, 0.07)
    ]
    assert chosen == [1.0, 0.75, 0.5, 0.25]


def test_when_no_width_keeps_the_slo_the_fastest_answers() -> None:
    route = sed(pod("a", telemetry(backlog=5.0)))
    assert (route.width, route.reason) == (SLIMMEST, Reason.FASTEST)


def test_a_deadline_shorter_than_the_slo_narrows_the_width_too() -> None:
    assert sed(pod("a", telemetry(row=0.1)), deadline=0.02, slo=10.0).width == SLIMMEST


def test_loading_overlaps_the_drain_only_for_the_cold_aware_policy() -> None:
    cold = pod("cold", telemetry(backlog=0.9, cold=ALL_COLD, load_seconds=1.0))
    warm = pod("warm", telemetry(backlog=1.2))
    assert sed(cold, warm, kind=ColdAwareSED, slo=0.1).pod == "cold"  # max(.9, 1) < 1.2
    assert sed(cold, warm, kind=ShortestExpectedDelay, slo=0.1).pod == "warm"  # .9 + 1 > 1.2


def test_a_cold_width_loses_to_a_warm_one_that_is_less_accurate_but_in_time() -> None:
    route = sed(pod("a", telemetry(cold=(WIDEST.model,), load_seconds=3.0)))
    assert route.width == WIDTHS[2]


def test_rows_sent_since_the_telemetry_count_at_once() -> None:
    stale = telemetry()
    busy = pod("a", stale, in_flight={WIDEST.model: 32})
    assert sed(busy, pod("b", telemetry(backlog=0.05))).pod == "b"


def test_old_telemetry_is_taken_to_have_been_worked_off() -> None:
    old = pod("a", telemetry(backlog=0.2), age=0.3)
    assert sed(old, pod("b", telemetry(backlog=0.1))).pod == "a"


def test_a_pod_whose_answer_is_overdue_gets_no_more() -> None:
    hung = pod("a", telemetry(), overdue=0.5)
    assert sed(hung, pod("b", telemetry(backlog=0.2))).pod == "b"


def test_an_unknown_service_time_is_that_of_the_pools_other_pods() -> None:
    fresh = pod("fresh", telemetry(base=None, row=None), pool="slow")
    mate = pod("mate", telemetry(row=0.2, backlog=9.0), pool="slow")
    other = pod("other", telemetry(row=0.1), pool="fast")
    assert sed(fresh, mate, other, slo=0.01).pod == "other"


def test_an_unknown_width_is_scaled_from_the_pods_own_by_flops() -> None:
    seen = PodTelemetry(
        widths=(
            width_telemetry(WIDEST, base=0.01, row=0.1),
            width_telemetry(SLIMMEST, base=None, row=None),
        ),
        backlog_seconds=0.0,
    )
    route = sed(pod("a", seen), slo=0.02)
    assert route.width == SLIMMEST
    assert route.expected_seconds == pytest.approx(0.01 + 0.1 * 0.07)


@pytest.mark.parametrize("name", list(PolicyName))
def test_pods_of_which_nothing_is_known_share_the_load(name: PolicyName) -> None:
    policy = make_policy(name, max_batch_rows=32)
    rng = Random(7)
    sent: dict[str, Counter[str]] = {f"p{index}": Counter() for index in range(4)}
    for _ in range(200):
        pods = [pod(key, in_flight=rows) for key, rows in sent.items()]
        route = policy.choose(request(), pods, WIDTHS, rng)
        assert route is not None
        sent[route.pod][route.width.model] += 1
    shares = [sum(rows.values()) for rows in sent.values()]
    assert min(shares) >= 30, shares


@pytest.mark.parametrize("name", list(PolicyName))
def test_equal_idle_pods_share_the_load_when_answers_are_quicker_than_arrivals(
    name: PolicyName,
) -> None:
    policy = make_policy(name, max_batch_rows=32)
    rng = Random(7)
    pods = [pod(f"p{index}", telemetry()) for index in range(4)]
    shares = Counter(
        route.pod for _ in range(400) if (route := policy.choose(request(), pods, WIDTHS, rng))
    )
    assert min(shares[view.name] for view in pods) >= 50, shares


def test_pods_that_differ_by_less_than_measurements_scatter_share_the_load() -> None:
    policy = ColdAwareSED(max_batch_rows=32)
    rng = Random(7)
    pods = [pod(f"p{index}", telemetry(row=0.0400 + 0.0002 * index)) for index in range(4)]
    pods.append(pod("slow", telemetry(row=0.06)))
    shares = Counter(
        route.pod for _ in range(400) if (route := policy.choose(request(), pods, WIDTHS, rng))
    )
    assert min(shares[f"p{index}"] for index in range(4)) >= 50, shares
    assert shares["slow"] == 0


def test_round_robin_visits_each_pod_once_a_turn_and_skips_one_that_went() -> None:
    policy = RoundRobin(max_batch_rows=32)
    pods = [pod(name, telemetry()) for name in "abc"]

    def visit(views: list[PodView]) -> str:
        route = policy.choose(request(), views, WIDTHS, Random(1))
        assert route is not None
        return route.pod

    assert [visit(pods) for _ in range(4)] == ["a", "b", "c", "a"]
    assert [visit([pods[0], pods[2]]) for _ in range(3)] == ["c", "a", "c"]


def test_random_uses_every_pod_and_every_accurate_width() -> None:
    policy = make_policy(PolicyName.RANDOM, max_batch_rows=32)
    rng = Random(3)
    routes = [
        policy.choose(request(min_accuracy=0.73), [pod("a"), pod("b")], WIDTHS, rng)
        for _ in range(200)
    ]
    used = {(route.pod, route.width.ratio) for route in routes if route is not None}
    assert used == {(name, ratio) for name in "ab" for ratio in (0.5, 0.75, 1.0)}


@pytest.mark.parametrize(
    ("slo", "cap"),
    [(1.0, 32), (0.1, 16), (0.020, 4), (0.007, 1)],
)
def test_the_cap_is_the_largest_batch_that_ends_in_time(slo: float, cap: int) -> None:
    seen = PodTelemetry(widths=(width_telemetry(WIDEST),), backlog_seconds=0.0)
    assert sed(pod("a", seen), slo=slo).batch_cap == cap  # base 2 ms + 4 ms a row


@pytest.mark.parametrize(("backlog", "cap"), [(0.0, 16), (0.03, 16), (0.07, 8), (0.2, 8), (9.0, 8)])
def test_a_queue_does_not_shrink_the_batches_that_work_it_off(backlog: float, cap: int) -> None:
    seen = PodTelemetry(widths=(width_telemetry(WIDEST),), backlog_seconds=backlog)
    assert sed(pod("a", seen), slo=0.1).batch_cap == cap  # base 2 ms + 4 ms a row


def test_the_cap_is_never_below_the_requests_own_rows() -> None:
    assert sed(pod("a", telemetry(backlog=9.0)), rows=20, slo=0.007).batch_cap == 20


def slow_once(seconds: float) -> PodTelemetry:
    """The widest width was last measured while the machine was busy."""
    return PodTelemetry(
        widths=(*telemetry().widths[:3], width_telemetry(WIDEST, base=seconds)),
        backlog_seconds=0.0,
    )


def test_a_width_that_looked_slow_once_is_tried_again_now_and_then() -> None:
    policy = ColdAwareSED(max_batch_rows=32)
    rng = Random(5)
    seen, tries = slow_once(0.9), 0
    for _ in range(3000):
        route = policy.choose(request(slo=0.25), [pod("a", seen)], WIDTHS, rng)
        assert route is not None
        if route.width == WIDEST:
            assert route.reason == Reason.TRIES_WIDER
            tries += 1
    assert 3 <= tries <= 40
    assert sed(pod("a", slow_once(0.002)), slo=0.25).width == WIDEST


def test_a_wider_width_is_not_tried_cold_or_behind_a_queue() -> None:
    policy = ColdAwareSED(max_batch_rows=32)
    rng = Random(5)
    cold = pod("cold", telemetry(cold=(WIDEST.model,), load_seconds=30.0))
    busy = pod("busy", telemetry(backlog=0.15, row=0.2))
    for _ in range(2000):
        for view in (cold, busy):
            route = policy.choose(request(slo=0.25), [view], WIDTHS, rng)
            assert route is not None
            assert route.reason != Reason.TRIES_WIDER


def test_a_probing_pod_gets_the_next_request_but_no_retry() -> None:
    views = [pod("ill", telemetry(backlog=3.0), ejected=True, probing=True), pod("b", telemetry())]
    policy = ColdAwareSED(max_batch_rows=32)
    first = policy.choose(request(), views, WIDTHS, Random(1))
    retry = policy.choose(request(tried=frozenset({"c"})), views, WIDTHS, Random(1))
    assert first is not None
    assert retry is not None
    assert (first.pod, first.reason) == ("ill", Reason.PROBE)
    assert retry.pod == "b"


def test_the_cheapest_within_the_slo_saves_energy_where_time_allows() -> None:
    hungry = pod("gpu", telemetry(row=0.004), power_watts=300.0)
    frugal = pod("cpu", telemetry(row=0.012), power_watts=30.0)
    assert sed(hungry, frugal, kind=CheapestWithinSlack).pod == "cpu"
    assert sed(hungry, frugal, kind=CheapestWithinSlack, slo=0.0029).pod == "gpu"


def test_fastest_takes_the_slimmest_even_with_time_to_spare() -> None:
    assert sed(pod("a", telemetry()), kind=Fastest).width == SLIMMEST
