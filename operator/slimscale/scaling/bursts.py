"""Bursts that come again and again: how much to keep between them so that the SLO survives the next.

A burst is late by the time that pods take to start. What scaling would have missed is read off the
need of the last minutes: with a floor x and pods held for the stabilisation window, the capacity at
slice i is max(x, highest need of the window that ended a start-up time before i), and a slice whose
need is above it is late altogether, as its queue is everybody's. The floor is the least x at which
the late rows are within what the SLO's percentile allows. Once is chance: only needs that two
separate episodes have reached make a floor.
"""

import math
from collections.abc import Sequence

__all__ = ["recurring_floor"]

BISECTIONS = 12


def recurring_floor(
    needs: Sequence[float], *, lead: int, hold: int, apart: int, allowed: float
) -> float:
    """Rows a second to keep; 0 where nothing recurs or nothing is missed.

    `needs`: rows a second of equal slices of time, oldest first. In slices: `lead` until a pod
    serves, `hold` for which pods stay after a need, `apart` of less need between two episodes.
    `allowed`: share of the rows that may be missed.
    """
    if not needs or sum(needs) <= 0:
        return 0.0
    most = _reached_twice(needs, apart)
    held = _held(needs, max(1, lead), hold)
    budget = allowed * sum(needs)
    if _missed(needs, held, 0.0) <= budget or most <= 0:
        return 0.0
    if _missed(needs, held, most) > budget:
        return most
    low, high = 0.0, most
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _missed(needs, held, middle) <= budget else (middle, high)
    return high


def _held(needs: Sequence[float], lead: int, hold: int) -> list[float]:
    """What scaling alone has at each slice."""
    return [
        max(needs[max(0, i - lead - hold) : i - lead + 1], default=0.0) if i >= lead else math.inf
        for i in range(len(needs))
    ]


def _missed(needs: Sequence[float], held: Sequence[float], floor: float) -> float:
    pairs = zip(needs, held, strict=True)
    return sum(need for need, has in pairs if need > max(has, floor) * (1 + 1e-9))


def _reached_twice(needs: Sequence[float], apart: int) -> float:
    """The highest need that two episodes have reached, with `apart` slices below it between them."""
    for level in sorted(set(needs), reverse=True):
        episodes, below = 0, apart
        for need in needs:
            if need >= level:
                episodes += below >= apart
                below = 0
            else:
                below += 1
        if episodes >= 2:
            return level
    return 0.0
