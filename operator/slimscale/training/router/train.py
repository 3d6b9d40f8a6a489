"""Trains the shipped policy: a direct search and PPO from the best heuristic, several seeds.

For each seed: the search moves the gate on J itself (few parameters, common random numbers): a climb in
sparse directions, or an evolution strategy. PPO goes on from there, gate and residual. The validation
traces say which of the two is kept.
Of the seeds the one in the middle on the validation traces is shipped: what a further run is likely to
give. Training, validation and test traces have different seeds.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

import numpy as np

from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.observation import FloatArray
from slimscale.routing.learned.weights import PolicyWeights, Residual
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.training.router.climb import ClimbSettings, climb
from slimscale.training.router.evolution import EvolutionSettings, evolve
from slimscale.training.router.gate import SEARCHED, Gate, first_gate, value_of
from slimscale.training.router.learn import LearnSettings, Progress, learn
from slimscale.training.router.policy_value import value_of_policy
from slimscale.training.router.scenes import Case, case_of, draw_case

__all__ = ["SeedResult", "TrainSettings", "facts_of", "median_result", "train_seeds"]
__all__ += ["validation_cases"]

VALIDATION_SEED, TEST_SEED = 10_000, 20_000
"""Of the first validation and test trace; training draws its own below 2**31 from other streams."""
JUDGED_LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
JUDGED_REGIMES = ("base", "stale", "burst", "fault", "cold", "real")


@dataclass(frozen=True, slots=True)
class TrainSettings:
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    search: str = "climb"
    """Or "evolution"."""
    climbing: ClimbSettings = field(default_factory=ClimbSettings)
    climbing_traces: int = 3
    """For each regime, at two loads."""
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)
    learning: LearnSettings = field(default_factory=LearnSettings)
    seconds: float = 3.5
    """Of a training trace."""
    units: int = 0
    """Hidden units of the residual; 0: the gate alone."""
    sharpness: float = 60.0
    validation_traces: int = 2
    validation_seconds: float = 6.0
    processes: int = 2

    def quick(self) -> "TrainSettings":
        """A run of seconds, to see that it runs; what it gives is worth nothing."""
        return replace(
            self,
            seeds=self.seeds[:1],
            climbing=replace(self.climbing, steps=2),
            climbing_traces=1,
            evolution=replace(self.evolution, steps=2, pairs=2, cases=2),
            learning=replace(self.learning, iterations=2, cases=2, seconds=1.5),
            seconds=1.5,
            validation_traces=1,
            validation_seconds=1.5,
            processes=1,
        )


@dataclass(frozen=True, slots=True)
class SeedResult:
    seed: int
    weights: PolicyWeights
    searched: float
    """Mean J over the validation cases after the direct search."""
    learned: float
    """The same after PPO."""
    kept: str
    """Which of the two `weights` are: "search" or "ppo"."""
    decisions: int
    """Seen in training, simulated by both."""
    seconds: float


def validation_cases(settings: TrainSettings) -> Iterable[Case]:
    """Every judged regime and load, on the known fleet."""
    for name in JUDGED_REGIMES:
        scene = Scene(devices=six(), regime=REGIMES[name])
        for load in JUDGED_LOADS:
            for trace in range(settings.validation_traces):
                yield case_of(
                    scene,
                    load=load,
                    seconds=settings.validation_seconds,
                    seed=VALIDATION_SEED + trace,
                )


def train_seeds(
    settings: TrainSettings, told: Callable[[int, str, int, int, float], None]
) -> list[SeedResult]:
    """All seeds, `settings.processes` at once. `told(seed, stage, step, steps, J)` says how far."""
    context = get_context("spawn")
    with context.Manager() as manager:
        messages: Any = manager.Queue()
        with context.Pool(min(settings.processes, len(settings.seeds))) as pool:
            running = [
                pool.apply_async(_train_one, (seed, settings, messages)) for seed in settings.seeds
            ]
            while not all(one.ready() for one in running):
                _pass_on(messages, told)
            _pass_on(messages, told)
            return [one.get() for one in running]


def _pass_on(
    messages: "Queue[tuple[int, str, int, int, float]]", told: Callable[..., None]
) -> None:
    try:
        while True:
            told(*messages.get(timeout=0.5))
    except Empty:
        return


def _train_one(seed: int, settings: TrainSettings, messages: Any) -> SeedResult:
    began = time.monotonic()
    find = _climbed if settings.search == "climb" else _evolved
    vector, seen = find(seed, settings, messages)
    gate = Gate.from_vector(vector)
    searched = PolicyWeights(
        f"search-{seed}", gate.start, gate.slopes, _residual(settings.units, seed),
        settings.sharpness,
    )  # fmt: skip
    last: Progress | None = None

    def learned_step(progress: Progress) -> None:
        nonlocal last
        last = progress
        steps = settings.learning.iterations
        messages.put((seed, "ppo", progress.iteration + 1, steps, progress.value))

    learned = learn(
        searched, settings.learning, rng=np.random.default_rng((seed, 3)), told=learned_step
    )
    cases = list(validation_cases(settings))
    values = [
        float(np.mean([value_of_policy(weights, case) for case in cases]))
        for weights in (searched, learned)
    ]
    better = values[1] > values[0]
    return SeedResult(
        seed=seed,
        weights=replace(learned if better else searched, version=f"router-seed-{seed}"),
        searched=values[0],
        learned=values[1],
        kept="ppo" if better else "search",
        decisions=seen + (last.decisions if last is not None else 0),
        seconds=time.monotonic() - began,
    )


CLIMBED_SEED = 30_000
CLIMBED_LOADS = ((0.4, 0.7), (0.5, 0.85))
"""In trouble, and in calm, where the differences between plans show at higher loads."""
CALM_WEIGHT = 1.5
"""Of the regimes in which a heuristic is nearly as good as can be: nothing may be lost there."""


def _climbed(seed: int, settings: TrainSettings, messages: Any) -> tuple[FloatArray, int]:
    """(parameters, decisions simulated)."""
    cases: list[tuple[float, Case]] = []
    for name in JUDGED_REGIMES:
        calm = name in {"base", "stale", "cold"}
        for load in CLIMBED_LOADS[name in {"base", "stale"}]:
            for trace in range(settings.climbing_traces):
                number = CLIMBED_SEED + 100 * seed + trace
                scene = Scene(devices=six(), regime=REGIMES[name])
                case = case_of(scene, load=load, seconds=settings.seconds, seed=number)
                cases.append((CALM_WEIGHT if calm else 1.0, case))
    fleets = np.random.default_rng((seed, 5))
    cases += [
        (1.0, draw_case(fleets, seconds=settings.seconds, known_share=0.0))
        for _ in range(2 * settings.climbing_traces)
    ]
    total = sum(weight for weight, _ in cases)
    seen = 0

    def values(tried: Sequence[FloatArray]) -> list[float]:
        nonlocal seen
        seen += len(tried) * sum(len(case.trace.arrival) for _, case in cases)
        gates = [Gate.from_vector(one) for one in tried]
        return [
            sum(weight * value_of(gate, case) for weight, case in cases) / total for gate in gates
        ]

    found = climb(
        first_gate().vector(),
        values,
        moved=np.flatnonzero(SEARCHED).tolist(),
        settings=settings.climbing,
        rng=np.random.default_rng((seed, 2)),
        step_done=lambda step, _best, value: messages.put(
            (seed, "climb", step + 1, settings.climbing.steps, value)
        ),
    )
    return found, seen


def _evolved(seed: int, settings: TrainSettings, messages: Any) -> tuple[FloatArray, int]:
    """(parameters, decisions simulated)."""
    rng = np.random.default_rng((seed, 1))
    seen = 0

    def draw(_step: int) -> Sequence[Case]:
        nonlocal seen
        cases = [draw_case(rng, seconds=settings.seconds) for _ in range(settings.evolution.cases)]
        seen += 2 * settings.evolution.pairs * sum(len(case.trace.arrival) for case in cases)
        return cases

    found = evolve(
        first_gate().vector(),
        draw,
        lambda parameters, case: value_of(Gate.from_vector(parameters), case),
        settings=settings.evolution,
        rng=np.random.default_rng((seed, 2)),
        scale=SEARCHED,
        step_done=lambda step, _mean, value: messages.put(
            (seed, "evolution", step + 1, settings.evolution.steps, value)
        ),
    )
    return found, seen


def _residual(units: int, seed: int) -> Residual | None:
    """Small weights, and an output of nothing: the policy begins as the gate."""
    if units == 0:
        return None
    rng = np.random.default_rng((seed, 4))
    inputs = len(CELL_FEATURES) + len(REGIME_FEATURES)
    return Residual(
        rng.normal(0.0, 1.0 / np.sqrt(inputs), (units, inputs)), np.zeros(units), np.zeros(units)
    )


def median_result(results: Sequence[SeedResult]) -> SeedResult:
    """The one in the middle on the validation traces (the lower of two)."""
    ranked = sorted(results, key=lambda one: max(one.searched, one.learned))
    return ranked[(len(ranked) - 1) // 2]


def facts_of(results: Sequence[SeedResult], settings: TrainSettings) -> dict[str, object]:
    """For the card: how it was trained, and what every seed reached."""
    return {
        "trained": {
            "command": "python -m slimscale.training.router train",
            "search": settings.search,
            "search_steps": (
                settings.climbing.steps if settings.search == "climb" else settings.evolution.steps
            ),
            "ppo_iterations": settings.learning.iterations,
            "ppo_cases": settings.learning.cases,
            "cores": os.cpu_count(),
        },
        "seeds": [
            {
                "seed": one.seed,
                "validation_value_after_search": round(one.searched, 4),
                "validation_value_after_ppo": round(one.learned, 4),
                "kept": one.kept,
                "decisions": one.decisions,
                "seconds": round(one.seconds),
            }
            for one in results
        ],
    }
