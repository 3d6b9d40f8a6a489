"""The parts of the benchmark: settings chosen on validation traces, judged on test traces; headline; pools."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.routing.figures import WARM_UP_SECONDS
from slimscale.bench.routing.judge import (
    Cell,
    best_of,
    best_of_regime,
    best_overall,
    cell_of,
)
from slimscale.bench.routing.rules import LEARNED, Learned, Player, Rule, rules
from slimscale.bench.routing.runner import TEST_SEED, VALIDATION_SEED, Results, Store, Work
from slimscale.bench.routing.stage import Stage, draw_pool, plan_for, stage_of
from slimscale.simulate.bounds.planning import least_energy, least_service
from slimscale.simulate.bounds.scene_fleet import fleet_of
from slimscale.simulate.routing.heuristics import Kind
from slimscale.simulate.routing.scene import REGIMES, WIDTHS, Scene, six

__all__ = [
    "EQUAL_ACCURACY",
    "Headline",
    "Plan",
    "Played",
    "play_headline",
    "play_pools",
    "play_six",
]

EQUAL_ACCURACY = 0.002
"""Accuracies no further apart count as equal."""
UP_TO = 0.85
"""The highest load at which a gain is asked for."""
HEADLINE_LOADS = (0.01, 0.02, 0.05, 0.08, 0.1, 0.115, 0.15, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95)
POOL_SIZES = (16, 24, 32)
POOL_REGIMES = ("base", "burst", "fault", "real")
POOL_LOADS = (0.7,)
POOL_SECONDS_SHARE = 0.25
"""Of the other traces' length: more devices have more requests a second."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it."""

    loads: tuple[float, ...] = (0.3, 0.5, 0.7, 0.85, 0.95)
    regimes: tuple[str, ...] = tuple(REGIMES)
    validation_traces: int = 3
    test_traces: int = 10
    seconds: float = 10.0
    headline_loads: tuple[float, ...] = HEADLINE_LOADS
    pool_sizes: tuple[int, ...] = POOL_SIZES
    pool_regimes: tuple[str, ...] = POOL_REGIMES
    pool_loads: tuple[float, ...] = POOL_LOADS
    processes: int = 1
    learned: tuple[Learned, ...] = ()

    def quick(self) -> "Plan":
        return replace(
            self, loads=(0.3, 0.7), regimes=("base", "fault"), validation_traces=1, test_traces=3,
            seconds=3.0, headline_loads=(0.05, 0.3), pool_sizes=(16,), pool_regimes=("fault",),
            pool_loads=(0.5,),
        )  # fmt: skip

    def validation_seeds(self) -> tuple[int, ...]:
        return tuple(range(VALIDATION_SEED, VALIDATION_SEED + self.validation_traces))

    def test_seeds(self) -> tuple[int, ...]:
        return tuple(range(TEST_SEED, TEST_SEED + self.test_traces))


@dataclass(frozen=True, slots=True)
class Played:
    """What came of the six devices."""

    validation: tuple[Results, ...]
    test: tuple[Results, ...]
    best: dict[Cell, str]
    """By cell the rule chosen on validation traces."""
    of_regime: dict[str, str]
    overall: str
    of_family: dict[Cell, dict[str, str]]
    equal: dict[tuple[Cell, str], str]
    """(cell, learned policy) -> the best rule of the same accuracy on validation traces, if any."""
    bound: dict[Cell, float] = field(default_factory=dict)

    def of(self, cell: Cell, player: str) -> Results:
        """Raises KeyError for who has not played there."""
        for result in self.test:
            if result.player == player and cell_of(result) == cell:
                return result
        raise KeyError(f"{player} at {cell}")


def play_six(plan: Plan, store: Store, progress: TerminalProgress) -> Played:
    """Every rule on validation traces; the best of each family and the learned ones on test traces."""
    stages = [stage_of(regime, load) for regime in plan.regimes for load in plan.loads]
    everyone: list[Player] = [*rules(), *plan.learned]
    works = [
        Work(stage, player, plan.validation_seeds(), plan.seconds)
        for stage in stages
        for player in everyone
    ]
    progress.begin("validation: a rule, a regime, a load", len(works))
    seen = store.run(works, processes=plan.processes, step=progress.step)
    validation = [result for result in seen if result.family != LEARNED]
    best, of_regime = best_of(validation), best_of_regime(validation, up_to=UP_TO)
    overall = best_overall(validation)
    of_family = _families(validation)
    equal = _equally_accurate(seen)
    players = {player.name: player for player in everyone}
    works = []
    for stage in stages:
        cell = (stage.scene.regime.name, stage.load)
        names = [best[cell], of_regime[cell[0]], overall, *of_family[cell].values()]
        names += [one.name for one in plan.learned]
        names += [name for (where, _), name in equal.items() if where == cell]
        works += [
            Work(stage, players[name], plan.test_seeds(), plan.seconds)
            for name in dict.fromkeys(names)
        ]
    progress.begin("test: a policy, a regime, a load", len(works))
    test = store.run(works, processes=plan.processes, step=progress.step)
    bound = {
        (stage.scene.regime.name, stage.load): plan_for(stage.scene, stage.rate).value
        for stage in stages
    }
    return Played(tuple(seen), tuple(test), best, of_regime, overall, of_family, equal, bound)


def _families(validation: Sequence[Results]) -> dict[Cell, dict[str, str]]:
    """By cell and family the name of its best setting."""
    cells: dict[Cell, dict[str, tuple[float, str]]] = {}
    for result in validation:
        own = float(result.values("value").mean())
        row = cells.setdefault(cell_of(result), {})
        if result.family not in row or own > row[result.family][0]:
            row[result.family] = (own, result.player)
    return {cell: {f: name for f, (_, name) in row.items()} for cell, row in cells.items()}


def _equally_accurate(seen: Sequence[Results]) -> dict[tuple[Cell, str], str]:
    found: dict[tuple[Cell, str], tuple[float, str]] = {}
    for ours in (result for result in seen if result.family == LEARNED):
        accuracy = ours.values("accuracy").mean()
        for theirs in seen:
            if theirs.family == LEARNED or cell_of(theirs) != cell_of(ours):
                continue
            if abs(theirs.values("accuracy").mean() - accuracy) > EQUAL_ACCURACY:
                continue
            key, own = (cell_of(ours), ours.player), float(theirs.values("value").mean())
            if key not in found or own > found[key][0]:
                found[key] = (own, theirs.player)
    return {key: name for key, (_, name) in found.items()}


@dataclass(frozen=True, slots=True)
class Headline:
    """The paper's comparison: the slimmest width alone, against random placement."""

    results: tuple[Results, ...]
    least_seconds: dict[float, float]
    """By load, the planning problem's least latency without queueing, at the slimmest."""
    least_joules: dict[float, float]
    """Least dynamic energy of a request there."""
    random_stable_below: float
    """Share of capacity up to which random placement over devices and widths is stable."""
    random_slimmest_stable_below: float


def _thrifty(inflation: float) -> Rule:
    """Within the plan of least energy, but no batch is waited for."""
    return Rule(
        f"thrifty plan x{inflation:g}", "thrifty plan", Kind.SED, inflation=inflation, thrifty=True
    )


def _slimmest_stage(load: float) -> Stage:
    return stage_of("base", load, scene=Scene(six(), widths=WIDTHS[:1]))


def play_headline(plan: Plan, store: Store, progress: TerminalProgress) -> Headline:
    """Random over devices and widths beside everyone at the slimmest, over the whole range of load."""
    every = {rule.name: rule for rule in rules()}
    families = {"random, slimmest", "SED, slimmest", "SED, slimmest, hold", "LPsupport-SED, hold"}
    families |= {"thrifty plan, hold", "LPsupport-SED"}
    slim: list[Player] = [rule for rule in every.values() if rule.family in families]
    slim += [_thrifty(inflation) for inflation in (1.0, 1.5, 2.0)]
    works = []
    for load in plan.headline_loads:
        works.append(Work(stage_of("base", load), every["random"], plan.test_seeds(), plan.seconds))
        stage = _slimmest_stage(load)
        works += [
            Work(stage, player, plan.test_seeds(), plan.seconds)
            for player in (*slim, *plan.learned)
        ]
    progress.begin("headline: a policy, a load", len(works))
    results = store.run(works, processes=plan.processes, step=progress.step)
    seconds, joules = {}, {}
    for load in plan.headline_loads:
        stage = _slimmest_stage(load)
        fleet = fleet_of(stage.scene)
        seconds[load] = least_service(fleet, rows_per_second=stage.rate).service_seconds
        joules[load] = least_energy(fleet, rows_per_second=stage.rate).joules
    return Headline(
        tuple(results), seconds, joules, _stable_below(stage_of("base", 1.0)),
        _stable_below(_slimmest_stage(1.0)),
    )  # fmt: skip


def _stable_below(stage: Stage) -> float:
    """Random placement gives each device the same share: the slowest one, in full batches, is full first."""
    fleet = fleet_of(stage.scene)
    per_row = fleet.batch_seconds()[:, :, -1].mean(axis=1) / fleet.max_batch_rows
    return float(fleet.devices / per_row.max() / stage.rate)


def play_pools(
    plan: Plan, store: Store, progress: TerminalProgress, six_played: Played
) -> list[Results]:
    """Pools never seen: the rules that were best on six devices, and the learned policies."""
    every = {rule.name: rule for rule in rules()}
    names = [six_played.overall, *six_played.of_regime.values(), "SED, slimmest", "random"]
    names += ["cold-aware SED, widest within slack 0.8", "JSQ, slimmest"]
    chosen: list[Player] = [every[name] for name in dict.fromkeys(names)]
    chosen += plan.learned
    works = [
        Work(
            stage_of(regime, load, devices=draw_pool(size, TEST_SEED)),
            player,
            plan.test_seeds(),
            max(plan.seconds * POOL_SECONDS_SHARE, WARM_UP_SECONDS + 1.0),
        )
        for size in plan.pool_sizes
        for regime in plan.pool_regimes
        for load in plan.pool_loads
        for player in chosen
    ]
    progress.begin("pools never seen: a policy, a pool, a regime, a load", len(works))
    return store.run(works, processes=plan.processes, step=progress.step)
