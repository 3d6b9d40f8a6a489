"""The mixture moves its trust to the base policy whose routes end well."""

import math
from random import Random

import pytest

from slimscale.routing.heuristics import ColdAwareSED, Fastest
from slimscale.routing.mixture import Mixture, Objective, reward
from slimscale.routing.policy import Outcome, Route
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
