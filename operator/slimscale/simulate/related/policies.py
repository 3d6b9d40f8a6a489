"""Whole traces under the policies of related systems: the compiled twins of `slimscale.routing.related`.

Each `run_*` routes what is left of a plane's trace. They see what every rule sees (`fill_observation`)
and learn from what the router hears of: answers that have come, and time that devices have been busy.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.routing.batching_table import BatchingTable
from slimscale.routing.learned import layout as at
from slimscale.simulate.routing.compiled import compiled, inner
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.heuristics import SETTINGS, Kind, Setting, WidthRule, choose
from slimscale.simulate.routing.mixture import run_mixture
from slimscale.simulate.routing.randomness import uniform
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.view import expected_seconds, fill_observation

__all__ = ["RELATED", "Run", "rule_setting", "run_held", "with_table"]

Run = Callable[[Plane], None]
"""Routes all that is left of a plane's trace."""
FloatArray = NDArray[np.float64]

_SPT, _LWKR, _DELAY = 0, 1, 2
_DRAIN, _WATTS = at.POD_DRAIN_SECONDS, at.POD_DYNAMIC_WATTS
_SERVICE, _ROW, _QUEUED, _LOAD = (
    at.CELL_SERVICE_SECONDS, at.CELL_ROW_SECONDS, at.CELL_QUEUED_ROWS, at.CELL_LOAD_SECONDS
)  # fmt: skip
_ENERGY, _LATENCY_WEIGHT = at.SERVICE_ENERGY_WEIGHT, at.SERVICE_LATENCY_WEIGHT
_SLO = at.REQUEST_SLO_SECONDS
_SED, _JSQ = Kind.SED, Kind.JSQ
_CAP = 32
_HEADROOM = 0.8
_FRAME_SECONDS, _FRAME_RATE, _DISCOUNT = 0.5, 0.3, 0.45
_RATE_SECONDS = 1.0
_MIXTURE_RATE = 0.02


def rule_setting(rule: int = WidthRule.WITHIN_SLACK, *, cold_aware: bool = True) -> FloatArray:
    """A row of settings for the rules of `simulate.routing.heuristics`; slack is .8 of the SLO."""
    setting = np.zeros(SETTINGS)
    setting[Setting.RULE], setting[Setting.COLD_AWARE] = rule, float(cold_aware)
    setting[Setting.SLACK_SHARE], setting[Setting.CAP] = _HEADROOM, _CAP
    return setting


# ---- holding by the batching table


@inner
def _place(axis: FloatArray, value: float) -> int:
    """As `BatchingTable` does: the last point at or below the value."""
    found = 0
    for index in range(len(axis)):
        if axis[index] <= value * (1.0 + 1e-9):
            found = index
    return found


@compiled
def _limit(  # noqa: PLR0917 - compiled code is called by position
    shares: FloatArray, loads: FloatArray, costs: FloatArray, limits: NDArray[np.int64],
    base: float, row: float, rate: float, cost: float,
) -> int:  # fmt: skip
    if base + row <= 0.0 or rate <= 0.0 or cost <= 0.0:
        return 1
    load = rate * (base + row * _CAP) / _CAP
    limit: int = limits[
        _place(shares, base / (base + row)), _place(loads, load), _place(costs, cost)
    ]
    return limit


@compiled
def run_held(  # noqa: PLR0917 - compiled code is called by position
    plane: Plane, kind: int, setting: FloatArray, support: NDArray[np.bool_],
    shares: FloatArray, loads: FloatArray, costs: FloatArray, limits: NDArray[np.int64],
) -> None:  # fmt: skip
    """A rule, whose requests hold until as many rows are queued as the batching table says.

    The request that makes the queue that long is the one that may not wait, which starts the batch.
    """
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    devices, widths = look.mask.shape
    counted = np.zeros((devices, widths))
    seen = np.zeros((devices, widths))
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        device, width = choose(s, look, kind, setting, support[requests.each[request].klass])
        gap = s.now - seen[device, width]
        seen[device, width] = s.now
        counted[device, width] = counted[device, width] * math.exp(-gap / _RATE_SECONDS) + 1.0
        rate = counted[device, width] / _RATE_SECONDS
        row = look.cells[device, width, _ROW]
        base = look.cells[device, width, _SERVICE] - row
        cost = look.service[_ENERGY] * look.pods[device, _WATTS] * look.request[_SLO]
        cost /= look.service[_LATENCY_WEIGHT]
        limit = _limit(shares, loads, costs, limits, base, row, rate, cost)
        hold = 1 if look.cells[device, width, _QUEUED] + 1.0 < limit else 0
        expected = expected_seconds(look, device, width)
        apply_action(s, requests, request, device, width, _CAP, hold, expected)


def with_table(
    table: BatchingTable,
    *,
    kind: int = Kind.SED,
    setting: FloatArray | None = None,
    support: NDArray[np.bool_] | None = None,
) -> Run:
    """A rule (ours: SED, widest within slack) whose batches wait as `table` says."""
    chosen = rule_setting() if setting is None else setting
    shares, loads, costs = (
        np.asarray(axis) for axis in (table.base_shares, table.loads, table.busy_costs)
    )
    limits = np.asarray(table.limits, dtype=np.int64)

    def run(plane: Plane) -> None:
        allowed = _everything(plane, support)
        run_held(plane, kind, chosen, allowed, shares, loads, costs, limits)

    return run


def _everything(plane: Plane, support: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    if support is not None:
        return support
    return np.ones((int(plane.state["classes"][0]), *plane.look.mask.shape), dtype=np.bool_)


# ---- rules


@inner
def _score(look: Any, kind: int, device: int, width: int) -> float:
    """What the rule looks at when it picks a device; less is better."""
    if kind == _SPT:
        return float(look.cells[device, width, _SERVICE])
    return float(look.pods[device, _DRAIN])


@compiled
def run_priority(plane: Plane, kind: int) -> None:
    """SPT: the least service, whatever waits there; LWKR: the least work before it. Within slack."""
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    devices, widths = look.mask.shape
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        slack = _HEADROOM * look.request[_SLO]
        best_device, best_width, best = 0, 0, np.inf
        for wide in range(widths):
            width = widths - 1 - wide  # the widest within slack, else the slimmest
            for device in range(devices):
                if not look.mask[device, width]:
                    continue
                scored = _score(look, kind, device, width)
                judged = scored if kind == _SPT else expected_seconds(look, device, width)
                if scored < best and (judged <= slack or width == 0):
                    best_device, best_width, best = device, width, scored
            if best < np.inf:
                break
        expected = expected_seconds(look, best_device, best_width)
        apply_action(s, requests, request, best_device, best_width, _CAP, 0, expected)


@compiled
def run_delay_timers(plane: Plane, share: float) -> None:
    """The widest width within slack: warm while the wait there is within the timer, else cold.

    The timer is `share` times what going to a cold device costs (1: the ski rental's).
    """
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    widths = look.mask.shape[1]
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        slack = _HEADROOM * look.request[_SLO]
        chosen, width, delay = 0, 0, np.inf
        for wide in range(widths):
            width = widths - 1 - wide
            chosen, delay = _warm_or_cold(look, width, share)
            if chosen >= 0 and delay <= slack:
                break
        apply_action(s, requests, request, max(chosen, 0), width, _CAP, 0, delay)


@inner
def _warm_or_cold(look: Any, width: int, share: float) -> tuple[int, float]:
    """(device, expected seconds); -1 where none may take it."""
    warm, cold = -1, -1
    least_warm, least_cold = np.inf, np.inf
    for device in range(look.mask.shape[0]):
        if not look.mask[device, width]:
            continue
        delay = expected_seconds(look, device, width)
        if look.cells[device, width, _LOAD] > 0.0:
            if delay < least_cold:
                cold, least_cold = device, delay
        elif delay < least_warm:
            warm, least_warm = device, delay
    if warm < 0 or cold < 0:
        return (warm, least_warm) if cold < 0 else (cold, least_cold)
    move = look.cells[cold, width, _LOAD] + look.cells[cold, width, _SERVICE]
    if look.pods[warm, _DRAIN] > share * move:
        return cold, least_cold
    return warm, least_warm


# ---- what learns


@inner
def _softmax_pick(weights: FloatArray, shares: FloatArray, draw: float) -> int:
    """Fills `shares`; the index that the draw falls on."""
    highest = weights.max()
    total = 0.0
    for index in range(len(weights)):
        shares[index] = math.exp(weights[index] - highest)
        total += shares[index]
    passed, picked = 0.0, len(weights) - 1
    for index in range(len(weights)):
        shares[index] /= total
        passed += shares[index]
        if draw < passed and picked == len(weights) - 1:
            picked = index
            draw = 2.0
    return picked


@compiled
def run_two_time_scales(plane: Plane, setting: FloatArray, balance: float) -> None:
    """KaiS-like: each half second a learnt choice of the widest width that dispatch (SED) may use."""
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    devices, widths = look.mask.shape
    classes = s.classes
    plans = widths
    weights, traces, shares = np.zeros(plans), np.zeros(plans), np.zeros(plans)
    busy = s.busy_seconds.copy()
    plan, mean, frame_ends = plans - 1, np.nan, _FRAME_SECONDS
    learnt = 0
    failed = 0
    total = 0
    allowed = np.ones((devices, widths), dtype=np.bool_)
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        while learnt < s.next_request and requests.each[learnt].done == 1:
            slo = s.slo[requests.each[learnt].klass % classes]
            total += 1
            failed += 1 if requests.each[learnt].latency > slo else 0
            learnt += 1
        if s.now >= frame_ends:
            spread, middle = 0.0, 0.0
            for device in range(devices):
                middle += (s.busy_seconds[device] - busy[device]) / _FRAME_SECONDS / devices
            for device in range(devices):
                used = (s.busy_seconds[device] - busy[device]) / _FRAME_SECONDS
                spread += (used - middle) ** 2 / devices
            reward = math.exp(-failed / max(total, 1)) + balance * math.exp(-math.sqrt(spread))
            if math.isnan(mean):
                mean = reward
            advantage = reward - mean
            mean += 0.1 * advantage
            _softmax_pick(weights, shares, 0.0)
            for index in range(plans):
                slope = (1.0 if index == plan else 0.0) - shares[index]
                traces[index] = _DISCOUNT * traces[index] + slope
                moved = weights[index] + _FRAME_RATE * advantage * traces[index]
                weights[index] = max(-5.0, min(5.0, moved))
            plan = _softmax_pick(weights, shares, uniform(s))
            for width in range(widths):
                allowed[:, width] = width <= plan
            busy[:] = s.busy_seconds
            frame_ends = s.now + _FRAME_SECONDS
            failed = 0
            total = 0
        fill_observation(s, requests, request, look)
        device, width = choose(s, look, _SED, setting, allowed)
        expected = expected_seconds(look, device, width)
        apply_action(s, requests, request, device, width, _CAP, 0, expected)


def _mixture(plane: Plane) -> None:
    """Of SED within slack, the slimmest by SED, the slimmest by JSQ, and a tight slack."""
    tight = rule_setting()
    tight[Setting.SLACK_SHARE] = 0.3
    slimmest = rule_setting(WidthRule.SLIMMEST)
    kinds = np.asarray([_SED, _SED, _JSQ, _SED], dtype=np.int64)
    settings = np.stack([rule_setting(), slimmest, slimmest, tight])
    run_mixture(plane, kinds, settings, _MIXTURE_RATE)


def _two_time_scales(plane: Plane, balance: float) -> None:
    run_two_time_scales(plane, rule_setting(), balance)


RELATED: Mapping[str, Run] = {
    "SPT": lambda plane: run_priority(plane, _SPT),
    "LWKR": lambda plane: run_priority(plane, _LWKR),
    "delay timers": lambda plane: run_delay_timers(plane, 1.0),
    "two time scales": partial(_two_time_scales, balance=1.0),
    "two time scales, misses alone": partial(_two_time_scales, balance=0.0),
    "mixture": _mixture,
}
"""By the names of the tables; each runs a whole trace. `with_table` makes one that holds."""
