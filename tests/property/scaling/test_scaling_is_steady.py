"""No flapping under constant noisy load, enough under growing load, never out of bounds."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.domain.scaling import PoolSpec
from slimscale.scaling.sizing import BatchServer, pod_capacity
from slimscale.simulate.serving.demand import DemandMeter
from tests.support.scaling_cases import (
    SPEC,
    TIMES,
    Cluster,
    ask,
    make_demand,
    make_pod,
    make_pool,
    of_pool,
    ready_pool,
)


@pytest.mark.parametrize("boundary", [1.99, 2.0, 2.01, 2.49, 2.51, 4.0, 7.995])
@pytest.mark.parametrize("seed", [1, 2])
def test_constant_load_with_noise_changes_little(boundary: float, seed: int) -> None:
    rng = random.Random(seed)
    server = BatchServer(*TIMES, 32)
    pod = pod_capacity(server, slo_seconds=SPEC.slo_seconds, percentile=SPEC.percentile)
    rate = boundary * pod / (1 + SPEC.headroom)
    cluster = Cluster(SPEC, start_seconds=20.0)

    def noisy(now: float):  # type: ignore[no-untyped-def]
        stable, panic = (rate * rng.uniform(0.9, 1.1) for _ in range(2))
        return make_demand(stable, panic, at=now)

    cluster.run(noisy, 3600.0)
    settled = [at for at, _ in cluster.history if at > SPEC.down_stabilisation_seconds]
    assert len(settled) <= 1
    assert all(
        later - earlier >= SPEC.down_stabilisation_seconds for earlier, later in pairwise(settled)
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_chance_in_steady_arrivals_moves_no_pods(seed: int) -> None:
    # Poisson arrivals, looked at every two seconds for 20 minutes: many looks, many chances.
    rng = random.Random(seed)
    cluster = Cluster(replace(SPEC, slo_seconds=1.0), start_seconds=10.0, times=(0.04, 0.1))
    meter = DemandMeter(stable_seconds=60.0, panic_seconds=6.0)
    arrived = 0.0
    while cluster.now < 1200.0:
        while arrived < cluster.now:
            meter.arrived(arrived, 1)
            arrived += rng.expovariate(11.0)
        cluster.tick(meter.observe(cluster.now, buffered_rows=0), seconds=2.0)
    assert [replicas["cpu"] for _, replicas in cluster.history] == [1, 2]


@given(st.lists(st.floats(0.1, 3000.0), min_size=2, max_size=6).map(sorted))
@settings(max_examples=30, deadline=None)
def test_more_demand_never_asks_for_fewer_pods(rates: list[float]) -> None:
    spec = replace(SPEC, pools=(PoolSpec("cpu", 0, 500),), up_pods=500)
    counts = [of_pool(ask(make_demand(rate), ready_pool(1), spec=spec)).replicas for rate in rates]
    assert counts == sorted(counts)


@given(
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    st.integers(-5, 10**6),
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.tuples(st.integers(-4, 30), st.integers(-4, 30)),
)
@settings(max_examples=80, deadline=None)
def test_whatever_is_seen_replicas_stay_within_bounds(
    stable: float | None,
    panic: float | None,
    buffered: int,
    pods_there: tuple[int, int],
    bounds: tuple[int, int],
) -> None:
    (ready, starting), (least, most) = pods_there, bounds
    spec = replace(SPEC, pools=(PoolSpec("cpu", least, most),))
    pods = [make_pod(f"r-{i}") for i in range(ready)]
    pods += [make_pod(f"s-{i}", created=990.0, ready_since=None) for i in range(starting)]
    decision = ask(
        make_demand(stable, panic, buffered=buffered), make_pool("cpu", *pods), spec=spec
    )
    count = of_pool(decision).replicas
    assert max(0, least) <= count <= max(0, most, least)
    need = decision.demand_rows_per_second
    assert need is None or math.isfinite(need)


@given(st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_a_pool_keeps_up_with_a_wandering_load(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(SPEC, start_seconds=10.0)
    pod = pod_capacity(BatchServer(*TIMES, 32), slo_seconds=0.5, percentile=SPEC.percentile)
    level, short = 20.0, 0
    for _ in range(200):
        level = min(max(level * rng.uniform(0.97, 1.03), 5.0), 300.0)
        cluster.tick(make_demand(level, at=cluster.now))
        short += cluster.total * pod < level
    assert short <= 4, "the headroom covers what comes while pods start"
