"""What a second of each pod's time is worth at a load: the prices of the static planning problem.

The planning problem (science brief 4; Harrison and Lopez, Queueing Systems 33, 1999) gives each class of
requests the pods, widths and batch sizes of most J, while no pod works more than all the time. Its dual

    min over mu >= 0 of  sum_p mu_p + sum_c rate_c * max_(p,w,b) [ J_c(p,w,b) - mu_p * seconds(p,w,b) ]

has one price mu_p a pod, in J a busy second: requests that pay it stay within the plan without being
told so. The maximum is softened (temperature in J), which makes the dual smooth, and prices follow the
excess of demand over a pod's time (multiplicative tatonnement). Refusing a request is one more choice,
so that prices stay finite above capacity. Errors are at most of the order of the temperature in J.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import FloatArray, Observation

__all__ = ["LOAD_GRID", "PriceTable", "SloClass", "fleet_capacity", "plan_choices"]
__all__ += ["nearest_class", "row_rates", "solve_prices"]

LOAD_GRID = (0.03, 0.06, 0.1, 0.14, 0.18, 0.23, 0.29, 0.36, 0.45, 0.6, 0.8, 0.95, 1.15)
"""Loads as shares of `fleet_capacity` at which prices are worked out; between them, interpolated."""
FIRST_TEMPERATURE, TEMPERATURE = 0.02, 0.0015
"""In J, of a new plan, and of one that has been refreshed a few times."""
MOST_REGRET = 1.0
"""In J; more makes no difference to a choice."""
_COOLING = 0.7
_SETTLED, _SETTLING_STEPS = 9, 500
_LEAST_PRICE = 0.3
"""Next to nothing for a batch of milliseconds; from nothing at all, factors could not raise a price."""
_MOST_PRICE = 1e4


@dataclass(frozen=True, slots=True)
class SloClass:
    """Requests with one latency objective; `share` of all."""

    slo_seconds: float
    share: float


def fleet_capacity(observation: Observation) -> float:
    """Rows a second of all pods at their cheapest width in full batches; at least 1e-9."""
    return float(row_rates(observation).sum())


def row_rates(observation: Observation) -> FloatArray:
    """(P,) rows a second of each pod at its cheapest width in full batches; 0: it takes nothing."""
    cells, mask = observation.cells, observation.mask
    most = observation.service[layout.SERVICE_MAX_BATCH_ROWS]
    row = cells[:, :, layout.CELL_ROW_SECONDS]
    seconds = row + (cells[:, :, layout.CELL_SERVICE_SECONDS] - row) / most
    least = np.where(mask, seconds, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(1.0 / np.maximum(least, 1e-9))


def plan_choices(
    observation: Observation, classes: Sequence[SloClass]
) -> tuple[FloatArray, FloatArray]:
    """(values (C, P, W*B), seconds (P, W*B)): J of a request and the pod's time a row, a choice each.

    A request of one row in a batch of b rows that starts at once; -inf where the cell may not be used.
    """
    cells, weights = observation.cells, observation.service
    caps = np.array(layout.ACTION_CAPS, dtype=np.float64)
    caps = caps[caps <= max(weights[layout.SERVICE_MAX_BATCH_ROWS], 1.0)]
    row = cells[:, :, layout.CELL_ROW_SECONDS, None]
    batch = cells[:, :, layout.CELL_SERVICE_SECONDS, None] + (caps - 1.0) * row
    pods, widths, sizes = batch.shape
    seconds = batch / caps
    accuracy = observation.widths[:, layout.WIDTH_ACCURACY]
    gain = weights[layout.SERVICE_ACCURACY_WEIGHT] * (accuracy - accuracy.min())
    watts = observation.pods[:, layout.POD_DYNAMIC_WATTS, None, None]
    own = gain[None, :, None] - weights[layout.SERVICE_ENERGY_WEIGHT] * watts * seconds
    values = np.empty((len(classes), pods, widths, sizes))
    for index, one in enumerate(classes):
        relative = batch / one.slo_seconds
        late = relative > 1.0
        values[index] = own - weights[layout.SERVICE_LATENCY_WEIGHT] * np.minimum(relative, 2.0)
        values[index] -= weights[layout.SERVICE_MISS_WEIGHT] * late
    values[:, ~observation.mask] = -np.inf
    return values.reshape(len(classes), pods, -1), seconds.reshape(pods, -1)


def solve_prices(
    values: FloatArray,
    seconds: FloatArray,
    rates: FloatArray,
    *,
    refusal: float,
    start: FloatArray | None = None,
    steps: int = 400,
    temperature: float = FIRST_TEMPERATURE,
) -> FloatArray:
    """(L, P) prices in J a busy second. `rates` (L, C): rows a second of each class at each load.

    `values` (C, P, K), `seconds` (P, K) as of `plan_choices`; `refusal` is the J of a refused request;
    `start` (L, P): where to begin. Steps shrink, so that `steps` few continue and many begin anew.
    """
    loads, pods = rates.shape[0], values.shape[1]
    prices = np.full((loads, pods), 1.0) if start is None else np.array(start)
    flat_values = np.where(np.isfinite(values), values, -1e9).reshape(values.shape[0], -1)
    usable = np.isfinite(values).any(axis=(0, 2))
    warmer = 9.0 if start is None else 0.0
    gain = 0.3 * min(1.0, temperature / FIRST_TEMPERATURE) ** 0.5
    middle, counted = np.zeros_like(prices), 0
    for step in range(steps):
        warmth = temperature * (1.0 + warmer * max(0.0, 1.0 - 2.0 * step / steps) ** 2)
        cost = (prices[:, :, None] * seconds).reshape(loads, 1, -1)
        net = flat_values[None] - cost
        best = np.maximum(net.max(axis=2, keepdims=True), refusal)
        share = np.exp((net - best) / warmth)
        total = share.sum(axis=2, keepdims=True) + np.exp((refusal - best) / warmth)
        demand = (rates[:, :, None] * share / total).sum(axis=1).reshape(loads, pods, -1)
        busy = (demand * seconds).sum(axis=2)
        rise = np.clip(busy - 1.0, -1.0, 2.0) * (gain / (1.0 + 4.0 * step / steps))
        prices = np.clip(prices * np.exp(rise), _LEAST_PRICE, _MOST_PRICE)
        if 2 * step >= steps:  # cold prices swing around the solution: their mean does not
            middle += np.log(prices)
            counted += 1
    return np.where(usable, np.exp(middle / max(counted, 1)), 0.0)


class PriceTable:
    """Prices and plans at the loads of `LOAD_GRID` for pods as they look now; refreshed now and then.

    `capacity` is in rows a second. Between two loads all is linear; beyond the last it stays.
    """

    def __init__(self, classes: Sequence[SloClass], *, hurried: bool = False) -> None:
        """hurried: a new plan is rough and gets better from refresh to refresh; else it takes its time."""
        if not classes:
            raise ValueError("classes is empty; give at least one SLO class with its share")
        self.classes = tuple(classes)
        self.capacity = 1e-9
        self._hurried = hurried
        self._temperature = FIRST_TEMPERATURE
        self.prices: FloatArray = np.zeros((len(LOAD_GRID), 0))
        self.regrets: FloatArray = np.zeros((len(LOAD_GRID), len(self.classes), 0, 0))
        """(L, C, P, W) J that a request of the class loses there against the plan; at most 0."""

    def refresh(self, observation: Observation, *, steps: int | None = None) -> None:
        """Work the prices out again; few steps where the pods are the same number as before.

        A new plan begins warm, which is soon solved roughly, and cools down from refresh to refresh:
        at once where nothing hurries (about .1 s), else over the next refreshes (.02 s, then .003 s).
        """
        new = self.prices.shape[1] != observation.mask.shape[0]
        if new and not self._hurried:
            for _ in range(_SETTLED):
                self._solve(observation, _SETTLING_STEPS)
        else:
            self._solve(observation, steps or (400 if new else 60))

    def _solve(self, observation: Observation, steps: int) -> None:
        pods, widths = observation.mask.shape
        values, seconds = plan_choices(observation, self.classes)
        self.capacity = max(fleet_capacity(observation), 1e-9)
        total = sum(one.share for one in self.classes)
        shares = np.array([one.share / total for one in self.classes])
        rates = np.outer(LOAD_GRID, shares) * self.capacity
        weights = observation.service
        same = self.prices.shape == (len(LOAD_GRID), pods)
        cooler = max(TEMPERATURE, self._temperature * _COOLING)
        self._temperature = cooler if same else FIRST_TEMPERATURE
        self.prices = solve_prices(
            values,
            seconds,
            rates,
            refusal=-float(
                2.0 * weights[layout.SERVICE_LATENCY_WEIGHT] + weights[layout.SERVICE_MISS_WEIGHT]
            ),
            start=np.maximum(self.prices, _LEAST_PRICE) if same else None,
            steps=steps,
            temperature=self._temperature,
        )
        net = values[None] - self.prices[:, None, :, None] * seconds
        best = net.reshape(len(LOAD_GRID), len(self.classes), pods, widths, -1).max(axis=4)
        top = best.max(axis=(2, 3), keepdims=True, initial=-MOST_REGRET)
        self.regrets = np.maximum(best - top, -MOST_REGRET)

    def at(self, load: float) -> FloatArray:
        """(P,) prices at a load (a share of the capacity), J a busy second."""
        low, part = grid_place(load)
        return np.asarray(self.prices[low] * (1.0 - part) + self.prices[low + 1] * part)

    def regrets_at(self, load: float, slo_seconds: float) -> FloatArray:
        """(P, W) what the class with the most similar SLO loses in each cell at a load, J."""
        low, part = grid_place(load)
        one = nearest_class(self.classes, slo_seconds)
        table = self.regrets
        return np.asarray(table[low, one] * (1.0 - part) + table[low + 1, one] * part)


def nearest_class(classes: Sequence[SloClass], slo_seconds: float) -> int:
    """The index of the class whose SLO is nearest by ratio; the first of equals."""
    distances = [abs(log(slo_seconds / one.slo_seconds)) for one in classes]
    return distances.index(min(distances))


def grid_place(load: float) -> tuple[int, float]:
    """(index of the grid's load below, part of the way to the next); clipped to the grid."""
    last = len(LOAD_GRID) - 2
    low = 0
    while low < last and load >= LOAD_GRID[low + 1]:
        low += 1
    step = LOAD_GRID[low + 1] - LOAD_GRID[low]
    return low, min(max((load - LOAD_GRID[low]) / step, 0.0), 1.0)
