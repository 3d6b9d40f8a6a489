"""The cheapest mix of unlike pools that takes a demand: a bounded covering problem, solved exactly.

Minimise sum(cost * n) with sum(rows_per_second * n) >= demand and 0 <= n <= most. Branch and bound
over the pools in the order of cost per row; the bound fills what is left at the best cost per row of
the pools still open. A service has few pools, so the search ends at once; a cap on its nodes bounds
the worst case, and what is found by then is feasible all the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Mix", "PoolOption", "cheapest_mix", "cost_of"]

MOST_NODES = 20_000
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class PoolOption:
    """A pool that may give up to `most` pods of `rows_per_second` each."""

    name: str
    rows_per_second: float
    cost: float
    most: int


@dataclass(frozen=True, slots=True)
class Mix:
    """Pods of each pool. Not `feasible`: everything there is, and still less than the demand."""

    pods: Mapping[str, int]
    rows_per_second: float
    cost: float
    feasible: bool


def cost_of(options: Sequence[PoolOption], pods: Mapping[str, int]) -> float:
    return sum(option.cost * pods.get(option.name, 0) for option in options)


def cheapest_mix(options: Sequence[PoolOption], rows_per_second: float) -> Mix:
    """Pods of every pool; of equally cheap mixes the one with the fewest pods.

    Pools whose pods take nothing get none. A demand of 0 or less needs no pod.
    """
    nothing = dict.fromkeys((option.name for option in options), 0)
    if rows_per_second <= 0:
        return Mix(nothing, 0.0, 0.0, True)
    useful = sorted(
        (o for o in options if o.rows_per_second > 0 and o.most > 0),
        key=lambda o: (o.cost / o.rows_per_second, -o.rows_per_second),
    )
    everything = sum(o.rows_per_second * o.most for o in useful)
    if everything < rows_per_second * (1 - EPSILON):
        pods = nothing | {o.name: o.most for o in useful}
        return Mix(pods, everything, cost_of(options, pods), False)
    search = _Search(useful, rows_per_second)
    search.visit(0, rows_per_second, ())
    pods = nothing | {o.name: n for o, n in zip(useful, search.best, strict=True)}
    rate = sum(o.rows_per_second * pods[o.name] for o in useful)
    return Mix(pods, rate, cost_of(options, pods), True)


class _Search:
    """Depth first, most pods of the best pool first: the first leaf is the greedy answer."""

    def __init__(self, options: Sequence[PoolOption], demand: float) -> None:
        self._options = options
        self._nothing = EPSILON * demand
        self._nodes = 0
        self._least: tuple[float, int] = (math.inf, 0)
        self.best: tuple[int, ...] = ()
        self._rest = [
            sum(o.rows_per_second * o.most for o in options[i:]) for i in range(len(options) + 1)
        ]

    def visit(self, index: int, missing: float, chosen: tuple[int, ...]) -> None:
        self._nodes += 1
        if missing <= self._nothing:
            counts = (*chosen, *(0 for _ in range(len(self._options) - index)))
            self._offer(counts)
            return
        if missing > self._rest[index] * (1 + EPSILON):
            return
        here = self._options[index]
        spent = sum(o.cost * n for o, n in zip(self._options, chosen, strict=False))
        bound = spent + missing * here.cost / here.rows_per_second
        if bound > self._least[0] + EPSILON:
            return
        enough = max(1, math.ceil(missing / here.rows_per_second - EPSILON))
        for count in range(min(enough, here.most), -1, -1):
            if self._nodes > MOST_NODES and self.best:
                return
            self.visit(index + 1, missing - count * here.rows_per_second, (*chosen, count))

    def _offer(self, counts: tuple[int, ...]) -> None:
        cost = sum(o.cost * n for o, n in zip(self._options, counts, strict=True))
        pods = sum(counts)
        least, fewest = self._least
        if cost < least - EPSILON or (cost <= least + EPSILON and pods < fewest):
            self._least, self.best = (min(cost, least), pods), counts
