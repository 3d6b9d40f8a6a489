"""The finite-source queue against published values, hand calculations and a dense solve."""

import math

import numpy as np
import pytest

from slimscale.threads.finite_source import (
    FiniteSourceMM1,
    erlang_b,
    smallest_population_by_gain,
    smallest_population_within,
)
from tests.support.markov import stationary

RATIOS = (1, 2, 4, 8, 16, 32, 64, 128)
THREADS = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.5, (0.666667, 0.923077, 0.998420, 1.000000, 1, 1)),
        (2, (0.333333, 0.600000, 0.904762, 0.999141, 1, 1)),
        (8, (0.111111, 0.219512, 0.425365, 0.764430, 0.995470, 1)),
        (32, (0.030303, 0.060550, 0.120859, 0.240562, 0.474199, 0.871367)),
    ],
)
def test_throughput_equals_the_reference_table_to_six_digits(
    ratio: float, expected: tuple[float, ...]
) -> None:
    curve = FiniteSourceMM1(32, 1 / ratio, 1.0).throughput_curve()
    at_threads = [curve[threads - 1] for threads in THREADS]
    assert at_threads == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        (0.10, (3, 4, 7, 11, 19, 34, 64, 122)),
        (0.05, (4, 5, 8, 13, 21, 38, 70, 132)),
        (0.01, (5, 7, 10, 15, 25, 44, 79, 147)),
    ],
)
def test_fewest_threads_within_a_tolerance_equal_the_reference_table(
    tolerance: float, expected: tuple[int, ...]
) -> None:
    assert tuple(smallest_population_within(r, tolerance) for r in RATIOS) == expected


def test_fewest_threads_by_marginal_gain_equal_the_reference_table() -> None:
    found = tuple(smallest_population_by_gain(ratio, 0.01) for ratio in RATIOS)
    assert found == (5, 6, 9, 14, 23, 38, 65, 95)


def test_as_many_threads_as_the_time_ratio_are_too_few() -> None:
    reached = [FiniteSourceMM1(r, 1.0, r).solve().utilisation for r in (8, 32, 128)]
    assert reached == pytest.approx([0.76, 0.87, 0.93], abs=0.005)


def test_one_thread_never_waits() -> None:
    metrics = FiniteSourceMM1(1, 0.25, 2.0).solve()
    assert metrics.throughput_per_second == pytest.approx(1 / (4 + 0.5))
    assert metrics.wait_seconds == 0
    assert metrics.response_seconds == pytest.approx(0.5)


def test_two_threads_equal_the_balance_solved_by_hand() -> None:
    # r = 1: p0 = 1/5, p1 = 2/5, p2 = 2/5
    queue = FiniteSourceMM1(2, 1.0, 1.0)
    metrics = queue.solve()
    assert queue.state_probabilities() == pytest.approx([0.2, 0.4, 0.4])
    assert metrics.empty_probability == pytest.approx(0.2)
    assert metrics.throughput_per_second == pytest.approx(0.8)
    assert metrics.mean_number == pytest.approx(1.2)
    assert metrics.mean_waiting == pytest.approx(0.4)


def test_every_mean_equals_a_dense_solve_of_the_chain() -> None:
    population, think, service = 9, 0.3, 1.7
    flows = [((n,), (n + 1,), (population - n) * think) for n in range(population)]
    flows += [((n,), (n - 1,), service) for n in range(1, population + 1)]
    weights = stationary([(n,) for n in range(population + 1)], flows)
    queue = FiniteSourceMM1(population, think, service)
    metrics = queue.solve()
    at_dispatcher = np.arange(population + 1)
    assert queue.state_probabilities() == pytest.approx(weights, rel=1e-9)
    assert metrics.throughput_per_second == pytest.approx(service * (1 - weights[0]), rel=1e-9)
    assert metrics.mean_number == pytest.approx(at_dispatcher @ weights, rel=1e-9)
    waiting = np.maximum(at_dispatcher - 1, 0) @ weights
    assert metrics.mean_waiting == pytest.approx(waiting, rel=1e-9)


def test_speed_up_tends_to_one_plus_the_time_ratio() -> None:
    queue = FiniteSourceMM1(400, 1.0, 24.0)
    curve = queue.throughput_curve()
    assert curve[-1] / curve[0] == pytest.approx(queue.saturation_point)
    assert queue.saturation_point == 25


def test_asymptotes_cross_at_the_saturation_point() -> None:
    queue = FiniteSourceMM1(20, 1.0, 7.0)
    bound = queue.bound_curve()
    assert bound[7] == pytest.approx(7.0)  # k = 1 + r = 8
    assert bound[6] < 7.0
    assert bound[19] == 7.0


@pytest.mark.parametrize(
    ("servers", "load", "expected"),
    [(0, 3.0, 1.0), (1, 1.0, 0.5), (2, 1.0, 0.2), (3, 0.0, 0.0), (10, 5.0, 0.018384570)],
)
def test_erlang_b_equals_known_values(servers: int, load: float, expected: float) -> None:
    assert erlang_b(servers, load) == pytest.approx(expected, rel=1e-6)


def test_erlang_b_equals_its_definition_by_factorials() -> None:
    for servers in range(1, 20):
        terms = [6.5**i / math.factorial(i) for i in range(servers + 1)]
        assert erlang_b(servers, 6.5) == pytest.approx(terms[-1] / sum(terms), rel=1e-12)


def test_small_probabilities_keep_their_digits_at_both_ends() -> None:
    nearly_idle = FiniteSourceMM1(1, 1e-9, 1e9).solve()
    assert nearly_idle.utilisation == pytest.approx(1e-18, rel=1e-12)
    assert nearly_idle.mean_number == pytest.approx(1e-18, rel=1e-12)
    nearly_busy = FiniteSourceMM1(2, 1e9, 1e-9).solve()
    assert nearly_busy.empty_probability == pytest.approx(5e-37, rel=1e-12)


@pytest.mark.parametrize("think", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("service", [1e-12, 1.0, 1e12])
def test_extreme_rates_and_populations_stay_finite(think: float, service: float) -> None:
    queue = FiniteSourceMM1(5000, think, service)
    metrics = queue.solve()
    assert all(
        math.isfinite(value)
        for value in (metrics.throughput_per_second, metrics.mean_number, metrics.wait_seconds)
    )
    assert np.isfinite(queue.throughput_curve()).all()
    assert queue.state_probabilities().sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("population", "think", "service", "name"),
    [
        (0, 1.0, 1.0, "population is 0"),
        (2.0, 1.0, 1.0, "population is 2.0"),
        (True, 1.0, 1.0, "population is True"),
        (2, -1.0, 1.0, "think_rate_per_second is -1.0"),
        (2, 1.0, math.nan, "service_rate_per_second is nan"),
        (2, 1.0, 0.0, "service_rate_per_second is 0.0"),
        (2, math.inf, 1.0, "think_rate_per_second is inf"),
    ],
)
def test_impossible_queues_are_refused_by_name_and_value_with_a_remedy(
    population: int, think: float, service: float, name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*; give "):
        FiniteSourceMM1(population, think, service)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.1, math.nan])
def test_a_tolerance_that_is_no_share_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match=r"^tolerance is .*; give a share"):
        smallest_population_within(8.0, tolerance)
    with pytest.raises(ValueError, match=r"^least_gain is .*; give a share"):
        smallest_population_by_gain(8.0, tolerance)


def test_a_negative_load_or_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^offered_load is -1\.0.*; give arrival rate"):
        erlang_b(3, -1.0)
    with pytest.raises(ValueError, match=r"^time_ratio is nan.*; give mean execution"):
        smallest_population_within(math.nan, 0.05)
