"""What the router is trained and judged on: scenes, regimes and loads, drawn from seeds."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import Observation
from slimscale.routing.learned.prices import PriceTable, SloClass
from slimscale.simulate.bounds.planning import capacity
from slimscale.simulate.bounds.scene_fleet import fleet_of
from slimscale.simulate.routing.build import new_plane, service_seconds
from slimscale.simulate.routing.learned_policy import Plans, plans_of
from slimscale.simulate.routing.scene import REGIMES, Device, Regime, Scene, six
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.traces import Trace, draw_trace

__all__ = [
    "REFERENCE_ACCURACY",
    "TROUBLE",
    "Case",
    "case_of",
    "draw_case",
    "mean_value",
]

REFERENCE_ACCURACY = 0.745
"""Loads are shares of the rate that the fleet can serve at this mean accuracy."""
TROUBLE = ("fault", "burst", "cold", "stale", "real")
"""The regimes in which there is something to win."""
WARM_UP_SECONDS = 1.0
FLEETS = 64
"""Random fleets that training knows: each needs a plan, which is worked out once."""


@dataclass(frozen=True, slots=True)
class Case:
    """One trace on one scene, ready to be run as often as wanted."""

    scene: Scene
    trace: Trace
    plans: Plans
    load: float
    seed: int

    def plane(self) -> Plane:
        """A fresh plane: the same arrivals, faults and noise each time."""
        return new_plane(
            self.scene,
            self.trace.arrival,
            self.trace.klass,
            seed=self.seed,
            planned_load=self.trace.rate,
        )


def mean_value(plane: Plane, *, from_seconds: float = WARM_UP_SECONDS) -> float:
    """Mean J of the requests that arrived after the warm-up."""
    counted = plane.requests.of("arrival") >= from_seconds
    return float(plane.requests.of("value")[counted].mean())


@lru_cache(maxsize=1024)
def _capacity(devices: tuple[Device, ...]) -> float:
    """Rows a second at REFERENCE_ACCURACY, of times without noise."""
    return capacity(fleet_of(Scene(devices), noise=False), min_accuracy=REFERENCE_ACCURACY)


@lru_cache(maxsize=1024)
def _plans(devices: tuple[Device, ...], energy_times: float) -> Plans:
    regime = replace(REGIMES["base"], energy_times=energy_times)
    return plans_of(price_table(Scene(devices, regime=regime)))


def price_table(scene: Scene) -> PriceTable:
    """Prices of the fleet when it is well and warm."""
    base, row = service_seconds(scene)
    cells = np.zeros((*base.shape, layout.CELLS))
    cells[:, :, layout.CELL_SERVICE_SECONDS] = base + row
    cells[:, :, layout.CELL_ROW_SECONDS] = row
    cells[:, :, layout.CELL_WARM] = 1.0
    pods = np.zeros((len(base), layout.PODS))
    pods[:, layout.POD_DYNAMIC_WATTS] = [device.dynamic_watts for device in scene.devices]
    service = np.zeros(layout.SERVICE)
    service[layout.SERVICE_ACCURACY_WEIGHT] = scene.objective.accuracy
    service[layout.SERVICE_LATENCY_WEIGHT] = scene.objective.latency
    service[layout.SERVICE_ENERGY_WEIGHT] = scene.objective.energy * scene.regime.energy_times
    service[layout.SERVICE_MISS_WEIGHT] = scene.objective.miss
    service[layout.SERVICE_MAX_BATCH_ROWS] = scene.max_batch_rows
    widths = np.array([[width.accuracy, width.flops_ratio] for width in scene.widths])
    table = PriceTable([SloClass(one.slo_seconds, one.share) for one in scene.classes])
    table.refresh(
        Observation(
            cells=cells,
            pods=pods,
            widths=widths,
            request=np.zeros(layout.REQUEST),
            service=service,
            mask=np.ones(base.shape, dtype=np.bool_),
        )
    )
    return table


def case_of(scene: Scene, *, load: float, seconds: float, seed: int) -> Case:
    """`load`: share of the rate that the fleet can serve at REFERENCE_ACCURACY."""
    trace = draw_trace(scene, load * _capacity(scene.devices), seconds, seed=seed)
    return Case(scene, trace, _plans(scene.devices, scene.regime.energy_times), load, seed)


def draw_case(rng: np.random.Generator, *, seconds: float, known_share: float = 0.5) -> Case:
    """A random regime, load and, with 1 - `known_share`, a random fleet of 2 to 12 devices."""
    name = str(rng.choice([*TROUBLE, "base", "energy"], p=_REGIME_SHARES))
    known = rng.random() < known_share
    devices = six() if known else draw_devices(int(rng.integers(FLEETS)))
    regime = _perturbed(REGIMES[name], rng) if rng.random() < 0.3 else REGIMES[name]
    return case_of(
        Scene(devices=devices, regime=regime),
        load=float(rng.uniform(0.25, 0.97)),
        seconds=seconds,
        seed=int(rng.integers(2**31)),
    )


_REGIME_SHARES = (0.18, 0.18, 0.16, 0.12, 0.18, 0.1, 0.08)


@lru_cache(maxsize=FLEETS)
def draw_devices(number: int) -> tuple[Device, ...]:
    """Training fleet `number`: 2 to 12 devices, each like a known one, +-30 % in each figure."""
    rng = np.random.default_rng((number, 7))
    kinds = six()

    def vary(figure: float) -> float:
        return float(figure * rng.uniform(0.7, 1.3))

    found = []
    for index in range(int(rng.integers(2, 13))):
        kind = kinds[int(rng.integers(len(kinds)))]
        found.append(
            replace(
                kind,
                name=f"{kind.name}-{index}",
                base_seconds=vary(kind.base_seconds),
                row_seconds=vary(kind.row_seconds),
                dynamic_watts=vary(kind.dynamic_watts),
                load_seconds=float(kind.load_seconds * rng.uniform(0.5, 2.0)),
            )
        )
    return tuple(found)


def _perturbed(regime: Regime, rng: np.random.Generator) -> Regime:
    """The regime with other figures: staleness, severity of faults, memory."""
    return replace(
        regime,
        telemetry_seconds=float(rng.uniform(0.0, 0.5)) if regime.telemetry_seconds else 0.0,
        slow_factor=float(rng.uniform(2.0, 8.0)) if regime.slow_factor > 1.0 else 1.0,
        slow_gap_seconds=regime.slow_gap_seconds * float(rng.uniform(0.6, 2.0)),
        memory=regime.memory * float(rng.uniform(0.9, 1.6)),
    )
