"""What the router sees of a simulated plane: the learned router's arrays, with telemetry as old as it is.

The twin of `slimscale.routing.learned.observation`, which fills the same arrays from the views of pods.
"""

import math
from typing import Any

import numpy as np

from slimscale.routing.learned import layout as at
from slimscale.simulate.routing.compiled import compiled, inner
from slimscale.simulate.routing.state import SNAPSHOTS, WIDTHS, Look, Requests

__all__ = ["expected_seconds", "fill_observation"]

_LEAST_FILLED = 0.1

_SERVICE, _ROW, _QUEUED = at.CELL_SERVICE_SECONDS, at.CELL_ROW_SECONDS, at.CELL_QUEUED_ROWS
_WARM, _LOAD = at.CELL_WARM, at.CELL_LOAD_SECONDS
_DRAIN, _AGE, _IN_FLIGHT = at.POD_DRAIN_SECONDS, at.POD_AGE_SECONDS, at.POD_IN_FLIGHT_ROWS
_OVERDUE, _EJECTED, _WATTS = at.POD_OVERDUE_SECONDS, at.POD_EJECTED, at.POD_DYNAMIC_WATTS
_SLOWDOWN, _LINK = at.POD_SLOWDOWN, at.POD_LINK_SECONDS


@compiled
def fill_observation(s: Any, q: Requests, request: int, look: Look) -> None:
    """Bring the plane's `look` up to date: what the router sees as it routes `request` now."""
    one = q.each[request]
    for device in range(s.devices):
        _fill_device(s, q, device, look)
    if s.mask_changed == 1 or s.min_accuracy[one.klass] != s.min_accuracy[s.mask_class]:
        _fill_mask(s, one.klass, look)
    slo = s.slo[one.klass]
    slack = one.arrival + s.drop_ratio * slo - s.now
    look.request[at.REQUEST_SLACK_SECONDS] = max(0.0, slack)
    look.request[at.REQUEST_SLO_SECONDS] = slo
    look.request[at.REQUEST_ROWS] = 1.0
    look.request[at.REQUEST_MIN_ACCURACY] = s.min_accuracy[one.klass]
    _fill_service(s, look)


@inner
def _fill_mask(s: Any, klass: int, look: Look) -> None:
    s.mask_changed = 0
    s.mask_class = klass
    for device in range(s.devices):
        for width in range(s.widths):
            accurate = s.accuracy[width] >= s.min_accuracy[klass]
            look.mask[device, width] = s.down[device] == 0 and accurate


@inner
def _fill_device(s: Any, q: Requests, device: int, look: Look) -> None:
    known = s.known[device]
    if known < s.told[device]:
        while known < s.told[device] and (
            known <= s.told[device] - SNAPSHOTS
            or s.told_at[device, (known + 1) % SNAPSHOTS] + s.delay <= s.now
        ):
            known += 1
        if known != s.known[device]:
            s.known[device] = known
            s.changed[device] = 1
    if s.changed[device] == 1:
        _fill_cells(s, device, look)
    age = s.now - s.known_at[device]
    oldest = s.open_head[device]
    overdue = 0.0
    if oldest >= 0:
        while oldest >= 0 and q.each[oldest].done == 1:
            oldest = q.each[oldest].open_following
        s.open_head[device] = oldest
        if oldest >= 0:
            overdue = max(0.0, s.now - q.each[oldest].expected_at)
    drain = max(0.0, s.known_backlog[device] - age) + s.flight_seconds[device]
    look.pods[device, _DRAIN] = drain + overdue
    look.pods[device, _AGE] = age
    look.pods[device, _OVERDUE] = overdue
    look.pods[device, _EJECTED] = np.float64(s.down[device])
    look.pods[device, _SLOWDOWN] = s.slowdown[device]


@inner
def _fill_cells(s: Any, device: int, look: Look) -> None:
    """What changes with telemetry, and with what the router sends."""
    s.changed[device] = 0
    place = s.known[device] % SNAPSHOTS
    first = place * WIDTHS
    s.known_at[device] = s.told_at[device, place]
    s.known_backlog[device] = s.told_backlog[device, place]
    in_flight, seconds = 0.0, 0.0
    for width in range(s.widths):
        scale = s.told_scale[device, first + width]
        base, row = s.base[device, width] * scale, s.row[device, width] * scale
        sent = max(0.0, s.sent[device, width] - s.told_received[device, first + width])
        if sent > 0.0:
            in_flight += sent
            seconds += math.ceil(sent / s.max_rows) * base + sent * row
        load = s.told_load[device, first + width]
        look.cells[device, width, _SERVICE] = base + row
        look.cells[device, width, _ROW] = row
        look.cells[device, width, _QUEUED] = s.told_queued[device, first + width] + sent
        look.cells[device, width, _WARM] = 0.0 if load > 0.0 else 1.0
        look.cells[device, width, _LOAD] = load
    s.flight_seconds[device] = seconds
    look.pods[device, _IN_FLIGHT] = in_flight
    look.pods[device, _WATTS] = s.dynamic_watts[device]
    look.pods[device, _LINK] = 0.0


@inner
def _fill_service(s: Any, look: Look) -> None:
    """Rates as `slimscale.routing.learned.arrivals` gives them."""
    gap = s.now - s.rate_at
    fast, slow = s.rate_fast, s.rate_slow
    if gap > 0.0:
        fast *= math.exp(-gap / at.FAST_SECONDS)
        slow *= math.exp(-gap / at.SLOW_SECONDS)
    fast /= _filled(s.now - s.rate_began, at.FAST_SECONDS)
    slow /= _filled(s.now - s.rate_began, at.SLOW_SECONDS)
    service = look.service
    service[at.SERVICE_ARRIVALS_FAST] = fast
    service[at.SERVICE_ARRIVALS_SLOW] = slow
    service[at.SERVICE_BURSTINESS] = fast / slow if slow > 0.0 else 1.0
    service[at.SERVICE_PLANNED_LOAD] = s.planned_load if s.planned_load > 0.0 else slow


@inner
def _filled(age: float, horizon: float) -> float:
    if age > 40.0 * horizon:  # to the last bit of a float
        return 1.0
    return max(1.0 - math.exp(-age / horizon), _LEAST_FILLED)


@compiled
def expected_seconds(look: Look, device: int, width: int) -> float:
    """Until the answer to one row, loading overlapping the drain (cold-aware)."""
    start = max(look.pods[device, _DRAIN], look.cells[device, width, _LOAD])
    delay: float = start + look.cells[device, width, _SERVICE] + look.pods[device, _LINK]
    return delay
