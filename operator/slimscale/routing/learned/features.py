"""What the learned router makes of an observation: a few figures of the regime, and of each cell.

Regime features g (G,) say how the service is doing: load, burstiness, age of telemetry, health, cold
widths, backlog. Cell features phi (P, W, K) are parts of a request's worth on a pod and width, each in
units of J, so that their plain sum is a priced greedy score:

    score(p, w) = sum_k c_k(g) * phi_k(p, w),      c(g) = c_0 + C g

phi are, in this order: the gain of accuracy, the latency, the chance to be late, the energy, the price
of the pod's time at the load as it is and at twice that (`prices`), the delay that the work means for
those who come next, the overdue answers, the load of a cold width, the slow-down, the drain once more
(a doubt about telemetry), whether it is off the plan for the mean load, and what holding would gain.
"""

from math import log
from typing import Final

import numpy as np

from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import FloatArray, Observation
from slimscale.routing.learned.prices import PriceTable, row_rates

__all__ = ["CELL_FEATURES", "REGIME_FEATURES", "cell_features", "regime_features"]

CELL_FEATURES: Final = (
    "accuracy", "latency", "late", "energy", "plan_fast", "plan_fast_high", "plan_mean",
    "plan_mean_high", "price", "congestion", "overdue", "cold", "slowdown", "drain", "off_plan",
    "hold",
)  # fmt: skip
REGIME_FEATURES: Final = (
    "one", "load", "burst", "burst_squared", "slo", "backlog", "least_backlog", "overdue",
    "worst_overdue", "age", "cold", "worst_slowdown", "energy_weight", "spread",
)  # fmt: skip

SLO_REFERENCE_SECONDS = 0.2
LATE_CENTRE, LATE_WIDTH = 0.9, 0.12
SLACK_CENTRE = 0.8
"""Share of the SLO by which what is held is to be done."""
OFF_PLAN = 0.01
"""J below the plan's best: cells that lose more are not in the plan for the mean load."""
PLANNED_FOR, PLANNED_HIGH = 1.2, 2.0
"""Times the measured rate for which plans are looked up: a plan for the mean itself leaves no room."""
LOAD_REFERENCE = 0.18
OVERDUE_SCALE, AGE_SCALE = 20.0, 5.0
MOST_RATIO, MOST_CROWD = 20.0, 1000.0
FREE_SECONDS, CLEAR_SECONDS = 0.02, 0.1
"""Work that waits longer than the first is to be worked off within the second."""
LEAST_WELL = 0.15
"""Of the capacity: what is left at least, however ill the pods look."""


def regime_features(observation: Observation, capacity: float) -> FloatArray:
    """(G,) of about -2 to 2. `capacity`: rows a second of all pods, as of `fleet_capacity`."""
    service, pods = observation.service, observation.pods
    slo = max(observation.request[layout.REQUEST_SLO_SECONDS], 1e-3)
    fast = service[layout.SERVICE_ARRIVALS_FAST] / capacity
    planned = max(service[layout.SERVICE_PLANNED_LOAD] / capacity, 1e-9)
    burst = _logarithm(fast / planned)
    drain = pods[:, layout.POD_DRAIN_SECONDS] * (1.0 / SLO_REFERENCE_SECONDS)
    bent = drain / (1.0 + drain)
    overdue = pods[:, layout.POD_OVERDUE_SECONDS] * OVERDUE_SCALE
    late = overdue / (1.0 + overdue)
    age = pods[:, layout.POD_AGE_SECONDS] * AGE_SCALE
    slow_down = np.minimum(np.maximum(pods[:, layout.POD_SLOWDOWN] - 1.0, 0.0), 4.0)
    mean = float(bent.mean())
    return np.array([
        1.0,
        _logarithm(planned / LOAD_REFERENCE),
        burst,
        burst * burst,
        _logarithm(slo / SLO_REFERENCE_SECONDS),
        mean,
        float(bent.min()),
        float(late.mean()),
        float(late.max()),
        float((age / (1.0 + age)).mean()),
        1.0 - float(observation.cells[:, :, layout.CELL_WARM].mean()),
        float(slow_down.max()),
        _logarithm(service[layout.SERVICE_ENERGY_WEIGHT] / 0.3),
        float(bent.max()) - mean,
    ])  # fmt: skip


def cell_features(  # noqa: PLR0915 - a list of features, one after the other
    observation: Observation, table: PriceTable, *, holding: bool = True
) -> tuple[FloatArray, FloatArray]:
    """((P, W, K), see the module's text; (P, W) each cell's cap when it holds, 0: it does not).

    What the mask leaves out is filled as well. Without `holding` the last feature and the caps are 0:
    a third less to work out.
    """
    cells, service = observation.cells, observation.service
    pods = observation.pods[:, :, None]
    slack, slo, rows, _ = observation.request.tolist()
    slo = max(slo, 1e-3)
    latency_weight = float(service[layout.SERVICE_LATENCY_WEIGHT])
    fast = float(service[layout.SERVICE_ARRIVALS_FAST])
    planned = float(service[layout.SERVICE_PLANNED_LOAD])
    row = cells[:, :, layout.CELL_ROW_SECONDS]
    base = cells[:, :, layout.CELL_SERVICE_SECONDS] - row
    queued = cells[:, :, layout.CELL_QUEUED_ROWS]
    load = cells[:, :, layout.CELL_LOAD_SECONDS]
    drain = pods[:, layout.POD_DRAIN_SECONDS]
    start = np.maximum(drain, load)
    joins = (queued > 0.0) & (queued + rows <= service[layout.SERVICE_MAX_BATCH_ROWS])
    own_base = np.where(joins, 0.0, base)
    work = rows * row + own_base
    spent = max(slo - slack, 0.0)
    delay = drain + work + (pods[:, layout.POD_LINK_SECONDS] + spent)
    ratio = np.minimum(delay * (1.0 / slo), MOST_RATIO)
    rates = row_rates(observation)[:, None]
    well = _well_rate(observation, rates[:, 0], table.capacity)
    extra = _backlog_load(observation.pods, rates[:, 0])
    fast_load, mean_load = fast / well + extra, planned / well + extra
    price = table.at(PLANNED_FOR * fast_load)[:, None]
    energy = service[layout.SERVICE_ENERGY_WEIGHT] * pods[:, layout.POD_DYNAMIC_WATTS]
    load_fast = min(fast_load / LOAD_REFERENCE, MOST_RATIO)
    per_slo = latency_weight / slo
    crowd = np.minimum(drain * rates, MOST_CROWD)
    slower = np.minimum(np.maximum(pods[:, layout.POD_SLOWDOWN] - 1.0, 0.0), 4.0)
    accuracy = observation.widths[:, layout.WIDTH_ACCURACY]
    phi = np.empty((*row.shape, len(CELL_FEATURES)))
    phi[:, :, 0] = service[layout.SERVICE_ACCURACY_WEIGHT] * (accuracy - accuracy.min())
    phi[:, :, 1] = ratio * -latency_weight
    late = _sigmoid((ratio - LATE_CENTRE) * (1.0 / LATE_WIDTH))
    phi[:, :, 2] = late * -service[layout.SERVICE_MISS_WEIGHT]
    phi[:, :, 3] = work * -energy
    phi[:, :, 4] = table.regrets_at(PLANNED_FOR * fast_load, slo)
    phi[:, :, 5] = table.regrets_at(PLANNED_HIGH * fast_load, slo)
    phi[:, :, 6] = table.regrets_at(PLANNED_FOR * mean_load, slo)
    phi[:, :, 7] = table.regrets_at(PLANNED_HIGH * mean_load, slo)
    phi[:, :, 8] = work * -price
    phi[:, :, 9] = work * crowd * (-per_slo * load_fast)
    phi[:, :, 10] = (
        np.minimum(pods[:, layout.POD_OVERDUE_SECONDS] * (1.0 / slo), 3.0) * -latency_weight
    )
    phi[:, :, 11] = np.minimum((start - drain) * (1.0 / slo), 5.0) * -latency_weight
    phi[:, :, 12] = slower * np.minimum((base + rows * row) * (1.0 / slo), 1.0) * -latency_weight
    phi[:, :, 13] = np.minimum(drain * (1.0 / slo), 5.0) * -latency_weight
    phi[:, :, 14] = np.where(phi[:, :, 6] < -OFF_PLAN, -1.0, 0.0)
    if not holding:
        phi[:, :, 15] = 0.0
        return phi, np.zeros(row.shape)
    gap = rates.sum() / np.maximum(rates * fast, 1e-9)
    phi[:, :, 15], caps = _holding(
        base, row, own_base * (energy + price), queued + rows, start + spent, gap, slo, latency_weight,
        service[layout.SERVICE_MAX_BATCH_ROWS],
    )  # fmt: skip
    return phi, caps


def _well_rate(observation: Observation, rates: FloatArray, capacity: float) -> float:
    """Rows a second of what is well: a pod whose answers are late counts for less of its own rate.

    Plans are looked up at the load on that: where a fast pod stalls, the others go to narrower widths.
    """
    ill = 1.0 + OVERDUE_SCALE * observation.pods[:, layout.POD_OVERDUE_SECONDS]
    return max(float((rates / ill).sum()), LEAST_WELL * capacity)


def _backlog_load(pods: FloatArray, rates: FloatArray) -> float:
    """The load, as a share of the capacity, that works off in CLEAR_SECONDS what waits too long.

    What was sent since the last telemetry has been worked on since: old telemetry is no backlog.
    """
    drain = np.maximum(pods[:, layout.POD_DRAIN_SECONDS] - pods[:, layout.POD_AGE_SECONDS], 0.0)
    mean = float((drain * rates).sum()) / max(float(rates.sum()), 1e-9)
    return max(mean - FREE_SECONDS, 0.0) / CLEAR_SECONDS


def _holding(  # noqa: PLR0917 - one call, columns of the same table
    base: FloatArray,
    row: FloatArray,
    worth: FloatArray,
    rows: FloatArray,
    start: FloatArray,
    gap: FloatArray,
    slo: float,
    latency_weight: float,
    most_rows: float,
) -> tuple[FloatArray, FloatArray]:
    """Waiting for a batch of a cap: what it saves of the base (J), less what the wait costs."""
    caps = _CAPS[: int(np.searchsorted(_CAPS, most_rows, side="right"))]
    missing = caps - rows[:, :, None]
    wait = np.maximum(missing * gap[:, :, None] - start[:, :, None], 0.0)
    extra = missing * row[:, :, None]
    end = start[:, :, None] + wait + base[:, :, None] + caps * row[:, :, None]
    gain = worth[:, :, None] * (1.0 - 1.0 / caps) - (wait + extra) * (latency_weight / slo)
    gain = np.where((missing >= 0.0) & (end <= SLACK_CENTRE * slo), gain, 0.0)
    best = gain.argmax(axis=2)
    most = np.take_along_axis(gain, best[:, :, None], axis=2)[:, :, 0]
    return np.maximum(most, 0.0), np.where(most > 0.0, caps[best], 0.0)


_CAPS = np.array(layout.ACTION_CAPS, dtype=np.float64)


def _sigmoid(values: FloatArray) -> FloatArray:
    """1/(1 + e^-x), clipped to +-30."""
    return np.asarray(1.0 / (1.0 + np.exp(np.clip(-values, -30.0, 30.0))))


def _logarithm(value: float) -> float:
    """Of a ratio, clipped to +-3."""
    return log(min(max(value, 0.05), 20.0))
