"""Where policies play: a scene at a load, with the plans that belong to it."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from slimscale.simulate.bounds.fleet import RequestClass
from slimscale.simulate.bounds.planning import (
    ObjectiveWeights,
    Plan,
    capacity,
    least_energy,
    planning_lp,
)
from slimscale.simulate.bounds.scene_fleet import fleet_of
from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.scene import REGIMES, Device, Scene, six
from slimscale.simulate.routing.state import FloatArray, Plane
from slimscale.simulate.routing.traces import draw_trace

__all__ = ["REFERENCE_ACCURACY", "Stage", "draw_pool", "plan_for", "stage_of"]

REFERENCE_ACCURACY = 0.745
"""Loads are shares of the rate that the fleet can serve at this mean accuracy."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A scene, and the mean load in rows a second."""

    scene: Scene
    load: float
    """Share of the capacity."""
    rate: float

    @property
    def name(self) -> str:
        return f"{self.scene.regime.name} {self.load:g}"

    def plane(self, seconds: float, seed: int, gaps: FloatArray | None = None) -> Plane:
        """A fresh plane before its first arrival: the same for every policy."""
        trace = draw_trace(self.scene, self.rate, seconds, seed=seed, gaps=gaps)
        return new_plane(self.scene, trace.arrival, trace.klass, seed=seed, planned_load=self.rate)

    def support(self, inflation: float, *, thrifty: bool = False) -> np.ndarray:
        """[C, D, W]: cells of the plan for so many times the load, of most J or of least energy."""
        if thrifty:
            return _thrifty_support(self.scene, self.rate * inflation)
        return np.ascontiguousarray(plan_for(self.scene, self.rate, inflation).support)


@lru_cache(maxsize=1024)
def _thrifty_support(scene: Scene, rate: float) -> np.ndarray:
    fleet = fleet_of(scene)
    plan = least_energy(fleet, rows_per_second=min(rate, 0.98 * capacity(fleet)))
    return np.ascontiguousarray(np.repeat(plan.support, len(scene.classes), axis=0))


@lru_cache(maxsize=4096)
def plan_for(scene: Scene, rate: float, inflation: float = 1.0) -> Plan:
    """The planning problem on J; its value bounds every policy where `inflation` is 1."""
    objective = scene.objective
    return planning_lp(
        fleet_of(scene),
        rows_per_second=rate,
        classes=[
            RequestClass(one.slo_seconds, one.share, one.min_accuracy) for one in scene.classes
        ],
        weights=ObjectiveWeights(
            accuracy=objective.accuracy,
            reference_accuracy=objective.reference,
            latency=objective.latency,
            per_joule=objective.energy * scene.regime.energy_times,
            miss=objective.miss,
        ),
        inflation=inflation,
    )


@lru_cache(maxsize=256)
def _capacity(devices: tuple[Device, ...]) -> float:
    # Of the times without noise, as in the first experiment: loads are the same figures there.
    return capacity(fleet_of(Scene(devices), noise=False), min_accuracy=REFERENCE_ACCURACY)


def stage_of(
    regime: str,
    load: float,
    *,
    devices: tuple[Device, ...] | None = None,
    scene: Scene | None = None,
) -> Stage:
    """`scene`: its classes, objective and limits; its devices and regime are replaced."""
    devices = devices or six()
    made = replace(scene or Scene(devices), devices=devices, regime=REGIMES[regime])
    return Stage(made, load, load * _capacity(devices))


def draw_pool(count: int, seed: int) -> tuple[Device, ...]:
    """`count` devices, each like one of the six, every figure 30 % up or down: none seen in training."""
    rng = np.random.default_rng((seed, count))
    kinds = six()
    found = []
    for index in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        base, row, dynamic, idle = (
            float(figure * rng.uniform(0.7, 1.3))
            for figure in (
                kind.base_seconds, kind.row_seconds, kind.dynamic_watts, kind.idle_watts,
            )
        )  # fmt: skip
        found.append(
            Device(f"{kind.name}-{index}", base, row, dynamic, idle, kind.load_seconds, kind.memory)
        )
    return tuple(found)
