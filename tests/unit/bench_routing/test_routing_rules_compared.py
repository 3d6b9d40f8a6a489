"""The rules do what they are for, and the figures of the first experiment come out again."""

import numpy as np
import pytest

from slimscale.bench.routing.figures import figures_of
from slimscale.bench.routing.rules import Player, Rule, rules
from slimscale.bench.routing.stage import plan_for, stage_of
from slimscale.simulate.routing.heuristics import Kind, WidthRule
from slimscale.simulate.routing.mixture import run_mixture
from tests.support.routed import setting

pytestmark = pytest.mark.timeout(300)  # the first one waits for the compiler

RULES = {rule.name: rule for rule in rules()}


def value(player: Player, regime: str, load: float, *, seconds: float = 4.0) -> float:
    stage = stage_of(regime, load)
    plane = stage.plane(seconds, 77)
    player.play(plane, stage)
    return figures_of(plane, stage).value


@pytest.mark.parametrize(
    ("load", "bound", "rule", "found"),
    [
        (0.3, 0.43, "LPsupport-SED x1.25", 0.350),
        (0.5, 0.40, "LPsupport-SED x1", 0.324),
        (0.7, 0.34, "LPsupport-SED x1.25", 0.222),
        (0.85, 0.29, "LPsupport-SED x1", 0.190),
        (0.95, 0.26, "LPsupport-SED x1", 0.173),
    ],
)
def test_bound_and_best_rule_are_those_of_the_first_experiment(
    load: float, bound: float, rule: str, found: float
) -> None:
    stage = stage_of("base", load)
    assert plan_for(stage.scene, stage.rate).value == pytest.approx(bound, abs=0.012)
    assert value(RULES[rule], "base", load) == pytest.approx(found, abs=0.03)


def test_no_rule_is_above_the_bound() -> None:
    stage = stage_of("base", 0.5)
    bound = plan_for(stage.scene, stage.rate).value
    for name in ("LPsupport-SED x1", "SED, slimmest", "priced greedy 60, slack 0.5", "random"):
        assert value(RULES[name], "base", 0.5) < bound


def test_plans_for_the_mean_collapse_under_bursts_and_plans_for_more_do_not() -> None:
    assert value(RULES["LPsupport-SED x2.5"], "burst", 0.5) > value(
        RULES["LPsupport-SED x1"], "burst", 0.5
    )


def test_holding_saves_energy_at_low_load() -> None:
    stage = stage_of("base", 0.05)
    joules = {}
    for name in ("SED, slimmest", "thrifty plan x1, hold/16"):
        plane = stage.plane(4.0, 77)
        RULES[name].play(plane, stage)
        figures = figures_of(plane, stage)
        assert figures.dropped == 0.0
        joules[name] = figures.dynamic_joules
    assert joules["thrifty plan x1, hold/16"] < 0.5 * joules["SED, slimmest"]


def test_a_mixture_comes_to_trust_the_rule_that_works() -> None:
    stage = stage_of("base", 0.7)
    plane = stage.plane(4.0, 77)
    kinds = np.array([Kind.SED, Kind.SED], dtype=np.int64)
    rows = np.array([setting(WidthRule.WIDEST), setting(WidthRule.SLIMMEST)])
    weights = run_mixture(plane, kinds, rows, 0.05)
    # The widest alone is hopelessly overloaded, and has the lead at the start.
    assert weights[1] > weights[0]
    alone = value(Rule("", "", Kind.SED, WidthRule.WIDEST), "base", 0.7)
    assert figures_of(plane, stage).value > alone + 1.0
