"""Behind its shield the worst of policies leaves queues as stable as the heuristic does."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.heuristics import HEADROOM, ColdAwareSED, Reason
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, RoutingPolicy, Width
from slimscale.routing.shield import Objection, bounded_hold
from slimscale.routing.shielded import DecisionTrace, ShieldedPolicy, Slowdowns
from tests.property.routing.test_policies_keep_their_laws import pod_lists, requests
from tests.support.routing_cases import WIDTHS

SLO_SECONDS = 0.1
KAPPA = 3.0
OVERLOAD = 1.5


@dataclass(slots=True)
class Worst:
    """Sends everything to the slowest (pod, width); with `odd`, by chance to ones that are not there."""

    odd: float = 0.0
    name: str = "PPO"

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        draw = rng.random()
        if draw < self.odd / 3.0:
            return None
        if draw < self.odd / 2.0:
            raise ValueError("no finite score")
        if draw < self.odd:
            return Route("gone", widths[-1], 4, 0.0, "", hold_seconds=float("nan"))
        found = DelayModel(max_batch_rows=1).candidates(request, pods, widths)
        # not the queue's length but the work decides, so that it piles up on one pod
        worst = max(found, key=lambda one: (one.service_seconds, one.pod.name))
        return Route(worst.pod.name, worst.width, 10_000, 1e-9, "")

    def learn(self, outcome: Outcome) -> None:
        return

    def arrived(self, rows: int, *, now: float) -> None:
        return

    def follow(self, slowdowns: Slowdowns) -> None:
        return

    def trace(self) -> DecisionTrace | None:
        return None


class Slowest(Worst):
    """The slowest choice that the shield lets through."""

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        found = DelayModel(max_batch_rows=1).candidates(request, pods, widths)
        budget = min(request.slo_seconds, request.deadline_seconds)
        least = min(one.expected_seconds for one in found)
        limit = max(HEADROOM * budget, KAPPA * least)
        worst = max(
            (one for one in found if one.expected_seconds <= limit),
            key=lambda one: one.expected_seconds,
        )
        return Route(worst.pod.name, worst.width, 1, 1e-9, "")


def view(name: str, backlog: float, row_seconds: float) -> PodView:
    widths = tuple(
        WidthTelemetry(
            width.model, 1, False, 0, 0, base_seconds=0.0,
            row_seconds=row_seconds * width.flops_ratio, load_seconds=0.0,
        )
        for width in WIDTHS
    )  # fmt: skip
    return PodView(name, "cpu", PodTelemetry(widths, backlog), 0.0, {})


def longest_queue(
    policy: RoutingPolicy, row_seconds: Sequence[float], gap_seconds: float, requests_number: int
) -> float:
    """Seconds of work in the longest queue at any time; one request each `gap_seconds`."""
    rng = Random(7)
    work = dict.fromkeys((f"pod-{index}" for index in range(len(row_seconds))), 0.0)
    longest = 0.0
    for _ in range(requests_number):
        views = [view(n, w, s) for (n, w), s in zip(work.items(), row_seconds, strict=True)]
        route = policy.choose(RequestView(1, 10.0, SLO_SECONDS), views, WIDTHS, rng)
        assert route is not None
        seconds = row_seconds[int(route.pod[4:])] * route.width.flops_ratio
        work[route.pod] += seconds
        longest = max(longest, work[route.pod])
        for name in work:
            work[name] = max(0.0, work[name] - gap_seconds)
    return longest


@given(
    row_seconds=st.lists(st.floats(0.005, 0.06), min_size=1, max_size=4),
    load=st.floats(0.5, 0.9),
    adversary=st.sampled_from([Worst(), Worst(odd=0.5), Slowest()]),
)
@settings(max_examples=15, deadline=None)
def test_queues_stay_bounded_at_every_load_that_the_heuristic_can_take(
    row_seconds: list[float], load: float, adversary: Worst
) -> None:
    """At this load the slimmest width is enough, and the widest would be far too much."""
    capacity = sum(1.0 / (seconds * WIDTHS[0].flops_ratio) for seconds in row_seconds)
    shielded = ShieldedPolicy(adversary, base=ColdAwareSED(max_batch_rows=1))
    longest = longest_queue(shielded, row_seconds, 1.0 / (load * capacity), 600)
    slack = len(row_seconds) * max(row_seconds)
    assert longest <= KAPPA * OVERLOAD * SLO_SECONDS + slack


def test_without_the_shield_the_same_policy_has_no_bound() -> None:
    row_seconds = [0.02, 0.03]
    capacity = sum(1.0 / (seconds * WIDTHS[0].flops_ratio) for seconds in row_seconds)
    free = longest_queue(Worst(), row_seconds, 1.0 / (0.8 * capacity), 1000)
    held = longest_queue(
        ShieldedPolicy(Worst(), base=ColdAwareSED(max_batch_rows=1)),
        row_seconds, 1.0 / (0.8 * capacity), 1000,
    )  # fmt: skip
    assert free > 10 * held


def test_the_heuristic_works_a_long_queue_off_with_the_narrowest_width() -> None:
    """With two seconds queued all widths of a pod take about as long; their work differs by 14."""
    policy = ColdAwareSED(max_batch_rows=1)
    views = [view("a", 2.0, 0.03), view("b", 2.01, 0.03)]
    rng = Random(1)
    routes = [policy.choose(RequestView(1, 10.0, 0.1), views, WIDTHS, rng) for _ in range(200)]
    wider = [r for r in routes if r and r.width is not WIDTHS[0] and r.reason != Reason.TRIES_WIDER]
    assert not wider
    assert {route.pod for route in routes if route} == {"a", "b"}


@given(pods=pod_lists(), request=requests, seed=st.integers(0, 100))
@settings(deadline=None)
def test_whatever_is_proposed_the_route_is_feasible_and_near_the_least_delay(
    pods: list[PodView], request: RequestView, seed: int
) -> None:
    base = ColdAwareSED(max_batch_rows=32)
    policy = ShieldedPolicy(Worst(odd=0.3), base=base)
    route = policy.choose(request, pods, WIDTHS, Random(seed))
    found = base.delays.candidates(request, pods, WIDTHS)
    assert (route is None) == (not found)
    if route is None:
        return
    delays = {(one.pod.name, one.width.model): one.expected_seconds for one in found}
    assert (route.pod, route.width.model) in delays
    assert request.rows <= route.batch_cap <= max(32, request.rows)
    if policy.stood:
        budget = min(request.slo_seconds, request.deadline_seconds)
        least = min(delays.values())
        assert route.expected_seconds == delays[route.pod, route.width.model]
        assert route.expected_seconds <= max(HEADROOM * budget, KAPPA * least)
        assert route.expected_seconds <= HEADROOM * budget or least <= OVERLOAD * budget
    else:
        probe = any(one.probing for one in pods)  # then the heuristic alone decides
        assert sum(policy.overruled.values()) == (not probe)
        assert (policy.last_objection is None) == probe


def test_each_objection_is_counted_by_its_name() -> None:
    class Proposes(Worst):
        route: Route | None = None

        def choose(
            self,
            request: RequestView,
            pods: Sequence[PodView],
            widths: Sequence[Width],
            rng: Random,
        ) -> Route | None:
            return self.route

    proposes = Proposes()
    policy = ShieldedPolicy(proposes, base=ColdAwareSED(max_batch_rows=1))
    pods = [view("near", 0.0, 0.01), view("far", 0.35, 0.01)]
    pods.append(PodView("out", "cpu", pods[0].telemetry, 0.0, {}, ejected=True))
    pods.append(PodView("full", "cpu", pods[0].telemetry, 0.0, {}, refusing=True))

    def objection(
        pod: str, width: Width, *, accuracy: float = 0.0, backlog: float = 0.0
    ) -> Objection | None:
        proposes.route = Route(pod, width, 1, 0.0, "")
        views = [view(p.name, backlog, 0.01) if p.name == "near" else p for p in pods]
        asked = RequestView(1, 10.0, SLO_SECONDS, accuracy)
        assert policy.choose(asked, views, WIDTHS, Random(1)) is not None
        return policy.last_objection

    assert objection("near", WIDTHS[0]) is None
    assert objection("far", WIDTHS[0]) is Objection.TOO_SLOW
    assert objection("far", WIDTHS[0], backlog=0.3) is Objection.OVERLOADED
    assert objection("out", WIDTHS[0]) is Objection.UNHEALTHY
    assert objection("full", WIDTHS[0]) is Objection.UNHEALTHY
    assert objection("gone", WIDTHS[0]) is Objection.UNHEALTHY
    assert objection("near", WIDTHS[0], accuracy=0.74) is Objection.INACCURATE
    assert policy.overruled[Objection.UNHEALTHY] == 3


@given(hold=st.one_of(st.floats(), st.floats(0, 0.2)), backlog=st.floats(0, 0.2))
@settings(deadline=None)
def test_a_hold_is_cut_to_what_the_slack_leaves(hold: float, backlog: float) -> None:
    asked = RequestView(1, 10.0, SLO_SECONDS)
    [chosen] = DelayModel(max_batch_rows=1).candidates(
        asked, [view("a", backlog, 0.001)], WIDTHS[:1]
    )
    kept = bounded_hold(hold, chosen, asked)
    assert 0.0 <= kept <= max(0.0, hold if hold > 0.0 else 0.0)
    if kept:
        assert chosen.expected_seconds + kept <= HEADROOM * SLO_SECONDS + 1e-12
