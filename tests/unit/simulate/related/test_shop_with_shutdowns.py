"""Dispatching in a shop whose machines fail: the rules, and the graph encoder that begins as one."""

import numpy as np
import pytest

from slimscale.routing.related.dispatch_rules import PriorityRule
from slimscale.simulate.related.shop import (
    ENCODER,
    Shop,
    ShopView,
    by_encoder,
    by_rule,
    run_shop,
    train,
)


def _flow(shop: Shop, rule: PriorityRule, seed: int) -> float:
    return run_shop(shop, by_rule(rule), jobs=200, seed=seed)["flow_seconds"]


def test_shutdowns_lengthen_every_rules_flow_and_spt_and_lwkr_keep_it_shortest() -> None:
    calm, failing = Shop(), Shop(shutdown_probability=0.1)
    flows = {
        rule: np.mean([_flow(failing, rule, seed) for seed in (1, 2)]) for rule in PriorityRule
    }
    for rule in PriorityRule:
        assert flows[rule] > np.mean([_flow(calm, rule, seed) for seed in (1, 2)])
    assert max(flows[PriorityRule.SPT], flows[PriorityRule.LWKR]) < flows[PriorityRule.FIFO]


def test_an_untrained_encoder_is_the_rule_that_it_begins_with() -> None:
    weights = ENCODER.initial(np.random.default_rng(1))
    shop = Shop(shutdown_probability=0.05)
    own = run_shop(shop, by_encoder(weights), jobs=150, seed=3)
    assert own == run_shop(shop, by_rule(PriorityRule.SPT), jobs=150, seed=3)


def test_a_machine_that_is_away_gets_nothing() -> None:
    seen: list[tuple[bool, ...]] = []
    inner = by_rule(PriorityRule.SPT)

    def watched(view: ShopView) -> tuple[int, int] | None:
        seen.append(view.up)
        assert all(view.up[machine] for machine in view.free)
        return inner(view)

    run_shop(Shop(shutdown_probability=0.2), watched, jobs=100, seed=4)
    assert not all(all(up) for up in seen)


@pytest.mark.slow
def test_training_lowers_the_flow_time_on_its_own_seeds() -> None:
    shop = Shop(shutdown_probability=0.05)
    seeds = (11, 12)
    weights = train(shop, seeds=seeds, jobs=60, steps=10, pairs=4, seed=1)
    before = [run_shop(shop, by_rule(PriorityRule.SPT), jobs=60, seed=s) for s in seeds]
    after = [run_shop(shop, by_encoder(weights), jobs=60, seed=s) for s in seeds]
    assert sum(one["flow_seconds"] for one in after) <= sum(one["flow_seconds"] for one in before)
