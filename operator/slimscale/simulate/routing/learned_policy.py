"""The learned policy as machine code: what `slimscale.routing.learned` does in NumPy, cell by cell.

Same figures, same order; a test holds the two together. Arrays are those of `layout`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from slimscale.routing.learned import features, layout
from slimscale.routing.learned.observation import FloatArray
from slimscale.routing.learned.prices import LOAD_GRID, PriceTable
from slimscale.simulate.routing.compiled import compiled
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.state import Look, Plane
from slimscale.simulate.routing.view import expected_seconds, fill_observation

__all__ = ["CELL_COUNT", "REGIME_COUNT", "choose_cell", "fill_cells", "fill_regime", "run_gate"]
__all__ += ["Plans", "plans_of", "run_policy", "score_actions"]

CELL_COUNT = len(features.CELL_FEATURES)
REGIME_COUNT = len(features.REGIME_FEATURES)
HOLD = CELL_COUNT - 1

_GRID = np.array(LOAD_GRID)
_CAPS = np.array(layout.ACTION_CAPS, dtype=np.float64)
_LOAD_REFERENCE = features.LOAD_REFERENCE
_SLO_REFERENCE = features.SLO_REFERENCE_SECONDS
_MOST_RATIO = features.MOST_RATIO
_MOST_CROWD = features.MOST_CROWD
_LATE_CENTRE, _LATE_SCALE = features.LATE_CENTRE, 1.0 / features.LATE_WIDTH
_SLACK_CENTRE, _OFF_PLAN = features.SLACK_CENTRE, features.OFF_PLAN
_PLANNED_FOR, _PLANNED_HIGH = features.PLANNED_FOR, features.PLANNED_HIGH
_LEAST_WELL = features.LEAST_WELL
_FREE_SECONDS, _CLEAR_SECONDS = features.FREE_SECONDS, features.CLEAR_SECONDS
_OVERDUE_SCALE, _AGE_SCALE = features.OVERDUE_SCALE, features.AGE_SCALE


class Plans(NamedTuple):
    """What `PriceTable` has worked out, as compiled code takes it."""

    prices: FloatArray
    regrets: FloatArray
    slos: FloatArray
    """(C,) of its classes, seconds."""
    capacity: float
    """Rows a second."""


def plans_of(table: PriceTable) -> Plans:
    slos = np.array([one.slo_seconds for one in table.classes])
    return Plans(table.prices, np.ascontiguousarray(table.regrets), slos, table.capacity)


@compiled
def _logarithm(value: float) -> float:
    return math.log(min(max(value, 0.05), 20.0))


@compiled
def _sigmoid(value: float) -> float:
    if value > 30.0:
        return 1.0
    if value < -30.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-value))


@compiled
def fill_regime(look: Look, capacity: float, out: Any) -> None:
    """`features.regime_features` into `out` (G,)."""
    pods, service = look.pods, look.service
    count = pods.shape[0]
    backlog, least, most = 0.0, np.inf, 0.0
    late, latest, age, slow = 0.0, 0.0, 0.0, 0.0
    for pod in range(count):
        drain = pods[pod, layout.POD_DRAIN_SECONDS] / _SLO_REFERENCE
        drain = drain / (1.0 + drain)
        backlog += drain
        least = min(least, drain)
        most = max(most, drain)
        overdue = pods[pod, layout.POD_OVERDUE_SECONDS] * _OVERDUE_SCALE
        overdue = overdue / (1.0 + overdue)
        late += overdue
        latest = max(latest, overdue)
        old = pods[pod, layout.POD_AGE_SECONDS] * _AGE_SCALE
        age += old / (1.0 + old)
        slow = max(slow, min(max(pods[pod, layout.POD_SLOWDOWN] - 1.0, 0.0), 4.0))
    warm = 0.0
    for pod in range(count):
        for width in range(look.cells.shape[1]):
            warm += look.cells[pod, width, layout.CELL_WARM]
    slo = max(look.request[layout.REQUEST_SLO_SECONDS], 1e-3)
    out[0] = 1.0
    planned = max(service[layout.SERVICE_PLANNED_LOAD] / capacity, 1e-9)
    burst = _logarithm(service[layout.SERVICE_ARRIVALS_FAST] / capacity / planned)
    out[1] = _logarithm(planned / _LOAD_REFERENCE)
    out[2] = burst
    out[3] = burst * burst
    out[4] = _logarithm(slo / _SLO_REFERENCE)
    out[5] = backlog / count
    out[6] = least
    out[7] = late / count
    out[8] = latest
    out[9] = age / count
    out[10] = 1.0 - warm / (count * look.cells.shape[1])
    out[11] = slow
    out[12] = _logarithm(service[layout.SERVICE_ENERGY_WEIGHT] / 0.3)
    out[13] = most - backlog / count


@compiled
def _grid_place(load: float) -> tuple[int, float]:
    last = len(_GRID) - 2
    low = 0
    while low < last and load >= _GRID[low + 1]:
        low += 1
    part = (load - _GRID[low]) / (_GRID[low + 1] - _GRID[low])
    return low, min(max(part, 0.0), 1.0)


@compiled
def _nearest_class(slos: Any, slo: float) -> int:
    nearest, least = 0, np.inf
    for klass in range(len(slos)):
        distance = abs(math.log(slo / slos[klass]))
        if distance < least:
            nearest, least = klass, distance
    return nearest


@compiled
def fill_cells(  # noqa: PLR0915 - one pass over the cells: a call each would cost a third more
    look: Look, plan: Plans, rates: Any, phi: Any, hold_caps: Any
) -> None:
    """`features.cell_features` into `phi` (P, W, K), and each cell's cap when holding (P, W).

    `rates` (P,) is overwritten: rows a second of each pod in full batches of its cheapest width.
    """
    cells, figures, mask, service = look.cells, look.pods, look.mask, look.service
    slo = max(look.request[layout.REQUEST_SLO_SECONDS], 1e-3)
    rows = look.request[layout.REQUEST_ROWS]
    spent = max(slo - look.request[layout.REQUEST_SLACK_SECONDS], 0.0)
    most_rows = service[layout.SERVICE_MAX_BATCH_ROWS]
    latency_weight = service[layout.SERVICE_LATENCY_WEIGHT]
    accuracy_weight = service[layout.SERVICE_ACCURACY_WEIGHT]
    energy_weight = service[layout.SERVICE_ENERGY_WEIGHT]
    miss_weight = service[layout.SERVICE_MISS_WEIGHT]
    fast = service[layout.SERVICE_ARRIVALS_FAST]
    per_slo = 1.0 / slo
    latency_per_slo = latency_weight * per_slo
    pods, widths = mask.shape
    klass = _nearest_class(plan.slos, slo)
    regrets, prices = plan.regrets, plan.prices
    least_accuracy = np.inf
    for width in range(widths):
        least_accuracy = min(least_accuracy, look.widths[width, layout.WIDTH_ACCURACY])
    total_rate, well_rate, waiting = 0.0, 0.0, 0.0
    per_most = 1.0 / most_rows
    for pod in range(pods):
        least = np.inf
        for width in range(widths):
            if mask[pod, width]:
                row = cells[pod, width, layout.CELL_ROW_SECONDS]
                base = cells[pod, width, layout.CELL_SERVICE_SECONDS] - row
                least = min(least, row + base * per_most)
        rates[pod] = 1.0 / max(least, 1e-9)
        total_rate += rates[pod]
        ill = 1.0 + _OVERDUE_SCALE * figures[pod, layout.POD_OVERDUE_SECONDS]
        well_rate += rates[pod] / ill
        drain = figures[pod, layout.POD_DRAIN_SECONDS] - figures[pod, layout.POD_AGE_SECONDS]
        waiting += rates[pod] * max(drain, 0.0)
    well_rate = max(well_rate, _LEAST_WELL * plan.capacity)
    extra = max(waiting / max(total_rate, 1e-9) - _FREE_SECONDS, 0.0) / _CLEAR_SECONDS
    fast_load = fast / well_rate + extra
    mean_load = service[layout.SERVICE_PLANNED_LOAD] / well_rate + extra
    load_fast = min(fast_load / _LOAD_REFERENCE, _MOST_RATIO)
    a0, p0 = _grid_place(_PLANNED_FOR * fast_load)
    a1, p1 = _grid_place(_PLANNED_HIGH * fast_load)
    a2, p2 = _grid_place(_PLANNED_FOR * mean_load)
    a3, p3 = _grid_place(_PLANNED_HIGH * mean_load)
    for pod in range(pods):
        drain = figures[pod, layout.POD_DRAIN_SECONDS]
        link = figures[pod, layout.POD_LINK_SECONDS]
        energy = energy_weight * figures[pod, layout.POD_DYNAMIC_WATTS]
        overdue = -latency_weight * min(figures[pod, layout.POD_OVERDUE_SECONDS] * per_slo, 3.0)
        slower = min(max(figures[pod, layout.POD_SLOWDOWN] - 1.0, 0.0), 4.0)
        crowd = min(drain * rates[pod], _MOST_CROWD) * load_fast * -latency_per_slo
        price = prices[a0, pod] * (1.0 - p0) + prices[a0 + 1, pod] * p0
        gap = total_rate / max(fast * rates[pod], 1e-9)
        drained = -latency_weight * min(drain * per_slo, 5.0)
        for width in range(widths):
            row = cells[pod, width, layout.CELL_ROW_SECONDS]
            base = cells[pod, width, layout.CELL_SERVICE_SECONDS] - row
            queued = cells[pod, width, layout.CELL_QUEUED_ROWS]
            load = cells[pod, width, layout.CELL_LOAD_SECONDS]
            start = max(drain, load)
            own_base = 0.0 if queued > 0.0 and queued + rows <= most_rows else base
            work = rows * row + own_base
            ratio = min((drain + work + link + spent) * per_slo, _MOST_RATIO)
            gained = look.widths[width, layout.WIDTH_ACCURACY] - least_accuracy
            phi[pod, width, 0] = accuracy_weight * gained
            phi[pod, width, 1] = -latency_weight * ratio
            phi[pod, width, 2] = -miss_weight * _sigmoid((ratio - _LATE_CENTRE) * _LATE_SCALE)
            phi[pod, width, 3] = -energy * work
            c, w = klass, width
            phi[pod, width, 4] = (
                regrets[a0, c, pod, w] * (1.0 - p0) + regrets[a0 + 1, c, pod, w] * p0
            )
            phi[pod, width, 5] = (
                regrets[a1, c, pod, w] * (1.0 - p1) + regrets[a1 + 1, c, pod, w] * p1
            )
            phi[pod, width, 6] = (
                regrets[a2, c, pod, w] * (1.0 - p2) + regrets[a2 + 1, c, pod, w] * p2
            )
            phi[pod, width, 7] = (
                regrets[a3, c, pod, w] * (1.0 - p3) + regrets[a3 + 1, c, pod, w] * p3
            )
            phi[pod, width, 8] = -price * work
            phi[pod, width, 9] = work * crowd
            phi[pod, width, 10] = overdue
            phi[pod, width, 11] = -latency_weight * min((start - drain) * per_slo, 5.0)
            phi[pod, width, 12] = -latency_weight * slower * min((base + rows * row) * per_slo, 1.0)
            phi[pod, width, 13] = drained
            phi[pod, width, 14] = -1.0 if phi[pod, width, 6] < -_OFF_PLAN else 0.0
            phi[pod, width, 15] = 0.0
            hold_caps[pod, width] = 0.0
            worth = own_base * (energy + price)
            if worth <= 0.0:
                continue
            for place in range(len(_CAPS)):
                cap = _CAPS[place]
                missing = cap - rows - queued
                if cap > most_rows or missing < 0.0:
                    continue
                wait = max(missing * gap - start - spent, 0.0)
                if start + spent + wait + base + cap * row > _SLACK_CENTRE * slo:
                    break
                gain = worth * (1.0 - 1.0 / cap) - (wait + missing * row) * latency_per_slo
                if gain > phi[pod, width, 15]:
                    phi[pod, width, 15] = gain
                    hold_caps[pod, width] = cap


@compiled
def choose_cell(look: Look, coefficients: Any, phi: Any) -> tuple[int, int, int]:
    """(pod, width, hold) of the most score that the mask allows; (-1, -1, 0): there is none."""
    best_pod, best_width, best_hold, best = -1, -1, 0, -np.inf
    mask = look.mask
    for pod in range(phi.shape[0]):
        for width in range(phi.shape[1]):
            if not mask[pod, width]:
                continue
            score = 0.0
            for k in range(HOLD):
                score += coefficients[k] * phi[pod, width, k]
            gain = coefficients[HOLD] * phi[pod, width, HOLD]
            if gain > 0.0:
                score += gain
            if score > best:
                best_pod, best_width, best = pod, width, score
                best_hold = 1 if gain > 0.0 else 0
    return best_pod, best_width, best_hold


@compiled
def regime_coefficients(start: Any, slopes: Any, regime: Any, out: Any) -> None:
    """start (K,) + slopes (K, G) g into `out` (K,)."""
    for k in range(start.shape[0]):
        total = start[k]
        for j in range(regime.shape[0]):
            total += slopes[k, j] * regime[j]
        out[k] = total


@compiled
def run_gate(plane: Plane, plan: Plans, start: Any, slopes: Any) -> None:
    """Route a whole trace by the gate's most probable actions."""
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    count = start.shape[0]
    pods, widths = look.mask.shape
    regime = np.empty(slopes.shape[1])
    coefficients = np.empty(count)
    phi = np.empty((pods, widths, count))
    caps, rates = np.empty((pods, widths)), np.empty(pods)
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        fill_regime(look, plan.capacity, regime)
        fill_cells(look, plan, rates, phi, caps)
        regime_coefficients(start, slopes, regime, coefficients)
        pod, width, hold = choose_cell(look, coefficients, phi)
        if pod < 0:
            pod, width = 0, 0
        cap = int(caps[pod, width]) if hold == 1 else s.max_rows
        apply_action(
            s, requests, request, pod, width, cap, hold, expected_seconds(look, pod, width)
        )


@compiled
def score_actions(  # noqa: PLR0917 - compiled code is called by position
    phi: Any, allowed: Any, regime: Any, coefficients: Any, hidden: Any, bias: Any, out: Any,
    units: Any, scores: Any,
) -> None:  # fmt: skip
    """Scores in J of all actions into `scores` (2 P W,); -inf where not allowed.

    `units` (P, W, H) gets the hidden units' values, for the gradient.
    """
    pods, widths = phi.shape[0], phi.shape[1]
    cells = pods * widths
    count = out.shape[0]
    for pod in range(pods):
        for width in range(widths):
            place = pod * widths + width
            scores[place] = -np.inf
            scores[cells + place] = -np.inf
            if not allowed[place]:
                continue
            score = 0.0
            for k in range(HOLD):
                score += coefficients[k] * phi[pod, width, k]
            for h in range(count):
                total = bias[h]
                for k in range(CELL_COUNT):
                    total += hidden[h, k] * phi[pod, width, k]
                for j in range(REGIME_COUNT):
                    total += hidden[h, CELL_COUNT + j] * regime[j]
                units[pod, width, h] = math.tanh(total)
                score += out[h] * units[pod, width, h]
            scores[place] = score
            if allowed[cells + place]:
                scores[cells + place] = score + coefficients[HOLD] * phi[pod, width, HOLD]


@compiled
def run_policy(  # noqa: PLR0917 - compiled code is called by position
    plane: Plane, plan: Plans, start: Any, slopes: Any, hidden: Any, bias: Any, out: Any
) -> None:
    """Route a whole trace by gate and residual (hidden (H, K + G), bias (H,), out (H,))."""
    s: Any = plane.state[0]
    requests, look = plane.requests, plane.look
    pods, widths = look.mask.shape
    cells = pods * widths
    regime, coefficients = np.empty(REGIME_COUNT), np.empty(CELL_COUNT)
    phi = np.empty((pods, widths, CELL_COUNT))
    caps, rates = np.empty((pods, widths)), np.empty(pods)
    allowed = np.zeros(2 * cells, dtype=np.bool_)
    scores = np.empty(2 * cells)
    units = np.empty((pods, widths, out.shape[0]))
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            return
        fill_observation(s, requests, request, look)
        fill_regime(look, plan.capacity, regime)
        fill_cells(look, plan, rates, phi, caps)
        regime_coefficients(start, slopes, regime, coefficients)
        for pod in range(pods):
            for width in range(widths):
                place = pod * widths + width
                allowed[place] = look.mask[pod, width]
                allowed[cells + place] = look.mask[pod, width] and caps[pod, width] > 0.0
        score_actions(phi, allowed, regime, coefficients, hidden, bias, out, units, scores)
        action = int(scores.argmax())
        place, hold = action % cells, action // cells
        pod, width = place // widths, place % widths
        cap = int(caps[pod, width]) if hold == 1 else s.max_rows
        apply_action(
            s, requests, request, pod, width, cap, hold, expected_seconds(look, pod, width)
        )
