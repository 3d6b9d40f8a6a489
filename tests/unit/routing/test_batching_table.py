"""The table of control limits: what it says, how it is read, and that it is the SMDP's own answer."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.batching_table import BatchingTable, busy_cost, read_table
from slimscale.simulate.bounds.batching_limits import limit_costs, solve_table
from slimscale.simulate.bounds.smdp import BatchQueue, solve
from slimscale.weights.batching import shipped_batching_table

SMALL = BatchingTable((0.0, 0.5), (0.1, 0.6), (1.0, 10.0), (((1, 2), (1, 3)), ((1, 4), (2, 8))), 8)


def _limit(table: BatchingTable = SMALL, **changed: Any) -> int:
    asked: dict[str, Any] = {
        "base_seconds": 0.01, "row_seconds": 0.01, "rows_per_second": 60.0, "busy_cost": 10.0,
        "max_rows": 8,
    }  # fmt: skip
    return table.limit(**(asked | changed))


def test_the_point_at_or_below_each_figure_counts() -> None:
    # (0.01 + 8 * 0.01) / 8 a row at 60 a second: a load of 0.675
    assert _limit() == 8
    assert _limit(rows_per_second=40.0) == 4
    assert _limit(busy_cost=9.9) == 2
    assert _limit(base_seconds=0.005) == 3  # a share of 1/3


def test_a_smaller_largest_batch_bounds_the_limit() -> None:
    assert _limit(max_rows=3) == 3


@pytest.mark.parametrize(
    "odd",
    [{"rows_per_second": 0.0}, {"busy_cost": 0.0}, {"base_seconds": -1.0}, {"rows_per_second": float("nan")},
     {"base_seconds": 0.0, "row_seconds": 0.0}],
)  # fmt: skip
def test_nobody_waits_on_figures_that_make_no_sense(odd: dict[str, Any]) -> None:
    assert _limit(**odd) == 1


def test_the_time_scale_does_not_matter_but_the_prices_do() -> None:
    table = shipped_batching_table()
    slow = {"base_seconds": 0.1, "row_seconds": 0.01, "rows_per_second": 20.0}
    fast = {"base_seconds": 0.001, "row_seconds": 0.0001, "rows_per_second": 2000.0}
    limits = [_limit(table, **slow, busy_cost=cost, max_rows=32) for cost in (0.1, 4, 32, 128)]
    assert limits == [
        _limit(table, **fast, busy_cost=cost, max_rows=32) for cost in (0.1, 4, 32, 128)
    ]
    assert limits == sorted(limits)
    assert limits[0] == 1 < limits[-1]


def test_the_price_of_a_busy_second_is_that_of_the_objective() -> None:
    """200 W at .3 a joule against a wait that costs 1 a 300 ms: 18 waiting requests."""
    assert busy_cost(watts=200.0, slo_seconds=0.3, energy_weight=0.3) == pytest.approx(18.0)


@settings(max_examples=5, deadline=None)
@given(
    share=st.sampled_from([0.55, 0.8, 0.95]), load=st.floats(0.1, 0.8), cost=st.floats(0.5, 60.0)
)
def test_the_best_limit_is_as_good_as_the_smdps_optimum(
    share: float, load: float, cost: float
) -> None:
    """Within a thousandth, where batches save much; where they save little smaller ones are better."""
    largest = 8
    seconds = tuple(share + (1.0 - share) * b for b in range(1, largest + 1))
    rate = load * largest / seconds[-1]
    numbers, busy = limit_costs(
        base_seconds=share, row_seconds=1.0 - share, rows_per_second=rate, max_rows=largest
    )
    # w1 = λ turns the mean response into the number in the system; the joules of a batch are its time.
    best = solve(
        BatchQueue(seconds, seconds, rate, latency_weight=rate, energy_weight=cost, max_waiting=48)
    )
    found = (numbers + cost * busy).min()
    assert best.average_cost - 1e-4 * found <= found <= 1.001 * best.average_cost


def test_the_shipped_table_is_what_the_solver_says() -> None:
    """At a few of its points: all of them take half a minute."""
    table = shipped_batching_table()
    picked = [1, 5, 8]
    solved = solve_table(
        base_shares=[table.base_shares[4]],
        loads=[table.loads[i] for i in picked],
        busy_costs=table.busy_costs,
        max_rows=table.max_rows,
    )
    assert list(solved.limits[0]) == [table.limits[4][i] for i in picked]


def test_a_written_table_is_read_back_and_a_wrong_one_is_refused() -> None:
    text = json.dumps(dataclasses.asdict(SMALL))
    assert read_table(json.loads(text)) == SMALL
    good = json.loads(text)
    for wrong, says in (
        ({"loads": None}, "is no list"),
        ({"loads": [0.6, 0.1]}, "ascending"),
        ({"limits": [[[1, 2]]]}, "shape"),
        ({"limits": [[[0, 2], [1, 3]], [[1, 4], [2, 8]]]}, "from 1 to max_rows 8"),
    ):
        with pytest.raises(ValueError, match=says):
            read_table(good | wrong)
    with pytest.raises(ValueError, match="lacks 'limits'"):
        read_table({key: value for key, value in good.items() if key != "limits"})
