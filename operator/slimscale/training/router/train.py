"""Trains the shipped policy: an evolution strategy and PPO from the best heuristic, several seeds.

For each seed: the evolution strategy moves the gate on J itself (few parameters, common random
numbers); PPO goes on from there, gate and residual; the validation traces say which of the two is kept.
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
    evolved: float
    """Mean J over the validation cases after the evolution strategy."""
    learned: float
    """The same after PPO."""
    kept: str
    """Which of the two `weights` are: "evolution" or "ppo"."""
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
    seen = 0

    def evolved_step(step: int, _mean: FloatArray, value: float) -> None:
        messages.put((seed, "evolution", step + 1, settings.evolution.steps, value))

    rng = np.random.default_rng((seed, 1))

    def draw(_step: int) -> Sequence[Case]:
        nonlocal seen
        cases = [draw_case(rng, seconds=settings.seconds) for _ in range(settings.evolution.cases)]
        seen += 2 * settings.evolution.pairs * sum(len(case.trace.arrival) for case in cases)
        return cases

    vector = evolve(
        first_gate().vector(),
        draw,
        lambda parameters, case: value_of(Gate.from_vector(parameters), case),
        settings=settings.evolution,
        rng=np.random.default_rng((seed, 2)),
        scale=SEARCHED,
        step_done=evolved_step,
    )
    gate = Gate.from_vector(vector)
    evolved = PolicyWeights(
        f"evolution-{seed}", gate.start, gate.slopes, _residual(settings.units, seed),
        settings.sharpness,
    )  # fmt: skip
    last: Progress | None = None

    def learned_step(progress: Progress) -> None:
        nonlocal last
        last = progress
        steps = settings.learning.iterations
        messages.put((seed, "ppo", progress.iteration + 1, steps, progress.value))

    learned = learn(
        evolved, settings.learning, rng=np.random.default_rng((seed, 3)), told=learned_step
    )
    cases = list(validation_cases(settings))
    values = [
        float(np.mean([value_of_policy(weights, case) for case in cases]))
        for weights in (evolved, learned)
    ]
    better = values[1] > values[0]
    return SeedResult(
        seed=seed,
        weights=replace(learned if better else evolved, version=f"router-seed-{seed}"),
        evolved=values[0],
        learned=values[1],
        kept="ppo" if better else "evolution",
        decisions=seen + (last.decisions if last is not None else 0),
        seconds=time.monotonic() - began,
    )


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
    ranked = sorted(results, key=lambda one: max(one.evolved, one.learned))
    return ranked[(len(ranked) - 1) // 2]


def facts_of(results: Sequence[SeedResult], settings: TrainSettings) -> dict[str, object]:
    """For the card: how it was trained, and what every seed reached."""
    return {
        "trained": {
            "command": "python -m slimscale.training.router train",
            "evolution_steps": settings.evolution.steps,
            "evolution_pairs": settings.evolution.pairs,
            "evolution_cases": settings.evolution.cases,
            "ppo_iterations": settings.learning.iterations,
            "ppo_cases": settings.learning.cases,
            "cores": os.cpu_count(),
        },
        "seeds": [
            {
                "seed": one.seed,
                "validation_value_after_evolution": round(one.evolved, 4),
                "validation_value_after_ppo": round(one.learned, 4),
                "kept": one.kept,
                "decisions": one.decisions,
                "seconds": round(one.seconds),
            }
            for one in results
        ],
    }
