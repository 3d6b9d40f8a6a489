"""The heuristics that the learned router has to beat, each a name and a way to route a case."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.bounds.fleet import RequestClass
from slimscale.simulate.bounds.planning import ObjectiveWeights, planning_lp
from slimscale.simulate.bounds.scene_fleet import fleet_of
from slimscale.simulate.routing.heuristics import SETTINGS, Kind, Setting, WidthRule, run_rule
from slimscale.simulate.routing.scene import REGIMES, Scene
from slimscale.training.router.scenes import Case, mean_value

__all__ = ["Rule", "all_rules", "value_of_rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    kind: int
    setting: tuple[float, ...]
    inflation: float = 0.0
    """Above 0: within the support of the plan for so many times the true mean load."""


def _setting(
    *, rule: int, cold_aware: bool = True, slack: float = 0.8, price: float = 0.0
) -> tuple[float, ...]:
    found = [0.0] * SETTINGS
    found[Setting.RULE] = float(rule)
    found[Setting.COLD_AWARE] = float(cold_aware)
    found[Setting.SLACK_SHARE] = slack
    found[Setting.PRICE] = price
    found[Setting.CAP] = 32.0
    return tuple(found)


def all_rules() -> Iterator[Rule]:
    """The issue's list: SED, cold-aware or not, by width rule; JSQ, P2C, random, prices, plans."""
    slim, wide, slack = WidthRule.SLIMMEST, WidthRule.WIDEST, WidthRule.WITHIN_SLACK
    yield Rule("random", Kind.RANDOM, _setting(rule=WidthRule.ANY))
    yield Rule("round robin, within slack", Kind.ROUND_ROBIN, _setting(rule=slack))
    yield Rule("JSQ, slimmest", Kind.JSQ, _setting(rule=slim))
    yield Rule("JSQ, within slack", Kind.JSQ, _setting(rule=slack))
    yield Rule("P2C, slimmest", Kind.POWER_OF_TWO, _setting(rule=slim))
    yield Rule("P2C, within slack", Kind.POWER_OF_TWO, _setting(rule=slack))
    for cold in (True, False):
        name = "cold-aware SED" if cold else "SED"
        yield Rule(f"{name}, slimmest", Kind.SED, _setting(rule=slim, cold_aware=cold))
        yield Rule(f"{name}, widest", Kind.SED, _setting(rule=wide, cold_aware=cold))
        for share in (0.8, 0.5, 0.35, 0.25):
            setting = _setting(rule=slack, cold_aware=cold, slack=share)
            yield Rule(f"{name}, within {share:g} of slack", Kind.SED, setting)
    for price in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0):
        yield Rule(f"priced greedy {price:g}", Kind.PRICED, _setting(rule=wide, price=price))
    for inflation in (1.0, 1.2, 1.4, 1.6, 2.0, 2.5, 3.0, 4.0):
        setting = _setting(rule=WidthRule.ANY)
        yield Rule(f"LPsupport-SED x{inflation:g}", Kind.SED, setting, inflation)


@lru_cache(maxsize=1024)
def _support(scene: Scene, rate: float, inflation: float) -> NDArray[np.bool_]:
    """(C, D, W) the cells of the plan for `inflation` times a rate."""
    objective = scene.objective
    plan = planning_lp(
        fleet_of(scene),
        rows_per_second=rate,
        classes=[RequestClass(one.slo_seconds, one.share) for one in scene.classes],
        weights=ObjectiveWeights(
            accuracy=objective.accuracy,
            reference_accuracy=objective.reference,
            latency=objective.latency,
            per_joule=objective.energy * scene.regime.energy_times,
            miss=objective.miss,
        ),
        inflation=inflation,
    )
    return np.ascontiguousarray(plan.support)


def value_of_rule(rule: Rule, case: Case) -> float:
    """Mean J of a case under a rule. Plans are made for the true mean load."""
    scene = case.scene
    support = np.ones((len(scene.classes), len(scene.devices), len(scene.widths)), dtype=np.bool_)
    if rule.inflation > 0.0:
        # Of the regime only the weight of energy matters to a plan.
        calm = replace(REGIMES["base"], energy_times=scene.regime.energy_times)
        support = _support(replace(scene, regime=calm), case.trace.rate, rule.inflation)
    plane = case.plane()
    run_rule(plane, rule.kind, np.array(rule.setting), support)
    return mean_value(plane)
