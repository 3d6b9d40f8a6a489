"""The models against a simulation that knows threads and queues but no formula.

Seeds are fixed; the tolerance is the simulation's own 99.9 % confidence interval, and each test
also asks that this interval is narrow enough to tell a wrong model from a right one.
"""

import pytest

from slimscale.threads.closed_network import NetworkParameters, throughput_curve
from slimscale.threads.finite_source import FiniteSourceMM1
from tests.support.des import Sampler, constant, exponential, simulate_throughput

NO_TIME = exponential(0.0)


@pytest.mark.parametrize(
    ("threads", "blocking", "cpu", "dispatch", "cores"),
    [
        (8, 8.0, 0.0, 1.0, 1),
        (3, 0.0, 4.0, 0.5, 2),
        (8, 4.0, 4.0, 1.0, 2),
        (24, 9.0, 1.0, 1.0, 2),
        (12, 2.0, 6.0, 1.0, 4),
    ],
)
def test_the_network_predicts_what_a_simulation_measures(
    threads: int, blocking: float, cpu: float, dispatch: float, cores: int
) -> None:
    measured = simulate_throughput(
        threads=threads,
        blocking=exponential(blocking),
        cpu=exponential(cpu),
        dispatch=exponential(dispatch),
        cpu_servers=cores,
        completions=40_000,
        seed=20_26,
    )
    curve = throughput_curve(NetworkParameters(blocking, cpu, dispatch, cores), threads)
    assert measured.half_width < 0.03 * measured.per_second
    assert measured.agrees_with(curve[-1])


def eight_threads(execution: Sampler, dispatch: Sampler) -> float:
    return simulate_throughput(
        threads=8,
        blocking=execution,
        cpu=NO_TIME,
        dispatch=dispatch,
        cpu_servers=1,
        completions=40_000,
        seed=7,
    ).per_second


def test_the_shape_of_the_dispatch_time_matters_and_that_of_the_execution_time_does_not() -> None:
    predicted = FiniteSourceMM1(8, 1 / 8, 1.0).solve().throughput_per_second
    assert eight_threads(constant(8.0), exponential(1.0)) == pytest.approx(predicted, rel=0.01)
    assert eight_threads(exponential(8.0), constant(1.0)) == pytest.approx(0.7995, rel=0.01)
    assert eight_threads(constant(8.0), constant(1.0)) == pytest.approx(8 / 9, rel=0.001)


def test_the_bound_holds_where_the_exponential_model_is_too_low() -> None:
    queue = FiniteSourceMM1(8, 1 / 8, 1.0)
    measured = eight_threads(constant(8.0), constant(1.0))
    assert measured > queue.solve().throughput_per_second * 1.1
    assert measured <= queue.bound_curve()[-1] * (1 + 1e-9)
