"""The closed network against reference values, other models and a dense solve."""

import math
from fractions import Fraction

import numpy as np
import pytest

from slimscale.threads.closed_network import (
    NetworkParameters,
    asymptotic_bound,
    knee_threads,
    mean_cpu_in_use,
    solve_network,
    throughput_curve,
)
from slimscale.threads.finite_source import FiniteSourceMM1
from tests.support.markov import solve_three_stations


def network(  # noqa: PLR0917 - the order of the equations, to keep the tables below readable
    blocking: float,
    cpu: float,
    dispatch: float,
    servers: float,
    linear: float = 0.0,
    quadratic: float = 0.0,
) -> NetworkParameters:
    return NetworkParameters(
        blocking_seconds=blocking,
        cpu_seconds=cpu,
        dispatch_seconds=dispatch,
        cpu_servers=servers,
        contention_linear=linear,
        contention_quadratic=quadratic,
    )


def fewest_threads_within(curve: np.ndarray, share: float, limit: float) -> int:
    return int(np.argmax(curve >= share * limit)) + 1


@pytest.mark.parametrize("ratio", [0.5, 2.0, 8.0, 32.0])
def test_blocking_part_and_dispatcher_alone_are_the_finite_source_queue(ratio: float) -> None:
    expected = FiniteSourceMM1(300, 1 / ratio, 1.0).throughput_curve()
    assert throughput_curve(network(ratio, 0, 1, 1), 300) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("ratio", [0.5, 8.0, 32.0])
def test_computing_on_a_core_for_every_thread_equals_blocking(ratio: float) -> None:
    # Only the mean of a part without a queue matters, not what the thread does in it.
    computing = throughput_curve(network(0, ratio, 1, 64), 64)
    mixed = throughput_curve(network(ratio / 4, ratio * 3 / 4, 1, 64), 64)
    blocking = throughput_curve(network(ratio, 0, 1, 1), 64)
    assert computing == pytest.approx(blocking, rel=1e-11)
    assert mixed == pytest.approx(blocking, rel=1e-11)


@pytest.mark.parametrize(
    ("ratio", "quadratic", "best_threads", "best_throughput"),
    [
        (2, 0.0005, 7, 0.986),
        (2, 0.002, 6, 0.961),
        (2, 0.01, 5, 0.890),
        (8, 0.0005, 15, 0.966),
        (8, 0.002, 13, 0.913),
        (8, 0.01, 10, 0.788),
        (32, 0.0005, 39, 0.923),
        (32, 0.002, 32, 0.822),
        (32, 0.01, 23, 0.623),
    ],
)
def test_contention_puts_the_maximum_where_the_reference_table_has_it(
    ratio: float, quadratic: float, best_threads: int, best_throughput: float
) -> None:
    curve = throughput_curve(network(ratio, 0, 1, 1, 0.0, quadratic), 256)
    assert int(np.argmax(curve)) + 1 == best_threads
    assert curve.max() == pytest.approx(best_throughput, abs=6e-4)


def test_too_many_threads_collapse_throughput_under_contention() -> None:
    curve = throughput_curve(network(32, 0, 1, 1, 0.0, 0.002), 128)
    assert curve[-1] == pytest.approx(0.030, abs=6e-4)


@pytest.mark.parametrize(
    ("blocking", "cpu", "most_threads", "limit", "expected_threads"),
    [
        (0.0, 8.0, 256, 0.25, 4),  # CPU alone, r = 8
        (4.0, 4.0, 256, 0.50, 10),  # half of it blocking
        # 90 % blocking, r = 20. CPU and dispatcher saturate together, so the approach to 1 is
        # slow: the reference counts within 99 % of what 64 threads reach.
        (18.0, 2.0, 64, 0.978495, 50),
    ],
)
def test_two_cores_need_the_threads_of_the_reference_examples(
    blocking: float, cpu: float, most_threads: int, limit: float, expected_threads: int
) -> None:
    curve = throughput_curve(network(blocking, cpu, 1, 2), most_threads)
    assert curve[-1] == pytest.approx(limit, rel=1e-6)
    assert fewest_threads_within(curve, 0.99, limit) == expected_threads


def test_without_a_dispatcher_the_knee_is_the_pool_size_rule() -> None:
    # The rule is cores times one plus wait over compute.
    parameters = network(3.0, 0.5, 0.0, 4)
    assert knee_threads(parameters) == pytest.approx(4 * (1 + 3.0 / 0.5))
    curve = throughput_curve(parameters, 200)
    assert curve[-1] == pytest.approx(4 / 0.5)


@pytest.mark.parametrize("servers", [0.5, 1, 1.5, 2, 3.7, 50])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_mean_equals_a_dense_solve_of_the_chain(servers: float, threads: int) -> None:
    exact = solve_three_stations(
        threads=threads,
        blocking_seconds=3.0,
        cpu_seconds=2.0,
        dispatch_seconds=0.5,
        cpu_servers=servers,
        contention_linear=0.1,
        contention_quadratic=0.02,
    )
    metrics = solve_network(network(3.0, 2.0, 0.5, servers, 0.1, 0.02), threads)
    assert metrics.throughput_per_second[-1] == pytest.approx(exact.throughput_per_second, rel=1e-9)
    assert metrics.mean_blocked[-1] == pytest.approx(exact.mean_blocked, rel=1e-9)
    assert metrics.mean_at_cpu[-1] == pytest.approx(exact.mean_at_cpu, rel=1e-9)
    assert metrics.mean_at_dispatcher[-1] == pytest.approx(exact.mean_at_dispatcher, rel=1e-9)
    assert metrics.dispatcher_utilisation[-1] == pytest.approx(
        exact.dispatcher_utilisation, rel=1e-9
    )


def test_a_long_curve_equals_convolution_in_exact_fractions() -> None:
    # Binary fractions, so both sides start from the very same numbers.
    blocking, cpu, dispatch, servers, count = 6.5, 0.75, 0.125, Fraction(5, 2), 96
    stations = [[Fraction(1)], [Fraction(1)], [Fraction(1)]]
    for i in range(1, count + 1):
        stations[0].append(stations[0][-1] * Fraction(blocking) / i)
        stations[1].append(stations[1][-1] * Fraction(cpu) / min(Fraction(i), servers))
        growth = 1 + Fraction(1, 64) * i * (i - 1)
        stations[2].append(stations[2][-1] * Fraction(dispatch) * growth)

    def convolve(left: list[Fraction], right: list[Fraction]) -> list[Fraction]:
        return [
            sum((left[j] * right[n - j] for j in range(n + 1)), Fraction(0))
            for n in range(count + 1)
        ]

    constants = convolve(convolve(stations[0], stations[1]), stations[2])
    exact = [float(constants[n - 1] / constants[n]) for n in range(1, count + 1)]
    curve = throughput_curve(network(blocking, cpu, dispatch, 2.5, 0.0, 1 / 64), count)
    assert curve == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(
    ("parameters", "at_two_threads"),
    [
        (network(4, 0, 0, 1), 0.5),  # nobody in the way
        (network(0, 4, 0, 1), 0.25),  # one core
        (network(0, 4, 0, 1.5), 0.375),  # a core and a half
        (network(0, 4, 0, 0.5), 0.125),  # half a core
        (network(0, 0, 4, 1), 0.25),  # the dispatcher alone
        (network(0, 0, 4, 1, 0.5, 0.25), 0.125),  # two there: twice as slow
    ],
)
def test_a_single_part_behaves_as_its_definition_says(
    parameters: NetworkParameters, at_two_threads: float
) -> None:
    curve = throughput_curve(parameters, 2)
    assert curve[1] == pytest.approx(at_two_threads)


def test_two_threads_on_one_and_a_half_cores_run_faster_than_on_one() -> None:
    one, between, two = (throughput_curve(network(0, 1, 0, c), 4) for c in (1.0, 1.5, 2.0))
    assert between[0] == pytest.approx(one[0])
    assert between[1] == pytest.approx((one[1] + two[1]) / 2)


def test_the_bound_has_its_three_branches() -> None:
    limited_by_cpu = asymptotic_bound(network(4, 4, 1, 2), 10)
    assert limited_by_cpu[0] == pytest.approx(1 / 9)
    assert limited_by_cpu[-1] == pytest.approx(0.5)
    limited_by_dispatcher = asymptotic_bound(network(4, 1, 4, 2), 10)
    assert limited_by_dispatcher[-1] == pytest.approx(0.25)
    assert asymptotic_bound(network(2, 0, 0, 1), 10)[-1] == pytest.approx(5.0)
    assert math.isinf(knee_threads(network(2, 0, 0, 1)))


def test_cores_in_use_never_exceed_the_cores_there_are() -> None:
    parameters = network(1.0, 2.0, 0.1, 1.5)
    cores = mean_cpu_in_use(parameters, throughput_curve(parameters, 64))
    assert cores[0] == pytest.approx(2.0 / 3.1)
    assert cores[-1] == pytest.approx(1.5)
    assert cores.max() <= 1.5 * (1 + 1e-12)


def test_a_dispatcher_that_runs_on_a_cpu_adds_its_own_time() -> None:
    parameters = network(1.0, 2.0, 0.5, 8, 0.1, 0.05)
    curve = throughput_curve(parameters, 32)
    with_it = mean_cpu_in_use(parameters, curve, dispatcher_on_cpu=True)
    added = with_it - mean_cpu_in_use(parameters, curve)
    assert added == pytest.approx(solve_network(parameters, 32).dispatcher_utilisation)
    assert added[0] == pytest.approx(0.5 / 3.5)
    # A curve corrected downwards uses proportionally less.
    halved = mean_cpu_in_use(parameters, curve / 2, dispatcher_on_cpu=True)
    assert halved == pytest.approx(with_it / 2)


@pytest.mark.parametrize(
    "parameters",
    [
        network(1, 1, 1e-300, 2),
        network(1, 1, 5e-324, 2),
        network(5e-324, 5e-324, 1, 2),
        network(0, 1, 0, 0.001),
        network(1, 0, 0, 1e6),
        network(0, 0, 1, 1),
        network(0, 0, 1e-12, 1, 1e6, 1e6),
        network(1e12, 1e12, 1e12, 0.001, 1e6, 1e6),
        network(1e12, 1e-12, 1e-12, 1),
        network(1e-12, 1e12, 0, 1e6),
    ],
)
@pytest.mark.parametrize("threads", [1, 2, 1024])
def test_extreme_parameters_give_finite_positive_curves_within_the_bound(
    parameters: NetworkParameters, threads: int
) -> None:
    curve = throughput_curve(parameters, threads)
    assert curve.shape == (threads,)
    assert np.isfinite(curve).all()
    assert (curve > 0).all()
    assert (curve <= asymptotic_bound(parameters, threads)).all()
    metrics = solve_network(parameters, threads)
    total = metrics.mean_blocked + metrics.mean_at_cpu + metrics.mean_at_dispatcher
    assert total == pytest.approx(np.arange(1, threads + 1), rel=1e-9)


def test_a_vanishing_dispatcher_changes_nothing() -> None:
    without = throughput_curve(network(2, 1, 0, 2), 256)
    assert throughput_curve(network(2, 1, 1e-200, 2), 256) == pytest.approx(without, rel=1e-12)


def test_a_longer_curve_begins_with_the_shorter_one() -> None:
    parameters = network(4, 4, 1, 2, 0.01, 0.001)
    longer = throughput_curve(parameters, 1024)
    assert longer[:40] == pytest.approx(throughput_curve(parameters, 40), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blocking_seconds", -1.0),
        ("blocking_seconds", math.nan),
        ("cpu_seconds", math.inf),
        ("cpu_seconds", -0.5),
        ("dispatch_seconds", math.nan),
        ("cpu_servers", 0.0),
        ("cpu_servers", -2.0),
        ("cpu_servers", math.nan),
        ("contention_linear", -0.1),
        ("contention_quadratic", math.inf),
    ],
)
def test_impossible_parameters_are_refused_by_name_and_value_with_a_remedy(
    name: str, value: float
) -> None:
    fields = {"blocking_seconds": 1.0, "cpu_seconds": 1.0, "dispatch_seconds": 1.0}
    fields |= {"cpu_servers": 2.0, name: value}
    with pytest.raises(ValueError, match=f"^{name} is {value!r}.*; give "):
        NetworkParameters(**fields)


def test_a_task_without_any_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"blocking_seconds \+ .* is 0.*; measure"):
        network(0, 0, 0, 2)


@pytest.mark.parametrize("threads", [0, -1, 1025, 3.0, True])
def test_a_curve_of_an_impossible_length_is_refused(threads: int) -> None:
    parameters = network(1, 1, 1, 2)
    with pytest.raises(ValueError, match=r"^max_threads is .*; ask for a curve of 1 to 1024"):
        throughput_curve(parameters, threads)
    with pytest.raises(ValueError, match=r"^max_threads is "):
        asymptotic_bound(parameters, threads)
    with pytest.raises(ValueError, match=r"^max_threads is "):
        solve_network(parameters, threads)
