"""Laws that every routing policy keeps, whatever the telemetry says."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.api.serving_config import PolicyName
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.heuristics import (
    HEADROOM,
    NEAR_SECONDS,
    NEAR_SHARE,
    ColdAwareSED,
    Reason,
    ShortestExpectedDelay,
)
from slimscale.routing.policy import Outcome, PodView, RequestView
from slimscale.routing.registry import make_policy
from tests.support.routing_cases import WIDTHS

ODD_SECONDS = st.one_of(
    st.none(),
    st.floats(0, 10),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0]),
)
MODELS = [width.model for width in WIDTHS]

width_telemetries = st.builds(
    WidthTelemetry,
    model=st.sampled_from([*MODELS, "unheard-of"]),
    instances=st.integers(0, 3),
    loading=st.booleans(),
    queued_rows=st.integers(0, 100),
    running_rows=st.integers(0, 32),
    base_seconds=ODD_SECONDS,
    row_seconds=ODD_SECONDS,
    load_seconds=ODD_SECONDS,
)
telemetries = st.builds(
    PodTelemetry,
    widths=st.lists(width_telemetries, max_size=5).map(tuple),
    backlog_seconds=ODD_SECONDS.map(lambda value: 0.0 if value is None else value),
    draining=st.booleans(),
    power_watts=ODD_SECONDS,
)


@st.composite
def pod_lists(draw: st.DrawFn) -> list[PodView]:
    return [
        PodView(
            name=f"pod-{index}",
            pool=draw(st.sampled_from(["cpu", "gpu"])),
            telemetry=draw(st.one_of(st.none(), telemetries)),
            telemetry_age_seconds=draw(st.floats(0, 100)),
            in_flight_rows=draw(st.dictionaries(st.sampled_from(MODELS), st.integers(0, 64))),
            probing=draw(st.booleans()),
            ejected=draw(st.booleans()),
            refusing=draw(st.booleans()),
            overdue_seconds=draw(st.floats(0, 5)),
        )
        for index in range(draw(st.integers(0, 6)))
    ]


requests = st.builds(
    RequestView,
    rows=st.integers(1, 64),
    deadline_seconds=st.floats(0.001, 60),
    slo_seconds=st.floats(0.001, 10),
    min_accuracy=st.floats(0, 1),
    tried_pods=st.frozensets(st.sampled_from([f"pod-{index}" for index in range(6)])),
)


@pytest.mark.parametrize("name", list(PolicyName))
@settings(max_examples=60, deadline=None)
@given(request=requests, pods=pod_lists(), seed=st.integers(0, 2**32))
def test_a_route_is_always_one_that_may_be_taken(
    name: PolicyName, request: RequestView, pods: list[PodView], seed: int
) -> None:
    policy = make_policy(name, max_batch_rows=32)
    route = policy.choose(request, pods, WIDTHS, Random(seed))
    if route is None:
        return
    chosen = next(pod for pod in pods if pod.name == route.pod)
    assert route.pod not in request.tried_pods
    assert not chosen.refusing
    assert chosen.probing or not chosen.ejected
    assert route.width in WIDTHS
    assert route.width.accuracy >= request.min_accuracy
    if chosen.telemetry is not None:
        assert not chosen.telemetry.draining
        assert route.width.model in {width.model for width in chosen.telemetry.widths}
    assert route.batch_cap >= request.rows
    assert route.batch_cap <= max(32, request.rows)
    assert math.isfinite(route.expected_seconds)
    assert route.expected_seconds >= 0
    policy.learn(Outcome(request, route, latency_seconds=math.nan, succeeded=True))
    policy.learn(Outcome(request, route, latency_seconds=0.1, succeeded=False))


@pytest.mark.parametrize("name", list(PolicyName))
@settings(max_examples=40, deadline=None)
@given(request=requests, pods=pod_lists(), seed=st.integers(0, 2**32))
def test_a_route_is_found_wherever_a_pod_may_take_the_request(
    name: PolicyName, request: RequestView, pods: list[PodView], seed: int
) -> None:
    possible = DelayModel(max_batch_rows=32).candidates(request, pods, WIDTHS)
    route = make_policy(name, max_batch_rows=32).choose(request, pods, WIDTHS, Random(seed))
    assert (route is not None) == bool(possible)


@pytest.mark.parametrize("kind", [ColdAwareSED, ShortestExpectedDelay])
@settings(max_examples=80, deadline=None)
@given(request=requests, pods=pod_lists(), seed=st.integers(0, 2**32))
def test_sed_takes_the_least_delay_of_the_width_that_its_rule_names(
    kind: type[ColdAwareSED] | type[ShortestExpectedDelay],
    request: RequestView,
    pods: list[PodView],
    seed: int,
) -> None:
    policy = kind(max_batch_rows=32)
    route = policy.choose(request, pods, WIDTHS, Random(seed))
    if route is None or route.reason in (Reason.PROBE, Reason.TRIES_WIDER):
        return
    candidates = DelayModel(max_batch_rows=32).candidates(request, pods, WIDTHS)
    # A second try is no probe: it goes to a pod that is being tried again only where no other is.
    well = [candidate for candidate in candidates if not candidate.pod.probing]
    delays = {
        (candidate.pod.name, candidate.width.model): (
            candidate.expected_seconds if kind is ColdAwareSED else candidate.serial_seconds,
            candidate.width.accuracy,
        )
        for candidate in well or candidates
    }
    assert route.expected_seconds == delays[route.pod, route.width.model][0]
    slack = HEADROOM * min(request.slo_seconds, request.deadline_seconds)
    within = [(-accuracy, delay) for delay, accuracy in delays.values() if delay <= slack]
    if within:
        accuracy, least = min(within)
        assert route.width.accuracy == -accuracy
    else:
        least = min(delay for delay, _ in delays.values())
    assert least <= route.expected_seconds <= least * (1 + NEAR_SHARE) + NEAR_SECONDS


@settings(max_examples=80, deadline=None)
@given(request=requests, pods=pod_lists())
def test_overlapping_a_load_is_never_slower_than_adding_it(
    request: RequestView, pods: list[PodView]
) -> None:
    for candidate in DelayModel(max_batch_rows=32).candidates(request, pods, WIDTHS):
        assert candidate.expected_seconds <= candidate.serial_seconds
        assert candidate.expected_seconds >= candidate.drain_seconds
