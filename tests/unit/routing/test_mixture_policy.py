"""The mixture moves its trust to the base policy whose routes end well."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.heuristics import ColdAwareSED, Fastest, Heuristic, Reason
from slimscale.routing.mixture import Mixture, Objective, reward
from slimscale.routing.policy import Outcome, RequestView, Route
from tests.support.routing_cases import WIDTHS, pod, request, telemetry

WIDEST, SLIMMEST = WIDTHS[3], WIDTHS[0]


def mixture(weights: tuple[float, ...] = (0.0, 0.0), **settings: object) -> Mixture:
    return Mixture(
        max_batch_rows=32,
        bases=(ColdAwareSED, Fastest),
        weights=weights,
        **settings,  # type: ignore[arg-type]
    )


def log_likelihood(weights: list[float], support: tuple[float, ...]) -> float:
    parts = [math.exp(weight) for weight in weights]
    return math.log(sum(q * k for q, k in zip(parts, support, strict=True)) / sum(parts))


@pytest.mark.parametrize("support", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.25, 0.5)])
def test_the_gradient_is_the_slope_of_the_log_likelihood(support: tuple[float, ...]) -> None:
    policy = mixture((0.3, -0.5))
    step = 1e-6
    for index, slope in enumerate(policy.gradient(support)):
        up = list(policy.weights)
        up[index] += step
        down = list(policy.weights)
        down[index] -= step
        numeric = (log_likelihood(up, support) - log_likelihood(down, support)) / (2 * step)
        assert slope == pytest.approx(numeric, abs=1e-6)


def play(policy: Mixture, *, widest_seconds: float, slimmest_seconds: float, seed: int) -> None:
    """400 requests on a pod whose telemetry does not show how long answers really take."""
    rng = Random(seed)
    views = [pod("a", telemetry())]
    for _ in range(400):
        asked = request(slo=0.1)
        route = policy.choose(asked, views, WIDTHS, rng)
        assert route is not None
        seconds = widest_seconds if route.width == WIDEST else slimmest_seconds
        policy.learn(Outcome(asked, route, latency_seconds=seconds, succeeded=True))


def test_trust_goes_to_the_slim_routes_where_wide_ones_are_late() -> None:
    policy = mixture()
    play(policy, widest_seconds=0.5, slimmest_seconds=0.02, seed=1)
    assert policy.shares()[1] > 0.9


def test_trust_goes_to_the_wide_routes_where_both_are_quick() -> None:
    policy = mixture()
    play(policy, widest_seconds=0.02, slimmest_seconds=0.02, seed=1)
    assert policy.shares()[0] > 0.75


def test_no_base_policy_is_ever_given_up() -> None:
    policy = mixture(learning_rate=1.0)
    for seed in range(5):
        play(policy, widest_seconds=0.5, slimmest_seconds=0.02, seed=seed)
    assert min(policy.shares()) > 0.001


def test_the_same_seed_gives_the_same_routes_and_weights() -> None:
    first, second = mixture(), mixture()
    play(first, widest_seconds=0.2, slimmest_seconds=0.02, seed=9)
    play(second, widest_seconds=0.2, slimmest_seconds=0.02, seed=9)
    assert first.weights == second.weights


@pytest.mark.parametrize("latency", [math.nan, math.inf, -1.0])
def test_nothing_is_learnt_from_a_latency_that_is_none(latency: float) -> None:
    policy = mixture()
    route = policy.choose(request(), [pod("a", telemetry())], WIDTHS, Random(1))
    assert route is not None
    before = list(policy.weights)
    policy.learn(Outcome(request(), route, latency_seconds=0.05, succeeded=True))
    policy.learn(Outcome(request(), route, latency_seconds=latency, succeeded=True))
    assert policy.weights == before


def test_an_answer_of_another_policy_from_before_a_swap_changes_nothing() -> None:
    policy = mixture()
    foreign = Route("a", WIDEST, 8, 0.1, "InTurn")
    policy.learn(Outcome(request(), foreign, latency_seconds=9.0, succeeded=False))
    assert policy.weights == [0.0, 0.0]


def test_a_failed_request_earns_less_than_the_slimmest_answer() -> None:
    slim = Route("a", SLIMMEST, 8, 0.1, "Fastest")
    wide = Route("a", WIDEST, 8, 0.1, "Fastest")
    answered = reward(Outcome(request(), slim, 0.2, True), Objective())
    failed = reward(Outcome(request(), wide, 0.001, False), Objective())
    assert answered is not None
    assert failed is not None
    assert failed < answered


def test_one_weight_a_base_policy_is_asked_for() -> None:
    with pytest.raises(ValueError, match="weights has 3 figures for 2 base policies"):
        mixture((1.0, 2.0, 3.0))


class _Always(Heuristic):
    """Whatever happens, the same pod."""

    place = 0

    def _pick(
        self,
        candidates: Sequence[Candidate],
        request: RequestView,
        rng: Random,
    ) -> tuple[Candidate, Reason]:
        names = sorted({candidate.pod.name for candidate in candidates})
        own = [one for one in candidates if one.pod.name == names[self.place]]
        return own[0], Reason.IN_TURN


class _AlwaysFirst(_Always):
    name = "AlwaysFirst"


class _AlwaysSecond(_Always):
    name = "AlwaysSecond"
    place = 1


def _backlog_after(policy: Mixture, requests: int, seed: int) -> float:
    """Two pods that serve 1 request a second each, 1.5 a second come; the total queue at the end."""
    rng = Random(seed)
    queues = {"a": 0.0, "b": 0.0}
    asked = request(slo=4.0)
    for _ in range(requests):
        gap = rng.expovariate(1.5)
        queues = {name: max(0.0, queue - gap) for name, queue in queues.items()}
        views = [pod(name, telemetry()) for name in queues]  # which does not show the queues
        route = policy.choose(asked, views, WIDTHS[:1], rng)
        assert route is not None
        queues[route.pod] += 1.0
        policy.learn(Outcome(asked, route, latency_seconds=queues[route.pod], succeeded=True))
    return sum(queues.values())


def test_the_learnt_mixture_is_stable_where_each_of_its_bases_alone_is_not() -> None:
    """The point of improper learning (arXiv 2105.00210): no base can bear the load, their mixture can."""
    bases = (_AlwaysFirst, _AlwaysSecond)
    alone = [
        Mixture(max_batch_rows=32, bases=bases, weights=weights, learning_rate=0.0)
        for weights in ((40.0, -40.0), (-40.0, 40.0))
    ]
    for policy in alone:
        assert _backlog_after(policy, 4000, seed=1) > 1000.0  # it grows by half a request a second
    learnt = Mixture(max_batch_rows=32, bases=bases, weights=(2.0, 0.0), learning_rate=0.05)
    assert _backlog_after(learnt, 4000, seed=1) < 40.0
    assert 0.35 < learnt.shares()[0] < 0.65
