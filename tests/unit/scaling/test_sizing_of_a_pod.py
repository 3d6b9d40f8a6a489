"""What a pod takes within the SLO, against published values and against a simulation."""

import itertools
import math

import numpy as np
import pytest

from slimscale.scaling.sizing import BatchServer, latency, pod_capacity


def simulate(server: BatchServer, rate: float, count: int, seed: int) -> np.ndarray:
    """Latencies of `count` Poisson arrivals at one greedy server, seconds."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
    times = np.empty(count)
    head, free = 0, 0.0
    while head < count:
        start = max(free, arrivals[head])
        waiting = int(np.searchsorted(arrivals, start, side="right"))
        last = min(waiting, head + server.max_rows)
        free = start + server.seconds(last - head)
        times[head:last] = free - arrivals[head:last]
        head = last
    return times


@pytest.mark.parametrize(("load", "mean"), [(0.3, 1.9225), (0.7, 2.9461)])
def test_mean_latency_equals_the_semi_markov_solution(load: float, mean: float) -> None:
    # Work-conserving greedy, l(b) = 1 + 0.2 b, batches of 8: relative value iteration gives these.
    server = BatchServer(1.0, 0.2, 8)
    assert latency(server, load * server.rows_per_second, 5.0).mean_seconds == pytest.approx(
        mean, rel=0.005
    )


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0, 2.0, 3.0])
def test_mean_latency_is_just_below_the_closed_form_bound(rate: float) -> None:
    # Inoue 2021, linear batch times and no largest batch: E[W] <= min(phi0, phi1).
    row, base = 0.2, 1.0
    phi0 = (row + base) / (2 * (1 - rate * row))
    phi0 *= 1 + 2 * rate * base + (1 - rate * base) / (1 + rate * row)
    phi1 = 1.5 * base / (1 - rate * row) + row / 2 * (rate * row + 2) / (1 - (rate * row) ** 2)
    mean = latency(BatchServer(base, row, 64), rate, 5.0).mean_seconds
    assert 0.93 * min(phi0, phi1) <= mean <= min(phi0, phi1) * 1.0001


@pytest.mark.parametrize(
    ("base", "row", "rows", "slo"),
    [(0.02, 0.03, 32, 0.5), (0.01, 0.008, 8, 0.1), (0.005, 0.001, 32, 0.05), (0.0, 0.05, 4, 0.3)],
)
def test_a_pod_at_its_capacity_meets_the_slo_and_well_above_it_does_not(
    base: float, row: float, rows: int, slo: float
) -> None:
    server = BatchServer(base, row, rows)
    capacity = pod_capacity(server, slo_seconds=slo, percentile=0.95)
    in_time = math.floor((slo - base) / row)
    capped = BatchServer(base, row, min(rows, in_time))
    within = np.mean(simulate(capped, capacity, 60_000, 1) <= slo)
    assert within >= 0.94
    beyond = np.mean(simulate(capped, 1.25 * capacity, 60_000, 2) <= slo)
    assert beyond < within


def test_a_slo_that_one_row_cannot_meet_gives_no_capacity() -> None:
    assert pod_capacity(BatchServer(0.2, 0.1, 8), slo_seconds=0.25, percentile=0.9) == 0.0


def test_capacity_grows_with_the_slo_and_falls_with_the_percentile() -> None:
    server = BatchServer(0.02, 0.03, 32)
    by_slo = [pod_capacity(server, slo_seconds=s, percentile=0.95) for s in (0.1, 0.2, 0.5, 2.0)]
    assert all(a < b for a, b in itertools.pairwise(by_slo))
    by_share = [pod_capacity(server, slo_seconds=0.3, percentile=p) for p in (0.5, 0.9, 0.99)]
    assert all(a > b for a, b in itertools.pairwise(by_share))


def test_requests_of_many_rows_take_less_load_than_the_same_rows_one_by_one() -> None:
    server = BatchServer(0.02, 0.01, 32)
    alone = pod_capacity(server, slo_seconds=0.3, percentile=0.95)
    together = pod_capacity(server, slo_seconds=0.3, percentile=0.95, rows_per_request=8)
    assert 0 < together < alone


def test_a_pod_with_two_devices_takes_twice_as_much() -> None:
    server = BatchServer(0.02, 0.01, 32)
    one = pod_capacity(server, slo_seconds=0.3, percentile=0.95)
    assert pod_capacity(server, slo_seconds=0.3, percentile=0.95, instances=2) == 2 * one


@pytest.mark.parametrize("times", [(math.nan, 0.1), (0.0, 0.0), (-1.0, 2.0), (math.inf, 1.0)])
def test_times_that_no_server_has_are_refused_by_name(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="base_seconds"):
        BatchServer(*times, 8)


def test_a_load_that_full_batches_cannot_keep_up_with_is_refused() -> None:
    with pytest.raises(ValueError, match="rows_per_second"):
        latency(BatchServer(0.1, 0.1, 4), 10.0, 1.0)
