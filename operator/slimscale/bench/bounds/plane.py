"""Policies of related systems on the simulated data plane: six devices, regimes, loads, seeds.

The wide comparison with everything, and with the learned router, is `slimscale bench routing`; here each
idea stands beside the two rules that it builds on, with the planning bound above.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev
from typing import Any

import numpy as np

from slimscale.simulate.bounds.planning import least_energy, planning_lp
from slimscale.simulate.bounds.scene_fleet import classes_of, fleet_of, weights_of
from slimscale.simulate.related.policies import RELATED, Run, rule_setting, with_table
from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.heuristics import Kind, WidthRule, run_rule
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.traces import draw_trace
from slimscale.weights.batching import shipped_batching_table

__all__ = ["CAPACITY", "PLAN_INFLATION", "REGIME_NAMES", "holding_rows", "plane_rows", "policies"]

CAPACITY = 2209.0
"""Requests a second that the scene serves at a mean accuracy of 74.5 %: loads are shares of it."""
PLAN_INFLATION = 1.5
"""Times the mean load for which the plan of least energy is made: room for what is not steady."""
REGIME_NAMES = ("base", "energy", "burst", "cold", "fault", "shutdown")

Row = dict[str, Any]


def _rule(plane: Plane, rule: int) -> None:
    everything = np.ones((int(plane.state["classes"][0]), *plane.look.mask.shape), dtype=np.bool_)
    run_rule(plane, Kind.SED, rule_setting(rule), everything)


def policies() -> Mapping[str, Run]:
    """By the names of the table."""
    table = shipped_batching_table()
    slimmest = rule_setting(WidthRule.SLIMMEST)
    return {
        "SED, widest within slack": partial(_rule, rule=WidthRule.WITHIN_SLACK),
        "SED, slimmest": partial(_rule, rule=WidthRule.SLIMMEST),
        "SED, widest within slack, batching table": with_table(table),
        "SED, slimmest, batching table": with_table(table, setting=slimmest),
        **RELATED,
    }


def plane_rows(
    regimes: Sequence[str],
    loads: Sequence[float],
    *,
    seeds: Sequence[int],
    seconds: float,
    advance: Callable[[], None],
) -> list[Row]:
    """One row a regime, load and policy: means over the seeds, J's standard deviation over them.

    The seeds' traces are the same for all policies. Latency is capped at twice the SLO, as J counts it.
    """
    rows = []
    for regime in regimes:
        scene = Scene(devices=six()).under(REGIMES[regime])
        fleet, classes = fleet_of(scene), classes_of(scene)
        for load in loads:
            rate = load * CAPACITY
            bound = planning_lp(
                fleet, rows_per_second=rate, classes=classes, weights=weights_of(scene)
            )
            for name, run in policies().items():
                runs = [_figures(scene, rate, seconds, seed, run) for seed in seeds]
                row: Row = {"regime": regime, "load": load, "policy": name}
                row |= {key: fmean(one[key] for one in runs) for key in runs[0]}
                values = [one["objective"] for one in runs]
                row["objective_deviation"] = stdev(values) if len(values) > 1 else 0.0
                row["bound"] = bound.value
                rows.append(row)
                advance()
    return rows


def holding_rows(
    loads: Sequence[float],
    times: Sequence[float],
    *,
    seeds: Sequence[int],
    seconds: float,
    advance: Callable[[], None],
) -> list[Row]:
    """Energy at the slimmest width: work-conserving SED, the batching table, the bound of full batches.

    `times`: energy weights in the scene's own, which set the busy cost and with it how long is held.
    `..._way` is the share of the way from the work-conserving energy to the bound.
    """
    plain = Scene(devices=six())
    rows = []
    for load in loads:
        rate = load * CAPACITY
        bound = least_energy(fleet_of(plain), rows_per_second=rate).value
        greedy = _means(plain, rate, seconds, seeds, policies()["SED, slimmest"])
        within = _held_within_plan(plain, rate)
        for factor in times:
            scene = replace(
                plain, objective=replace(plain.objective, energy=factor * plain.objective.energy)
            )
            held = _means(scene, rate, seconds, seeds, policies()["SED, slimmest, batching table"])
            planned = _means(scene, rate, seconds, seeds, within)
            rows.append(
                {
                    "load": load,
                    "energy_weight_times": factor,
                    "greedy_joules": greedy["joules"],
                    "held_joules": held["joules"],
                    "bound_joules": bound,
                    "held_way": (greedy["joules"] - held["joules"]) / (greedy["joules"] - bound),
                    "greedy_latency_seconds": greedy["latency_seconds"],
                    "held_latency_seconds": held["latency_seconds"],
                    "held_late_share": held["late_share"],
                    "planned_joules": planned["joules"],
                    "planned_way": (greedy["joules"] - planned["joules"])
                    / (greedy["joules"] - bound),
                    "planned_latency_seconds": planned["latency_seconds"],
                    "planned_late_share": planned["late_share"],
                }
            )
            advance()
    return rows


def _held_within_plan(scene: Scene, rate: float) -> Run:
    """As the other, on the devices alone that the plan of least energy uses."""
    plan = least_energy(fleet_of(scene), rows_per_second=PLAN_INFLATION * rate)
    support = np.repeat(plan.support, len(scene.classes), axis=0)
    table, slimmest = shipped_batching_table(), rule_setting(WidthRule.SLIMMEST)
    return with_table(table, setting=slimmest, support=support)


def _means(
    scene: Scene, rate: float, seconds: float, seeds: Sequence[int], run: Run
) -> dict[str, float]:
    runs = [_figures(scene, rate, seconds, seed, run) for seed in seeds]
    return {key: fmean(one[key] for one in runs) for key in runs[0]}


def _figures(scene: Scene, rate: float, seconds: float, seed: int, run: Run) -> dict[str, float]:
    trace = draw_trace(scene, rate, seconds, seed=seed)
    plane = new_plane(scene, trace.arrival, trace.klass, seed=seed, planned_load=rate)
    run(plane)
    requests = plane.requests
    latency = requests.of("latency")
    slo = np.asarray([one.slo_seconds for one in scene.classes])[requests.of("klass")]
    accuracy = np.asarray([width.accuracy for width in scene.widths])[requests.of("width")]
    answered = np.isfinite(latency)
    return {
        "objective": float(requests.of("value").mean()),
        "latency_seconds": float(np.minimum(latency, 2.0 * slo).mean()),
        "joules": float(requests.of("energy").mean()),
        "accuracy": float(accuracy[answered].mean()) if answered.any() else 0.0,
        "late_share": float((latency > slo).mean()),
    }
