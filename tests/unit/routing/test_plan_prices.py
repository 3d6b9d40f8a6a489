"""The router's plan is the planning problem's: its prices, and where a request may go for nothing."""

from dataclasses import replace

import numpy as np
import pytest

from slimscale.routing.learned.prices import (
    LOAD_GRID,
    PriceTable,
    SloClass,
    grid_place,
    nearest_class,
)
from slimscale.simulate.bounds.fleet import RequestClass
from slimscale.simulate.bounds.planning import (
    ObjectiveWeights,
    capacity,
    objective_table,
    planning_lp,
)
from slimscale.simulate.bounds.scene_fleet import fleet_of
from slimscale.simulate.routing.scene import Scene, six
from slimscale.training.router.scenes import price_table

SCENE = Scene(devices=six())


@pytest.fixture(scope="module")
def table() -> PriceTable:
    return price_table(SCENE)


def test_capacity_is_that_of_the_linear_programme(table: PriceTable) -> None:
    assert table.capacity == pytest.approx(capacity(fleet_of(SCENE, noise=False)), rel=1e-6)


@pytest.mark.parametrize("place", [3, 4, 5, 6, 7, 8, 9, 10])
def test_prices_bound_what_the_plan_can_reach_as_closely_as_the_linear_programme(
    table: PriceTable, place: int
) -> None:
    rate = LOAD_GRID[place] * table.capacity
    classes = [RequestClass(one.slo_seconds, one.share) for one in SCENE.classes]
    plan = planning_lp(fleet_of(SCENE, noise=False), rows_per_second=rate, classes=classes)
    # Weak duality: sum_p price + sum_c rate_c * (the most that is left of J) is above the optimum.
    gains = np.stack(
        [objective_table(fleet_of(SCENE, noise=False), one, ObjectiveWeights()) for one in classes]
    )
    seconds = fleet_of(SCENE, noise=False).batch_seconds() / np.arange(1, 33)
    left = gains - table.prices[place][None, :, None, None] * seconds
    best = left.max(axis=(1, 2, 3))
    dual = table.prices[place].sum() / rate + float(
        sum(one.share * most for one, most in zip(classes, best, strict=True))
    )
    assert plan.value - 1e-9 <= dual <= plan.value + 0.03


def test_cells_of_the_plan_cost_nothing_and_others_do(table: PriceTable) -> None:
    rate = LOAD_GRID[5] * table.capacity
    classes = [RequestClass(one.slo_seconds, one.share) for one in SCENE.classes]
    plan = planning_lp(fleet_of(SCENE, noise=False), rows_per_second=rate, classes=classes)
    large = plan.cell_flow > 0.05 * rate
    assert (table.regrets[5][large] > -0.03).all()
    assert table.regrets[5].max() == pytest.approx(0.0, abs=1e-12)
    assert (table.regrets[5] <= 0.0).all()
    assert table.regrets[5][~plan.support].min() < -0.2


def test_a_pod_that_gets_slower_gets_fewer_requests_after_a_refresh(table: PriceTable) -> None:
    slower = replace(six()[0], row_seconds=0.02, base_seconds=0.05)
    other = price_table(Scene(devices=(slower, *six()[1:])))
    low, _ = grid_place(0.2)
    assert other.regrets[low, :, 0].max() < table.regrets[low, :, 0].max() + 1e-9
    assert other.capacity < table.capacity


def test_the_class_with_the_most_similar_slo_is_looked_up() -> None:
    classes = [SloClass(0.1, 0.3), SloClass(0.3, 0.7)]
    assert nearest_class(classes, 0.11) == 0
    assert nearest_class(classes, 1.0) == 1


def test_a_table_without_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one SLO class"):
        PriceTable([])


def test_loads_beyond_the_grid_stay_at_its_ends() -> None:
    assert grid_place(0.0) == (0, 0.0)
    assert grid_place(5.0) == (len(LOAD_GRID) - 2, 1.0)
