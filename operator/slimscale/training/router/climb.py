"""Random search in sparse directions on fixed traces (Rastrigin 1963): each step can only do better.

A direction moves one or two parameters. Both ways are tried on the very same traces, with the very same
arrivals, faults and noise; the better one is taken if it beats what is there, and tried further on. It
needs some thousand runs where an evolution strategy, which moves all parameters at once against noise,
needs a hundred thousand. What it finds is judged on other traces: it can learn these ones by heart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slimscale.routing.learned.observation import FloatArray

__all__ = ["ClimbSettings", "climb"]

Values = Callable[[Sequence[FloatArray]], Sequence[float]]
"""Parameters to what each is worth over all traces."""


@dataclass(frozen=True, slots=True)
class ClimbSettings:
    steps: int = 300
    spread: float = 0.45
    """Standard deviation of a move, in units of the parameters' scales."""
    least_gain: float = 0.0005
    """Of J: what is less counts as chance."""


def climb(
    start: FloatArray,
    values: Values,
    *,
    moved: Sequence[int],
    settings: ClimbSettings,
    rng: np.random.Generator,
    step_done: Callable[[int, FloatArray, float], None] = lambda _step, _best, _value: None,
) -> FloatArray:
    """The best parameters found. `moved`: the places that may change."""
    best = np.array(start, dtype=np.float64)
    most = values([best])[0]
    for step in range(settings.steps):
        direction = np.zeros_like(best)
        for place in rng.choice(np.asarray(moved), size=min(2, len(moved)), replace=False):
            direction[place] = settings.spread * rng.standard_normal()
        if rng.random() < 0.5:  # half of the moves are of one parameter
            direction[np.flatnonzero(direction)[:1]] = 0.0
        tried = [best + direction, best - direction]
        found = values(tried)
        better = int(np.argmax(found))
        if found[better] > most + settings.least_gain:
            forward = direction if better == 0 else -direction
            best, most = tried[better], found[better]
            further = [best + forward, best + 0.5 * forward]
            found = values(further)
            better = int(np.argmax(found))
            if found[better] > most + settings.least_gain:
                best, most = further[better], found[better]
        step_done(step, best, most)
    return best
