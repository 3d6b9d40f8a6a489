"""The rules that a learned policy has to beat, compiled, over the very arrays that it sees.

A rule is a number (`Kind`) and a row of settings (`Setting`). All are given what a router has: telemetry
that may be old, and what it has sent itself since; none looks into a device.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from slimscale.routing.heuristics import NEAR_SECONDS, NEAR_SHARE
from slimscale.routing.learned import layout as at
from slimscale.simulate.routing.compiled import compiled, inner
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.randomness import uniform
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.view import expected_seconds, fill_observation

__all__ = ["SETTINGS", "Kind", "Setting", "WidthRule", "choose", "run_rule"]


class Kind:
    """What picks the device (and for the last four the width with it)."""

    RANDOM = 0
    """Any device; with `WidthRule.ANY` any width: the paper's baseline."""
    ROUND_ROBIN = 1
    JSQ = 2
    """Fewest rows queued or sent."""
    POWER_OF_TWO = 3
    """The sooner of two devices drawn at random."""
    SED = 4
    """Shortest expected delay, among all, or among the cells of `support`."""
    PRICED = 5
    """Most expected J less a price of the device time that it takes."""


class WidthRule:
    SLIMMEST = 0
    WIDEST = 1
    WITHIN_SLACK = 2
    """The most accurate that is expected within a share of the SLO, else the soonest."""
    ANY = 3
    """Of a random draw."""


class Setting:
    """Places in the row of settings."""

    RULE = 0
    """A `WidthRule`."""
    COLD_AWARE = 1
    """1: loading overlaps the drain, 0: it comes after."""
    SLACK_SHARE = 2
    PRICE = 3
    """J a second of the device, weighted by the drain over the SLO."""
    HOLD_SHARE = 4
    """Requests may wait for a fuller batch while the expected delay is below this share of the SLO."""
    CAP = 5
    """Most rows of a batch; 0: as many as still end in time (`slimscale.routing.expected_delay`)."""

    REFERENCE = 6
    """1: as in `slimscale.simulate.serving`: by chance among routes hardly later than the soonest, and
    an answer that is late makes its device look no busier."""


SETTINGS = 7
# Compiled code knows plain numbers only.
_RANDOM, _ROUND_ROBIN, _JSQ = Kind.RANDOM, Kind.ROUND_ROBIN, Kind.JSQ
_POWER_OF_TWO, _SED, _PRICED = Kind.POWER_OF_TWO, Kind.SED, Kind.PRICED
_SLIMMEST, _WIDEST = WidthRule.SLIMMEST, WidthRule.WIDEST
_WITHIN_SLACK, _ANY = WidthRule.WITHIN_SLACK, WidthRule.ANY
_RULE, _COLD_AWARE, _SLACK_SHARE = Setting.RULE, Setting.COLD_AWARE, Setting.SLACK_SHARE
_SLO, _SLACK = at.REQUEST_SLO_SECONDS, at.REQUEST_SLACK_SECONDS
_EVERY = cast(int, np.int64(-1))
_PRICE, _HOLD_SHARE, _CAP = Setting.PRICE, Setting.HOLD_SHARE, Setting.CAP
_REFERENCE = Setting.REFERENCE
_NEAR_SHARE, _NEAR_SECONDS = NEAR_SHARE, NEAR_SECONDS
Support = NDArray[np.bool_]


@compiled
def run_rule(plane: Plane, kind: int, setting: NDArray[np.float64], support: Support) -> None:
    """Route a whole trace by one rule. `support` (classes, devices, widths): cells that SED may use."""
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        allowed = support[requests.each[request].klass]
        device, width = choose(s, look, kind, setting, allowed)
        expected = expected_seconds(look, device, width)
        hold = 1 if expected < setting[_HOLD_SHARE] * look.request[_SLO] else 0
        cap = int(setting[_CAP])
        if cap < 1:
            cap = _cap_in_time(look, device, width, expected)
        if setting[_REFERENCE] > 0.0:
            expected = np.inf
        apply_action(s, requests, request, device, width, cap, hold, expected)


@inner
def _cap_in_time(look: Any, device: int, width: int, expected: float) -> int:
    """The largest power of two of rows whose batch ends in time, however long the request waits."""
    service = look.cells[device, width, at.CELL_SERVICE_SECONDS]
    row = look.cells[device, width, at.CELL_ROW_SECONDS]
    budget = min(look.request[at.REQUEST_SLACK_SECONDS], look.request[at.REQUEST_SLO_SECONDS])
    slack = max(budget - (expected - service), budget / 2.0) - (service - row)
    cap = 1
    while 2 * cap <= look.service[at.SERVICE_MAX_BATCH_ROWS] and 2 * cap * row <= slack:
        cap *= 2
    return cap


@inner
def choose(
    s: Any, look: Any, kind: int, setting: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[int, int]:
    """(device, width). `allowed` (devices, widths) bounds SED alone; (0, 0) where no device is there."""
    if kind == _PRICED:
        return _most_worth(look, setting)
    if kind == _SED:
        found = _soonest(s, look, setting, _EVERY, allowed)
        return found if found[0] >= 0 else _soonest_of_all(s, look, setting, _EVERY)
    device = _EVERY
    if kind == _RANDOM:
        device = _random_device(s, look)
    elif kind == _ROUND_ROBIN:
        device = _next_device(s, look)
    elif kind == _JSQ:
        device = _shortest_queue(look)
    else:
        one, other = _random_device(s, look), _random_device(s, look)
        device = one
        if look.pods[other, at.POD_DRAIN_SECONDS] < look.pods[one, at.POD_DRAIN_SECONDS]:
            device = other
    if int(setting[_RULE]) == _ANY:
        return device, _random_width(s, look, device)
    return _soonest_of_all(s, look, setting, device)


@inner
def _delay(look: Any, setting: NDArray[np.float64], device: int, width: int) -> float:
    drain = look.pods[device, at.POD_DRAIN_SECONDS]
    load = look.cells[device, width, at.CELL_LOAD_SECONDS]
    start = max(drain, load) if setting[_COLD_AWARE] > 0.0 else drain + load
    delay: float = start + look.cells[device, width, at.CELL_SERVICE_SECONDS]
    return delay


@inner
def _soonest_of_all(s: Any, look: Any, setting: NDArray[np.float64], only: int) -> tuple[int, int]:
    found = _soonest(s, look, setting, only, look.mask)
    return found if found[0] >= 0 else (0, 0)


@inner
def _soonest(
    s: Any, look: Any, setting: NDArray[np.float64], only: int, allowed: NDArray[np.bool_]
) -> tuple[int, int]:
    """By the width rule, on device `only` (-1: on any) and in the cells of `allowed`; (-1, -1): none.

    Widths come in the order of their accuracy.
    """
    devices, widths = look.mask.shape
    rule = int(setting[_RULE])
    slack = setting[_SLACK_SHARE] * min(look.request[_SLO], look.request[_SLACK])
    best_device, best_width, best = -1, -1, np.inf
    wide_device, wide_width, wide = -1, -1, np.inf
    for device in range(devices):
        if only >= 0 and device != only:
            continue
        for width in range(widths):
            if not (look.mask[device, width] and allowed[device, width]):
                continue
            delay = _delay(look, setting, device, width)
            if rule == _SLIMMEST:
                better = width < best_width or (width == best_width and delay < best)
                better = better or best_width < 0
            elif rule == _WIDEST:
                better = width > best_width or (width == best_width and delay < best)
            else:
                better = delay < best
                if delay <= slack and (
                    width > wide_width or (width == wide_width and delay < wide)
                ):
                    wide_device, wide_width, wide = device, width, delay
            if better:
                best_device, best_width, best = device, width, delay
    within = rule == _WITHIN_SLACK and wide_device >= 0
    if within:
        best_device, best_width, best = wide_device, wide_width, wide
    if setting[_REFERENCE] == 0.0 or best_device < 0:
        return best_device, best_width
    return _one_of_near(s, look, setting, only, allowed, best_width, best, within)


@inner
def _one_of_near(  # noqa: PLR0917 - compiled code is called by position
    s: Any, look: Any, setting: NDArray[np.float64], only: int, allowed: NDArray[np.bool_],
    width: int, best: float, within: bool,
) -> tuple[int, int]:  # fmt: skip
    """One of the routes of the best one's width that are hardly later, each with the same chance."""
    devices = look.mask.shape[0]
    limit = best * (1.0 + _NEAR_SHARE) + _NEAR_SECONDS
    if within:
        limit = min(limit, setting[_SLACK_SHARE] * min(look.request[_SLO], look.request[_SLACK]))
    found, seen = 0, 0.0
    for device in range(devices):
        if only >= 0 and device != only:
            continue
        fits = look.mask[device, width] and allowed[device, width]
        if fits and _delay(look, setting, device, width) <= limit:
            seen += 1.0
            if uniform(s) * seen < 1.0:
                found = device
    return found, width


@inner
def _most_worth(look: Any, setting: NDArray[np.float64]) -> tuple[int, int]:
    """Most expected J less the price of the device time, which grows with what already waits there."""
    devices, widths = look.mask.shape
    best_device, best_width, best = 0, 0, -np.inf
    for device in range(devices):
        for width in range(widths):
            if not look.mask[device, width]:
                continue
            value = _worth(look, setting, device, width)
            if value > best:
                best_device, best_width, best = device, width, value
    return best_device, best_width


@inner
def _worth(look: Any, setting: NDArray[np.float64], device: int, width: int) -> float:
    cells, service = look.cells, look.service
    slo = look.request[at.REQUEST_SLO_SECONDS]
    delay = _delay(look, setting, device, width)
    alone = cells[device, width, at.CELL_SERVICE_SECONDS]
    row = cells[device, width, at.CELL_ROW_SECONDS]
    together = min(cells[device, width, at.CELL_QUEUED_ROWS], setting[_CAP] - 1.0) + 1.0
    seconds = (alone - row) / together + row
    drain = look.pods[device, at.POD_DRAIN_SECONDS]
    late = 1.0 if delay > setting[_SLACK_SHARE] * slo else 0.0
    gain = look.widths[width, at.WIDTH_ACCURACY] - look.widths[0, at.WIDTH_ACCURACY]
    value: float = (
        service[at.SERVICE_ACCURACY_WEIGHT] * gain
        - service[at.SERVICE_LATENCY_WEIGHT] * delay / slo
        - service[at.SERVICE_ENERGY_WEIGHT] * look.pods[device, at.POD_DYNAMIC_WATTS] * seconds
        - service[at.SERVICE_MISS_WEIGHT] * late
        - setting[_PRICE] * seconds * drain / slo
    )
    return value


@inner
def _random_device(s: Any, look: Any) -> int:
    devices, _ = look.mask.shape
    there = 0
    for device in range(devices):
        there += 1 if look.mask[device].any() else 0
    if there == 0:
        return 0
    place = int(uniform(s) * there)
    for device in range(devices):
        if look.mask[device].any():
            if place == 0:
                return device
            place -= 1
    return 0


@inner
def _random_width(s: Any, look: Any, device: int) -> int:
    _, widths = look.mask.shape
    place = int(uniform(s) * look.mask[device].sum())
    for width in range(widths):
        if look.mask[device, width]:
            if place == 0:
                return width
            place -= 1
    return 0


@inner
def _next_device(s: Any, look: Any) -> int:
    devices, _ = look.mask.shape
    for step in range(devices):
        device = (s.decisions + step) % devices
        if look.mask[device].any():
            return int(device)
    return 0


@inner
def _shortest_queue(look: Any) -> int:
    devices, _ = look.mask.shape
    best, fewest = 0, np.inf
    for device in range(devices):
        if not look.mask[device].any():
            continue
        rows = look.cells[device, :, at.CELL_QUEUED_ROWS].sum()
        if rows < fewest:
            best, fewest = device, rows
    return best
