"""An evolution strategy on J itself (Salimans et al. 2017, arXiv 1703.03864): few parameters, common noise.

Each step draws cases, runs mirrored perturbations of the parameters on the very same arrivals, faults
and service noise (common random numbers), and moves along the difference of their ranks. Values are
compared within a case, so that a case that runs away does not drown the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from slimscale.routing.learned.observation import FloatArray
from slimscale.training.router.adam import Adam

__all__ = ["EvolutionSettings", "evolve"]

CaseT = TypeVar("CaseT")


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    steps: int = 200
    pairs: int = 16
    cases: int = 12
    spread: float = 0.1
    """Standard deviation of a perturbation, in units of the parameters' scales."""
    rate: float = 0.02
    """Of Adam's first step; falls to a tenth."""
    floor: float = 0.02
    """Of J: spreads below it count as noise."""


def evolve(
    start: FloatArray,
    draw: Callable[[int], Sequence[CaseT]],
    value: Callable[[FloatArray, CaseT], float],
    *,
    settings: EvolutionSettings,
    rng: np.random.Generator,
    scale: FloatArray | None = None,
    step_done: Callable[[int, FloatArray, float], None] = lambda _step, _mean, _value: None,
) -> FloatArray:
    """The parameters after `settings.steps`. `draw(step)` gives the step's cases.

    `scale`: by how much each parameter is perturbed, 1 for all by default. Returned is the mean of the
    last quarter's parameters (Polyak and Juditsky 1992), which noise has been averaged out of.
    """
    mean = np.array(start, dtype=np.float64)
    scale = np.ones_like(mean) if scale is None else scale
    adam = Adam(len(mean))
    averaged, count = np.zeros_like(mean), 0
    for step in range(settings.steps):
        cases = draw(step)
        noise = rng.standard_normal((settings.pairs, len(mean)))
        values = np.empty((2 * settings.pairs, len(cases)))
        for pair in range(settings.pairs):
            move = settings.spread * scale * noise[pair]
            for place, case in enumerate(cases):
                values[2 * pair, place] = value(mean + move, case)
                values[2 * pair + 1, place] = value(mean - move, case)
        score = _standing(values, settings.floor)
        weight = (score[0::2] - score[1::2]) / 2.0
        gradient = (weight[:, None] * noise).mean(axis=0)
        part = step / max(settings.steps - 1, 1)
        mean = mean + scale * adam.step(gradient, settings.rate * (1.0 - 0.9 * part))
        if step >= 0.75 * settings.steps:
            averaged += mean
            count += 1
        step_done(step, mean, float(values.mean()))
    return averaged / count if count else mean


def _standing(values: FloatArray, floor: float) -> FloatArray:
    """(members,) how well each did over the cases, each case on its own scale, clipped to +-2."""
    centre = np.median(values, axis=0)
    spread = np.median(np.abs(values - centre), axis=0) * 1.5 + floor
    return np.asarray(np.clip((values - centre) / spread, -2.0, 2.0).mean(axis=1))
