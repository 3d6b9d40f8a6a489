"""The learned policy in NumPy and as machine code see and do the same."""

from dataclasses import replace

import numpy as np
import pytest

from slimscale.routing.learned import layout
from slimscale.routing.learned.features import CELL_FEATURES, cell_features, regime_features
from slimscale.routing.learned.network import choose
from slimscale.routing.learned.observation import Observation
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.simulate.routing.learned_policy import (
    CELL_COUNT,
    REGIME_COUNT,
    choose_cell,
    fill_cells,
    fill_regime,
    regime_coefficients,
)
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.simulate.routing.state import Look
from slimscale.training.router.scenes import case_of, price_table


def a_look(rng: np.random.Generator, *, pods: int, widths: int) -> Look:
    """Any figures that may come, none of them special."""
    cells = np.zeros((pods, widths, layout.CELLS))
    row = rng.uniform(1e-4, 0.05, (pods, widths))
    cells[:, :, layout.CELL_ROW_SECONDS] = row
    cells[:, :, layout.CELL_SERVICE_SECONDS] = row + rng.uniform(0.0, 0.02, (pods, widths))
    cells[:, :, layout.CELL_QUEUED_ROWS] = rng.integers(0, 5, (pods, widths)) * rng.integers(0, 9)
    cells[:, :, layout.CELL_WARM] = rng.random((pods, widths)) < 0.7
    cells[:, :, layout.CELL_LOAD_SECONDS] = (1.0 - cells[:, :, layout.CELL_WARM]) * 0.3
    figures = np.zeros((pods, layout.PODS))
    figures[:, layout.POD_DRAIN_SECONDS] = rng.exponential(0.05, pods)
    figures[:, layout.POD_AGE_SECONDS] = rng.exponential(0.1, pods)
    figures[:, layout.POD_OVERDUE_SECONDS] = rng.exponential(0.1, pods) * (rng.random(pods) < 0.3)
    figures[:, layout.POD_DYNAMIC_WATTS] = rng.uniform(0.0, 200.0, pods)
    figures[:, layout.POD_SLOWDOWN] = rng.uniform(0.5, 6.0, pods)
    figures[:, layout.POD_LINK_SECONDS] = 0.001
    service = np.zeros(layout.SERVICE)
    service[layout.SERVICE_ARRIVALS_FAST] = rng.uniform(10.0, 3000.0)
    service[layout.SERVICE_ARRIVALS_SLOW] = rng.uniform(10.0, 3000.0)
    service[layout.SERVICE_BURSTINESS] = rng.uniform(0.3, 3.0)
    service[layout.SERVICE_ACCURACY_WEIGHT : layout.SERVICE_MAX_BATCH_ROWS] = 12.0, 1.0, 0.3, 1.0
    service[layout.SERVICE_MAX_BATCH_ROWS] = 32.0
    slo = float(rng.choice([0.1, 0.3]))
    return Look(
        cells=cells,
        pods=figures,
        widths=np.column_stack(
            [np.sort(rng.uniform(0.7, 0.8, widths)), np.linspace(0.1, 1, widths)]
        ),
        request=np.array([rng.uniform(0.5, 2.0) * slo, slo, 1.0, 0.0]),
        service=service,
        mask=rng.random((pods, widths)) < 0.9,
    )


@pytest.mark.parametrize("seed", range(12))
def test_numpy_and_machine_code_agree_on_features_and_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = Scene(devices=six(), regime=REGIMES["base"])
    table = price_table(scene)
    plans = case_of(scene, load=0.5, seconds=0.2, seed=1).plans
    look = a_look(rng, pods=6, widths=4)
    observation = Observation(
        look.cells, look.pods, look.widths, look.request, look.service, look.mask
    )
    regime = np.empty(REGIME_COUNT)
    fill_regime(look, plans.capacity, regime)
    np.testing.assert_allclose(regime, regime_features(observation, table.capacity), atol=1e-9)
    phi, caps, rates = np.empty((6, 4, CELL_COUNT)), np.empty((6, 4)), np.empty(6)
    fill_cells(look, plans, rates, phi, caps)
    numpy_phi, numpy_caps = cell_features(observation, table)
    for k, name in enumerate(CELL_FEATURES):
        np.testing.assert_allclose(phi[:, :, k], numpy_phi[:, :, k], atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(caps, numpy_caps)
    weights = PolicyWeights(
        "t", rng.uniform(0.0, 1.0, CELL_COUNT), rng.normal(0.0, 0.2, (CELL_COUNT, REGIME_COUNT))
    )
    coefficients = np.empty(CELL_COUNT)
    regime_coefficients(weights.start, weights.slopes, regime, coefficients)
    chosen = choose(observation, table, weights)
    assert chosen is not None
    assert choose_cell(look, coefficients, phi) == (chosen.pod, chosen.width, int(chosen.hold))
    assert look.mask[chosen.pod, chosen.width]
    assert -50.0 < chosen.log_probability <= 0.0


def test_nothing_is_chosen_where_everything_is_masked() -> None:
    look = a_look(np.random.default_rng(1), pods=3, widths=2)
    table = price_table(Scene(devices=six()[:3], widths=Scene(six()).widths[:2]))
    observation = Observation(
        look.cells, look.pods, look.widths, look.request, look.service, look.mask & False
    )
    weights = PolicyWeights("t", np.ones(CELL_COUNT), np.zeros((CELL_COUNT, REGIME_COUNT)))
    assert choose(observation, table, weights) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_pods_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = Scene(devices=six())
    table = price_table(scene)
    look = a_look(rng, pods=6, widths=4)
    seen = Observation(look.cells, look.pods, look.widths, look.request, look.service, look.mask)
    order = rng.permutation(6)
    turned = replace(seen, cells=seen.cells[order], pods=seen.pods[order], mask=seen.mask[order])
    weights = PolicyWeights(
        "t", np.ones(CELL_COUNT), rng.normal(0, 0.1, (CELL_COUNT, REGIME_COUNT))
    )
    first = choose(seen, table, weights)
    table.prices, table.regrets = table.prices[:, order], table.regrets[:, :, order]
    second = choose(turned, table, weights)
    assert first is not None
    assert second is not None
    assert (order[second.pod], second.width) == (first.pod, first.width)
