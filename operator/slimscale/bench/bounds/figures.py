"""The figures of the bounds: each function gives rows of plain numbers, from a few settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from math import inf
from random import Random
from typing import Any

from slimscale.bench.bounds.segments import cut_bytes, segment_macs
from slimscale.routing.related.cut_layer import CutCosts, best_cut, cut_seconds
from slimscale.routing.related.delay_timer import rental_cost, timer_seconds
from slimscale.routing.related.placement import place_segments, placement_seconds
from slimscale.simulate.bounds.fleet import RequestClass
from slimscale.simulate.bounds.planning import (
    capacity,
    least_energy,
    least_service,
    most_accuracy,
    planning_lp,
)
from slimscale.simulate.bounds.routing_mdp import (
    TwoDevices,
    evaluate_routing,
    shortest_expected_delay,
    solve_routing,
)
from slimscale.simulate.bounds.scene_fleet import classes_of, fleet_of, weights_of
from slimscale.simulate.bounds.smdp import (
    BatchQueue,
    control_limit,
    evaluate,
    limit_policy,
    solve,
)
from slimscale.simulate.routing.scene import REGIMES, Scene, six

__all__ = [
    "ACCURACY", "LOADS", "Row", "batching_rows", "cut_rows", "placement_rows", "planning_rows",
    "routing_rows", "timer_rows",
]  # fmt: skip

Row = dict[str, Any]
Step = Callable[[], None]
LOADS = (0.02, 0.115, 0.3, 0.5, 0.7, 0.85, 0.95)
ACCURACY = 0.745
"""The mean accuracy at which capacity is counted."""
EDGE_MACS, SERVER_MACS = 1e9, 50e9
"""A second; modelled, of an edge box and of a server."""
LINK_SECONDS = 0.005


def planning_rows(loads: Sequence[float], advance: Step) -> list[Row]:
    """The planning LP over the load, for the scene of six devices."""
    scene = Scene(devices=six())
    fleet, classes = fleet_of(scene), classes_of(scene)
    most = capacity(fleet, min_accuracy=ACCURACY)
    dear = weights_of(scene.under(REGIMES["energy"]))
    rows = []
    for load in loads:
        rate = load * most
        slim = least_energy(fleet, rows_per_second=rate)
        wide = least_energy(fleet, rows_per_second=rate, min_accuracy=ACCURACY)
        rows.append(
            {
                "load": load,
                "requests_per_second": rate,
                "objective": planning_lp(fleet, rows_per_second=rate, classes=classes).value,
                "objective_energy_times_five": planning_lp(
                    fleet, rows_per_second=rate, classes=classes, weights=dear
                ).value,
                "joules_any_accuracy": slim.value,
                "joules_at_accuracy": wide.value,
                "watts_any_accuracy_with_idle": slim.watts(fleet, idle=True),
                "most_accuracy": most_accuracy(fleet, rows_per_second=rate).value,
                "service_seconds_at_accuracy": least_service(
                    fleet, rows_per_second=rate, min_accuracy=ACCURACY
                ).value,
            }
        )
        advance()
    return rows


def batching_rows(loads: Sequence[float], weights: Sequence[float], advance: Step) -> list[Row]:
    """The SMDP optimum beside greedy, static batches and the best control limit."""
    largest = 8
    seconds = tuple(1.0 + 0.2 * b for b in range(1, largest + 1))
    joules = tuple(30.0 + 2.0 * b for b in range(1, largest + 1))
    rows = []
    for load in loads:
        for weight in weights:
            queue = BatchQueue(
                seconds, joules, load * largest / seconds[-1], energy_weight=weight, max_waiting=120
            )
            best = solve(queue)
            by_limit = [
                evaluate(queue, limit_policy(queue, limit)).average_cost
                for limit in range(1, largest + 1)
            ]
            rows.append(
                {
                    "load": load,
                    "energy_weight": weight,
                    "optimum": best.average_cost,
                    "control_limit": control_limit(best.actions[:12]),
                    "greedy": by_limit[0],
                    "static": by_limit[-1],
                    "best_limit": min(by_limit),
                }
            )
            advance()
    return rows


def two_devices(load: float, *, queue_cap: int = 30) -> TwoDevices:
    """A fast one of 40 W, a slow one of 12 W; slim takes one phase of work, wide three."""
    system = TwoDevices(
        phase_seconds=(0.004, 0.010),
        phases=(1, 3),
        accuracy=(0.703, 0.765),
        dynamic_watts=(40.0, 12.0),
        classes=(RequestClass(0.1, 0.3), RequestClass(0.3, 0.7)),
        requests_per_second=1.0,
        queue_cap=queue_cap,
    )
    return replace(system, requests_per_second=load * capacity(system.fleet()))


def routing_rows(loads: Sequence[float], queue_cap: int, advance: Step) -> list[Row]:
    """Exact values of rules on two devices, beside the optimum and the planning bound."""
    rows = []
    for load in loads:
        system = two_devices(load, queue_cap=queue_cap)
        plan = planning_lp(
            system.fleet(), rows_per_second=system.requests_per_second, classes=system.classes
        )
        rules = {
            "SED, slimmest": shortest_expected_delay(system, widths=[0]),
            "SED, widest": shortest_expected_delay(system, widths=[1]),
            "SED, widest within .8 of the SLO": shortest_expected_delay(system, widest_within=0.8),
            "SED, widest within .4 of the SLO": shortest_expected_delay(system, widest_within=0.4),
            "LPsupport-SED": shortest_expected_delay(system, support=plan.support),
        }
        row: Row = {"load": load, "planning bound": plan.value}
        row["optimum"] = solve_routing(system).mean_objective
        row |= {name: evaluate_routing(system, rule).mean_objective for name, rule in rules.items()}
        rows.append(row)
        advance()
    return rows


def cut_rows(bandwidths: Sequence[float]) -> list[Row]:
    """The best cut of the shipped network, and of one whose activations shrink, by bandwidth."""
    networks: Mapping[str, CutCosts] = {
        "shipped, width .25": _shipped(25),
        "shipped, width 1": _shipped(100),
        "large image, shrinking activations": CutCosts(
            edge_seconds=(0.004, 0.010, 0.020),
            server_seconds=(0.0001, 0.0002, 0.0004),
            cut_bytes=(600_000, 100_000, 25_000, 400),
        ),
    }
    rows = []
    for name, costs in networks.items():
        for bandwidth in bandwidths:
            seconds = cut_seconds(costs, bytes_per_second=bandwidth, link_seconds=LINK_SECONDS)
            cut = best_cut(costs, bytes_per_second=bandwidth, link_seconds=LINK_SECONDS)
            rows.append(
                {
                    "network": name,
                    "bytes_per_second": bandwidth,
                    "cut": cut,
                    "seconds": seconds[cut],
                    "all_on_server_seconds": seconds[0],
                    "all_on_edge_seconds": seconds[-1],
                }
            )
    return rows


def _shipped(percent: int) -> CutCosts:
    folder = resources.files("slimscale.weights") / "fashion" / f"fashion-w{percent:03d}"
    graph = (folder / "model.onnx").read_bytes()
    macs = segment_macs(graph)
    return CutCosts(
        edge_seconds=tuple(count / EDGE_MACS for count in macs),
        server_seconds=tuple(count / SERVER_MACS for count in macs),
        cut_bytes=cut_bytes(graph),
    )


def placement_rows(seed: int, instances: int) -> list[Row]:
    """Cold starts of three segments on 1 to 4 unlike devices: what planning with the maximum saves."""
    rng = Random(seed)  # noqa: S311 - drawn cases, not secrets
    rows = []
    for devices in (1, 2, 3, 4):
        aware, serial, alone = [], [], []
        for _ in range(instances):
            loads = [
                [rng.uniform(0.1, 1.0) * speed for _ in range(3)] for speed in _speeds(rng, devices)
            ]
            compute = [
                [rng.uniform(0.02, 0.5) * speed for _ in range(3)]
                for speed in _speeds(rng, devices)
            ]
            transfer = [rng.uniform(0.0, 0.1) for _ in range(3)] + [0.0]
            case: dict[str, Any] = {
                "load_seconds": loads,
                "compute_seconds": compute,
                "transfer_seconds": transfer,
            }
            aware.append(place_segments(**case).seconds)
            planned = place_segments(**case, overlapped=False)
            serial.append(placement_seconds(planned.stretches, **case))
            alone.append(min(
                place_segments(load_seconds=[loads[d]], compute_seconds=[compute[d]],
                               transfer_seconds=transfer).seconds
                for d in range(devices)
            ))  # fmt: skip
        rows.append(
            {
                "devices": devices,
                "cold_aware_seconds": sum(aware) / instances,
                "planned_with_sums_seconds": sum(serial) / instances,
                "best_single_device_seconds": sum(alone) / instances,
            }
        )
    return rows


def _speeds(rng: Random, devices: int) -> list[float]:
    return [rng.uniform(0.5, 2.0) for _ in range(devices)]


def timer_rows(seed: int, waits: int) -> list[Row]:
    """Mean cost of timers on three kinds of waits; Δ is 1 s. Tuned on one half, judged on the other."""
    rng = Random(seed)  # noqa: S311
    kinds: Mapping[str, Callable[[], float]] = {
        "exponential, mean .3 s": lambda: rng.expovariate(1 / 0.3),
        "exponential, mean 3 s": lambda: rng.expovariate(1 / 3.0),
        "soon or late: .1 s (70 %), 5 s": lambda: (
            rng.uniform(0, 0.2) if rng.random() < 0.7 else 5.0
        ),
    }
    rows = []
    for name, draw in kinds.items():
        seen, judged = [draw() for _ in range(waits)], [draw() for _ in range(waits)]
        tuned = timer_seconds(seen, [True] * waits, 1.0)
        timers = {"never wait": 0.0, "untuned (Δ)": 1.0, "always wait": inf, "tuned": tuned}
        row: Row = {"waits": name, "timer_seconds": None if tuned == inf else tuned}
        row |= {
            label: sum(rental_cost(wait, timer, 1.0) for wait in judged) / waits
            for label, timer in timers.items()
        }
        row["hindsight"] = sum(min(wait, 1.0) for wait in judged) / waits
        rows.append(row)
    return rows
