"""Policies of related systems on the compiled data plane: what each is for shows in its figures.

Compiling them takes a while the first time; numba keeps the result.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.bench.bounds.plane import plane_rows
from slimscale.simulate.related.policies import _limit
from slimscale.weights.batching import shipped_batching_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@cache
def _cell(regime: str, load: float) -> dict[str, dict[str, float]]:
    rows = plane_rows([regime], [load], seeds=[1, 2], seconds=4.0, advance=lambda: None)
    return {row["policy"]: row for row in rows}


def test_holding_by_the_table_halves_the_energy_at_the_slimmest_and_stays_within_the_slo() -> None:
    cell = _cell("base", 0.3)
    plain, held = cell["SED, slimmest"], cell["SED, slimmest, batching table"]
    assert held["joules"] < 0.65 * plain["joules"]
    assert held["latency_seconds"] > plain["latency_seconds"]
    assert held["late_share"] < 0.005
    assert held["objective"] > plain["objective"]


def test_where_energy_is_dear_it_holds_longer() -> None:
    cheap = _cell("base", 0.3)["SED, slimmest, batching table"]
    dear = _cell("energy", 0.3)["SED, slimmest, batching table"]
    assert dear["joules"] < 0.9 * cheap["joules"]


def test_spt_floods_the_fastest_device_which_lwkr_does_not() -> None:
    cell = _cell("base", 0.3)
    assert cell["SPT"]["late_share"] > 0.5
    assert cell["LWKR"]["late_share"] < 0.1


def test_no_policy_passes_the_planning_bound() -> None:
    for regime in ("base", "energy"):
        for row in _cell(regime, 0.3).values():
            assert row["objective"] < row["bound"]


def test_the_mixture_comes_near_its_best_base() -> None:
    cell = _cell("base", 0.3)
    bases = [cell["SED, widest within slack"], cell["SED, slimmest"]]
    assert cell["mixture"]["objective"] > max(row["objective"] for row in bases) - 0.05


@settings(max_examples=50, deadline=None)
@given(
    base=st.floats(1e-4, 0.1), row=st.floats(1e-5, 0.1), rate=st.floats(0.1, 5000.0),
    cost=st.floats(0.01, 500.0),
)  # fmt: skip
def test_the_compiled_table_says_what_the_sidecars_says(
    base: float, row: float, rate: float, cost: float
) -> None:
    table = shipped_batching_table()
    compiled = _limit(
        np.asarray(table.base_shares), np.asarray(table.loads), np.asarray(table.busy_costs),
        np.asarray(table.limits, dtype=np.int64), base, row, rate, cost,
    )  # fmt: skip
    assert compiled == table.limit(
        base_seconds=base, row_seconds=row, rows_per_second=rate, busy_cost=cost, max_rows=32
    )
