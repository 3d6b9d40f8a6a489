"""The fast table of curves says what the network's own curve says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.threads import curve_table
from slimscale.threads.closed_network import NetworkParameters, throughput_curve
from slimscale.threads.curve_table import throughput_table


def decades(low: int, high: int) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@st.composite
def networks(draw: st.DrawFn) -> NetworkParameters:
    part = st.one_of(st.just(0.0), decades(-9, 6))
    blocking, cpu, dispatch = draw(st.tuples(part, part, part).filter(any))
    growth = st.one_of(st.just(0.0), decades(-6, 2))
    return NetworkParameters(
        blocking,
        cpu,
        dispatch,
        1.0,
        contention_linear=draw(growth),
        contention_quadratic=draw(growth),
        contention_handover=draw(growth),
    )


cores = st.one_of(st.integers(1, 64).map(float), decades(-3, 2))


def expected(parameters: NetworkParameters, rows: list[tuple[float, float]], k: int) -> np.ndarray:
    return np.vstack(
        [
            throughput_curve(replace(parameters, cpu_servers=c, dispatch_seconds=d), k)
            for c, d in rows
        ]
    )


@settings(deadline=None)
@given(networks(), st.lists(cores, min_size=1, max_size=4), st.integers(1, 200))
def test_every_row_of_the_table_is_the_curve_of_that_cpu(
    parameters: NetworkParameters, servers: list[float], threads: int
) -> None:
    rows = [(c, parameters.dispatch_seconds / min(1.0, c)) for c in servers]
    table = throughput_table(parameters, rows, threads)
    assert table == pytest.approx(expected(parameters, rows, threads), rel=1e-9)


@settings(deadline=None, max_examples=20)
@given(decades(-5, 1), decades(-5, 1), decades(-6, -2), st.sampled_from([256, 400]))
def test_the_table_of_usual_loads_needs_no_logarithms(
    blocking: float, cpu: float, dispatch: float, threads: int
) -> None:
    parameters = NetworkParameters(blocking, cpu, dispatch, 1.0, contention_handover=0.5)
    rows = [(c, dispatch) for c in (0.5, 2.0, 16.0)]
    slow_path = pytest.MonkeyPatch()
    with slow_path.context() as patch:
        patch.delattr(curve_table, "throughput_curve")
        table = throughput_table(parameters, rows, threads)
    assert table == pytest.approx(expected(parameters, rows, threads), rel=1e-9)
