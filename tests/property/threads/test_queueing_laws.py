"""Laws that the queueing models keep for every workload, not only for the tabulated ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.threads.closed_network import (
    NetworkParameters,
    asymptotic_bound,
    mean_cpu_in_use,
    solve_network,
    throughput_curve,
)
from slimscale.threads.cyclic import CyclicQueue
from slimscale.threads.finite_source import (
    FiniteSourceMM1,
    erlang_b,
    smallest_population_by_gain,
    smallest_population_within,
)
from tests.support.markov import solve_cyclic, solve_three_stations

ROUNDING = 1e-9


def decades(low: int, high: int) -> st.SearchStrategy[float]:
    """Every order of magnitude is as likely as the next."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def part_seconds(low: int, high: int) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), decades(low, high))


@st.composite
def networks(
    draw: st.DrawFn, *, low: int = -9, high: int = 6, contention: bool = True
) -> NetworkParameters:
    parts = draw(st.tuples(*[part_seconds(low, high)] * 3).filter(any))
    growth = st.one_of(st.just(0.0), decades(-6, 1)) if contention else st.just(0.0)
    return NetworkParameters(
        blocking_seconds=parts[0],
        cpu_seconds=parts[1],
        dispatch_seconds=parts[2],
        cpu_servers=draw(st.one_of(st.integers(1, 128).map(float), decades(-3, 2))),
        contention_linear=draw(growth),
        contention_quadratic=draw(growth),
    )


@st.composite
def small_chains(draw: st.DrawFn) -> NetworkParameters:
    """All parts present and within three decades, so that a dense solve has digits left."""
    second = decades(-2, 1)
    return NetworkParameters(
        blocking_seconds=draw(second),
        cpu_seconds=draw(second),
        dispatch_seconds=draw(second),
        cpu_servers=draw(st.one_of(st.integers(1, 8).map(float), st.floats(0.1, 8))),
        contention_linear=draw(st.floats(0, 1)),
        contention_quadratic=draw(st.floats(0, 0.5)),
    )


thread_counts = st.integers(1, 200)
rates = decades(-6, 6)


@settings(deadline=None)
@given(networks(), thread_counts)
def test_the_curve_is_finite_positive_and_below_the_bound(
    parameters: NetworkParameters, threads: int
) -> None:
    curve = throughput_curve(parameters, threads)
    assert curve.shape == (threads,)
    assert np.isfinite(curve).all()
    assert (curve > 0).all()
    assert (curve <= asymptotic_bound(parameters, threads)).all()


@settings(deadline=None)
@given(networks(contention=False), thread_counts)
def test_without_contention_every_thread_adds_and_adds_less_than_the_one_before(
    parameters: NetworkParameters, threads: int
) -> None:
    curve = np.concatenate(([0.0], throughput_curve(parameters, threads)))
    gains = np.diff(curve)
    assert (gains >= 0).all()
    assert (np.diff(gains) <= ROUNDING * curve.max()).all()


@settings(deadline=None)
@given(networks(), thread_counts)
def test_contention_never_helps(parameters: NetworkParameters, threads: int) -> None:
    ideal = NetworkParameters(
        blocking_seconds=parameters.blocking_seconds,
        cpu_seconds=parameters.cpu_seconds,
        dispatch_seconds=parameters.dispatch_seconds,
        cpu_servers=parameters.cpu_servers,
    )
    slowed = throughput_curve(parameters, threads)
    assert (slowed <= throughput_curve(ideal, threads) * (1 + ROUNDING)).all()


@settings(deadline=None)
@given(networks(contention=False), st.floats(0.001, 64), thread_counts)
def test_more_cpu_never_lowers_throughput(
    parameters: NetworkParameters, more: float, threads: int
) -> None:
    richer = NetworkParameters(
        blocking_seconds=parameters.blocking_seconds,
        cpu_seconds=parameters.cpu_seconds,
        dispatch_seconds=parameters.dispatch_seconds,
        cpu_servers=parameters.cpu_servers + more,
    )
    poorer = throughput_curve(parameters, threads)
    assert (poorer <= throughput_curve(richer, threads) * (1 + ROUNDING)).all()


@settings(deadline=None)
@given(networks(), thread_counts)
def test_every_thread_is_somewhere_and_littles_law_gives_the_cycle_time(
    parameters: NetworkParameters, threads: int
) -> None:
    metrics = solve_network(parameters, threads)
    counts = np.arange(1, threads + 1)
    everywhere = metrics.mean_blocked + metrics.mean_at_cpu + metrics.mean_at_dispatcher
    assert everywhere == pytest.approx(counts, rel=ROUNDING)
    # k = T * (time of a whole round), and no round is shorter than one without waiting.
    round_seconds = counts / metrics.throughput_per_second
    assert (round_seconds >= parameters.cycle_seconds * (1 - ROUNDING)).all()
    at_cpu_seconds = metrics.mean_at_cpu / metrics.throughput_per_second
    assert (at_cpu_seconds >= parameters.cpu_seconds * (1 - ROUNDING)).all()


@settings(deadline=None)
@given(networks(), thread_counts)
def test_the_busy_dispatcher_and_the_busy_cpus_stay_within_what_there_is(
    parameters: NetworkParameters, threads: int
) -> None:
    metrics = solve_network(parameters, threads)
    curve = throughput_curve(parameters, threads)
    utilisation = metrics.dispatcher_utilisation
    assert (utilisation >= curve * parameters.dispatch_seconds * (1 - ROUNDING)).all()
    assert (utilisation <= 1).all()
    assert (metrics.mean_at_dispatcher >= utilisation * (1 - ROUNDING)).all()
    cores = mean_cpu_in_use(parameters, curve)
    most = np.minimum(np.arange(1, threads + 1), parameters.cpu_servers)
    assert (cores <= most * (1 + ROUNDING)).all()


@settings(deadline=None, max_examples=50)
@given(small_chains(), st.integers(1, 6))
def test_the_network_agrees_with_a_dense_solve_of_its_chain(
    parameters: NetworkParameters, threads: int
) -> None:
    exact = solve_three_stations(
        threads=threads,
        blocking_seconds=parameters.blocking_seconds,
        cpu_seconds=parameters.cpu_seconds,
        dispatch_seconds=parameters.dispatch_seconds,
        cpu_servers=parameters.cpu_servers,
        contention_linear=parameters.contention_linear,
        contention_quadratic=parameters.contention_quadratic,
    )
    metrics = solve_network(parameters, threads)
    found = (
        metrics.throughput_per_second[-1],
        metrics.mean_blocked[-1],
        metrics.mean_at_cpu[-1],
        metrics.mean_at_dispatcher[-1],
        metrics.dispatcher_utilisation[-1],
    )
    expected = (
        exact.throughput_per_second,
        exact.mean_blocked,
        exact.mean_at_cpu,
        exact.mean_at_dispatcher,
        exact.dispatcher_utilisation,
    )
    assert found == pytest.approx(expected, rel=1e-6)


@settings(deadline=None)
@given(networks(), st.floats(-3, 3), thread_counts)
def test_the_unit_of_time_does_not_matter(
    parameters: NetworkParameters, exponent: float, threads: int
) -> None:
    unit = 10.0**exponent
    scaled = NetworkParameters(
        blocking_seconds=parameters.blocking_seconds * unit,
        cpu_seconds=parameters.cpu_seconds * unit,
        dispatch_seconds=parameters.dispatch_seconds * unit,
        cpu_servers=parameters.cpu_servers,
        contention_linear=parameters.contention_linear,
        contention_quadratic=parameters.contention_quadratic,
    )
    expected = throughput_curve(parameters, threads) / unit
    assert throughput_curve(scaled, threads) == pytest.approx(expected, rel=ROUNDING)


@settings(deadline=None)
@given(st.integers(1, 300), rates, rates)
def test_the_finite_source_queue_keeps_littles_law_and_its_bound(
    population: int, think_rate: float, service_rate: float
) -> None:
    queue = FiniteSourceMM1(population, think_rate, service_rate)
    metrics = queue.solve()
    executing = metrics.throughput_per_second / think_rate
    assert executing + metrics.mean_number == pytest.approx(population, rel=ROUNDING)
    in_queue = metrics.throughput_per_second * metrics.response_seconds
    assert in_queue == pytest.approx(metrics.mean_number, rel=ROUNDING)
    assert metrics.response_seconds == pytest.approx(
        metrics.wait_seconds + 1 / service_rate, rel=ROUNDING
    )
    curve = queue.throughput_curve()
    assert (np.diff(curve) >= -1e-15 * service_rate).all()
    assert (curve <= queue.bound_curve() * (1 + ROUNDING)).all()
    assert curve[-1] == pytest.approx(metrics.throughput_per_second, rel=ROUNDING)


@settings(deadline=None)
@given(st.integers(1, 300), rates, rates)
def test_the_finite_source_queue_is_in_balance_at_every_cut(
    population: int, think_rate: float, service_rate: float
) -> None:
    queue = FiniteSourceMM1(population, think_rate, service_rate)
    probabilities = queue.state_probabilities()
    up = probabilities[:-1] * (population - np.arange(population)) * think_rate
    down = probabilities[1:] * service_rate
    assert down == pytest.approx(up, rel=ROUNDING, abs=1e-290)
    assert probabilities[0] == pytest.approx(erlang_b(population, queue.time_ratio), rel=ROUNDING)


@settings(deadline=None)
@given(decades(-3, 3), st.floats(0.001, 0.5))
def test_the_fewest_threads_within_a_tolerance_are_the_first_to_reach_it(
    ratio: float, tolerance: float
) -> None:
    threads = smallest_population_within(ratio, tolerance)
    assert erlang_b(threads, ratio) <= tolerance < erlang_b(threads - 1, ratio)


@settings(deadline=None)
@given(decades(-3, 3), st.floats(0.001, 0.5))
def test_the_fewest_threads_by_gain_are_the_first_whose_successor_adds_too_little(
    ratio: float, least_gain: float
) -> None:
    threads = smallest_population_by_gain(ratio, least_gain)
    curve = FiniteSourceMM1(threads + 1, 1.0, ratio).throughput_curve()
    gains = curve[1:] / curve[:-1] - 1
    assert gains[-1] < least_gain
    assert (gains[:-1] >= least_gain).all()


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 60), rates, rates)
def test_the_cyclic_queue_is_in_balance_and_below_its_bound(
    tasks: int, threads: int, dispatch_rate: float, execution_rate: float
) -> None:
    queue = CyclicQueue(tasks, dispatch_rate, execution_rate)
    metrics = queue.solve(threads)
    everywhere = metrics.mean_at_workers + metrics.mean_at_dispatcher
    assert everywhere == pytest.approx(tasks, rel=ROUNDING)
    # What is handed over is finished.
    assert metrics.mean_running * execution_rate == pytest.approx(
        metrics.throughput_per_second, rel=ROUNDING
    )
    curve = queue.throughput_curve(threads)
    assert (curve <= queue.bound_curve(threads) * (1 + ROUNDING)).all()
    assert (np.diff(curve) >= -ROUNDING * curve.max()).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(1, 12), decades(-1, 1), decades(-1, 1))
def test_the_cyclic_queue_agrees_with_a_dense_solve_of_its_chain(
    tasks: int, threads: int, dispatch_rate: float, execution_rate: float
) -> None:
    expected, _ = solve_cyclic(
        tasks=tasks, threads=threads, dispatch_rate=dispatch_rate, execution_rate=execution_rate
    )
    found = CyclicQueue(tasks, dispatch_rate, execution_rate).solve(threads)
    assert found.throughput_per_second == pytest.approx(expected, rel=1e-6)
