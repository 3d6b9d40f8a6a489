"""The mix of pools: never dearer than what trying every combination finds."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slimscale.scaling.pools import PoolOption, cheapest_mix

OPTIONS = st.lists(
    st.builds(
        PoolOption,
        st.just("x"),
        st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.0, 13.7, 40.0]),
        st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.7, 4.0, 9.0]),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=4,
).map(lambda found: [PoolOption(f"p{i}", o.rows_per_second, o.cost, o.most) for i, o in enumerate(found)])  # fmt: skip


ROWS = st.one_of(st.just(0.0), st.floats(0.01, 120.0))


@given(OPTIONS, ROWS)
def test_no_combination_of_pods_is_cheaper(options: list[PoolOption], rows: float) -> None:
    mix = cheapest_mix(options, rows)
    covering = []
    for counts in itertools.product(*(range(o.most + 1) for o in options)):
        rate = sum(o.rows_per_second * n for o, n in zip(options, counts, strict=True))
        if rate >= rows * (1 - 1e-9):
            cost = sum(o.cost * n for o, n in zip(options, counts, strict=True))
            covering.append((cost, sum(counts)))
    assert mix.feasible == bool(covering)
    assert all(0 <= mix.pods[o.name] <= o.most for o in options)
    if covering:
        assert mix.rows_per_second >= rows * (1 - 1e-6)
        least = min(cost for cost, _ in covering)
        assert mix.cost <= least + 1e-6
        fewest = min(pods for cost, pods in covering if cost <= least + 1e-9)
        assert sum(mix.pods.values()) == fewest
    else:
        assert all(mix.pods[o.name] == o.most for o in options if o.rows_per_second > 0)


@given(OPTIONS, st.floats(0.0, 60.0), st.floats(0.0, 60.0))
def test_more_demand_never_costs_less(options: list[PoolOption], rows: float, more: float) -> None:
    small, large = cheapest_mix(options, rows), cheapest_mix(options, rows + more)
    if large.feasible:
        assert small.cost <= large.cost + 1e-6


def test_sixteen_large_pools_are_mixed_at_once() -> None:
    options = [PoolOption(f"p{i}", 10.0 + 1.37 * i, 1.0 + 0.091 * i * i, 200) for i in range(16)]
    mix = cheapest_mix(options, 12_345.6)
    assert mix.feasible
    left, cost = 12_345.6, 0.0
    for option in sorted(options, key=lambda o: o.cost / o.rows_per_second):
        pods = min(option.most, left / option.rows_per_second)
        left, cost = left - pods * option.rows_per_second, cost + pods * option.cost
    assert cost <= mix.cost <= cost + max(o.cost for o in options)
