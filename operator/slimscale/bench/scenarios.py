"""The benchmark's scenarios: hosts of 2 to 64 cores, five ways for a load to change, all families.

Everything is drawn from `suite_seed`, so another seed gives other scenarios of the same kind: one
for developing, one to publish, one to train the trained baselines on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from slimscale.bench.loads import KINDS, Shape, draw_parts
from slimscale.simulate import load
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.workload import Family, Host, Workload

__all__ = [
    "CORES",
    "DRIFT_SPREAD",
    "FAMILIES",
    "RATE_PER_SECOND",
    "SHAPES",
    "Suite",
    "draw_quota",
    "quick_suite",
    "shape_of",
    "steady_hours",
    "suite",
    "training_scenarios",
]

CORES = (2, 4, 8, 16, 32, 64)
FAMILIES = tuple(Family)
DURATION_SECONDS = 600.0
DRIFT_SPREAD = 1.0
"""Standard deviation of the logarithm of the task times in a drift."""
TURN_SECONDS, DRIFT_STEP_SECONDS = 75.0, 15.0
"""A drift goes somewhere else after each turn, and there in steps."""
RATE_PER_SECOND = 100.0
"""About what the best thread count does: 500 tasks in one interval of the operator's metrics."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Scenarios with names that say what they are: shape, cores, quota, family."""

    name: str
    suite_seed: int
    scenarios: tuple[LoadScenario, ...]


@dataclass(frozen=True, slots=True)
class _Drawing:
    host: Host
    shape: Shape
    rng: np.random.Generator
    seconds: float
    drift_spread: float = DRIFT_SPREAD

    @property
    def seed(self) -> int:
        return int(self.rng.integers(2**31))

    def workload(self, kind: str, *, outstanding: int | None = None) -> Workload:
        cores = min(float(self.host.cores), self.host.quota_cores or float(self.host.cores))
        parts = draw_parts(kind, rate=RATE_PER_SECOND, cores=cores, rng=self.rng)
        return parts.workload(self.shape, outstanding=outstanding)

    def workloads(self, count: int, kinds: tuple[str, ...] = tuple(KINDS)) -> list[Workload]:
        """Of neighbours no two are of one kind: each change is one."""
        chosen: list[str] = []
        while len(chosen) < count:
            name = str(self.rng.choice(kinds))
            if not chosen or name != chosen[-1]:
                chosen.append(name)
        return [self.workload(kind) for kind in chosen]


def _steps(drawing: _Drawing) -> LoadScenario:
    """Four loads of different kinds."""
    return load.steps(
        drawing.host, drawing.workloads(4), seed=drawing.seed, duration_seconds=drawing.seconds
    )


def _ramps(drawing: _Drawing) -> LoadScenario:
    """Three loads; between two of them a slide in ten small steps."""
    return load.ramps(
        drawing.host, drawing.workloads(3), seed=drawing.seed, duration_seconds=drawing.seconds
    )


def _bursts(drawing: _Drawing) -> LoadScenario:
    """A base load into which another one bursts; in half of the cases the base is a lull."""
    base, burst = drawing.workloads(2)
    if drawing.rng.random() < 0.5:
        base = replace(base, outstanding=int(drawing.rng.integers(2, 9)))
    return load.bursts(
        drawing.host, base, burst, seed=drawing.seed, duration_seconds=drawing.seconds
    )


def _drift(drawing: _Drawing) -> LoadScenario:
    """The paper's setting: task time over dispatch time wanders, in small steps."""
    (base,) = drawing.workloads(1, ("dispatching", "contended"))
    count = round(drawing.seconds / TURN_SECONDS) + 1
    turns = load.drift(
        drawing.host,
        base,
        seed=drawing.seed,
        duration_seconds=count * TURN_SECONDS,
        count=count,
        spread=drawing.drift_spread,
    )
    each = round(TURN_SECONDS / DRIFT_STEP_SECONDS)
    phases = [
        (before_at + DRIFT_STEP_SECONDS * step, load.between(before, after, step / each))
        for (before_at, before), (_, after) in pairwise(turns.phases)
        for step in range(each)
    ]
    kept = tuple(phase for phase in phases if phase[0] < drawing.seconds)
    return LoadScenario("drift", drawing.host, kept, drawing.seconds)


def _mixtures(drawing: _Drawing) -> LoadScenario:
    """Short tasks of one kind and long ones of another; their shares change."""
    short, long = drawing.workloads(2, ("computing", "blocking", "dispatching", "contended"))
    return load.mixtures(
        drawing.host,
        short,
        load.scaled(long, task=float(drawing.rng.uniform(2.0, 6.0))),
        seed=drawing.seed,
        duration_seconds=drawing.seconds,
    )


SHAPES: dict[str, Callable[[_Drawing], LoadScenario]] = {
    "steps": _steps,
    "ramps": _ramps,
    "bursts": _bursts,
    "drift": _drift,
    "mixtures": _mixtures,
}


def shape_of(scenario_name: str) -> str:
    """The first word of a scenario's name."""
    return scenario_name.split("-", 1)[0]


def draw_quota(cores: float, rng: np.random.Generator) -> float:
    """Between half a core and nearly all of them, on tenths, evenly in proportion."""
    return max(0.5, round(float(np.exp(rng.uniform(np.log(0.5), np.log(0.9 * cores)))), 1))


def _scenario(
    shape: str,
    host: Host,
    family: Family,
    *,
    rng: np.random.Generator,
    seconds: float,
    drift_spread: float = DRIFT_SPREAD,
) -> LoadScenario:
    drawn = SHAPES[shape](_Drawing(host, Shape.of(family), rng, seconds, drift_spread))
    quota = f"q{host.quota_cores:g}" if host.quota_cores is not None else "whole"
    return replace(drawn, name=f"{shape}-c{host.cores}-{quota}-{family.value}")


def suite(suite_seed: int, *, drift_spread: float = DRIFT_SPREAD) -> Suite:
    """60 scenarios: every shape on every host, without and with a quota, families in turn.

    On each host, and in each shape, every family comes up at least once. `drift_spread` alone
    widens the drifts and leaves all else as it is.
    """
    found: list[LoadScenario] = []
    for row, cores in enumerate(CORES):
        for column, shape in enumerate(SHAPES):
            for limited in (False, True):
                rng = np.random.default_rng([suite_seed, 0, len(found)])
                host = Host(cores, draw_quota(cores, rng) if limited else None)
                family = FAMILIES[(row + column + 2 * limited) % len(FAMILIES)]
                found.append(
                    _scenario(
                        shape,
                        host,
                        family,
                        rng=rng,
                        seconds=DURATION_SECONDS,
                        drift_spread=drift_spread,
                    )
                )
    return Suite("full", suite_seed, tuple(found))


def quick_suite(suite_seed: int) -> Suite:
    """Five scenarios, one a shape, on hosts of 2 to 16 cores: for continuous integration."""
    hosts = (Host(2), Host(4, 1.5), Host(8), Host(16, 6.0), Host(4))
    found = []
    for index, (shape, host) in enumerate(zip(SHAPES, hosts, strict=True)):
        rng = np.random.default_rng([suite_seed, 1, index])
        found.append(_scenario(shape, host, FAMILIES[index], rng=rng, seconds=DURATION_SECONDS / 2))
    return Suite("quick", suite_seed, tuple(found))


def steady_hours(suite_seed: int) -> Suite:
    """An hour of one load with noisy task times, for counting needless changes."""
    found: list[LoadScenario] = []
    for index, (kind, family, cores) in enumerate(
        (
            ("computing", Family.LOGNORMAL, 4),
            ("blocking", Family.PARETO, 8),
            ("dispatching", Family.EXPONENTIAL, 16),
            ("contended", Family.BIMODAL, 8),
        )
    ):
        rng = np.random.default_rng([suite_seed, 2, index])
        drawing = _Drawing(Host(cores), Shape.of(family), rng, 3600.0)
        name = f"steady-c{cores}-{kind}-{family.value}"
        found.append(LoadScenario(name, drawing.host, ((0.0, drawing.workload(kind)),), 3600.0))
    return Suite("steady", suite_seed, tuple(found))


def training_scenarios(host: Host, suite_seed: int) -> tuple[LoadScenario, ...]:
    """Two other scenarios of that very host, for what is trained on a set of its own."""
    found = []
    for index, shape in enumerate(("steps", "mixtures")):
        millicores = round(1000 * (host.quota_cores or 0.0))
        rng = np.random.default_rng([suite_seed, 3, host.cores, millicores, index])
        family = FAMILIES[int(rng.integers(len(FAMILIES)))]
        found.append(_scenario(shape, host, family, rng=rng, seconds=DURATION_SECONDS))
    return tuple(found)
