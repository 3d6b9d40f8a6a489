"""Choose threads and CPU together: the least CPU, then the fewest threads, that are enough."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.api.quantity import parse_quantity
from slimscale.api.simworkload import (
    ControlledValues,
    LimitPolicy,
    Objective,
    ObjectiveType,
    SimWorkloadSpec,
)
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import QosClass
from slimscale.threads.bounds import CpuBounds, Standing
from slimscale.threads.predictor import Surface

__all__ = ["Choice", "choose", "cpu_candidates", "request_for", "with_resources"]

MOST_CANDIDATES = 28
FINE_STEP, COARSE_STEP, FINE_BELOW = 100, 250, 1000
APART_MILLICORES = 10
"""Between request and limit of a Burstable pod that equality would make Guaranteed."""

FOR_FEWER_THREADS = 1 / 3
"""Share of the tolerance that threads may use up: a CPU is worth throughput, a thread that waits is
worth little, and where the model takes the curve for too flat the loss comes on top."""

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Choice:
    threads: int
    cpu_cores: float
    tasks_per_second: float
    best_tasks_per_second: float
    """Of all candidates: what the tolerance is measured from."""
    reached: bool
    """False: a TargetThroughput that no candidate gives; then the best there is."""
    demand_cores: float


def cpu_candidates(bounds: CpuBounds, standing: Standing, policy: LimitPolicy) -> tuple[float, ...]:
    """Cores, ascending: the present limit and a grid of 100m (250m from one core on)."""
    if not bounds.adjustable:
        cores = standing.cores
        return (cores if math.isfinite(cores) else 1.0,)
    if policy is LimitPolicy.EQUAL_THREADS:
        whole = [c * 1000 for c in range(1, bounds.most // 1000 + 1) if c * 1000 >= bounds.least]
        millicores = set(whole or [bounds.most])
    else:
        millicores = {bounds.least, bounds.most}
        limit = standing.resources.cpu_limit_millicores
        if limit is not None and bounds.least <= limit <= bounds.most:
            millicores.add(limit)
        step = bounds.least
        while step < bounds.most:
            width = FINE_STEP if step < FINE_BELOW else COARSE_STEP
            # Evenly in proportion on large machines, on round figures everywhere.
            grown = max(step + width, step * 1.1 if step > 2000 else 0)
            step = int(math.floor(grown / width) * width)
            if step < bounds.most:
                millicores.add(step)
    ordered = sorted(millicores)
    if len(ordered) > MOST_CANDIDATES:
        keep = {ordered[round(i)] for i in np.linspace(0, len(ordered) - 1, MOST_CANDIDATES)}
        limit = standing.resources.cpu_limit_millicores
        ordered = [m for m in ordered if m in keep or m == limit]
    return tuple(m / 1000.0 for m in ordered)


def choose(
    surface: Surface, spec: SimWorkloadSpec, bounds: CpuBounds, *, least: int, most: int
) -> Choice:
    """Pick from the surface within `least`..`most` threads (inclusive)."""
    rates = surface.tasks_per_second[:, : max(most, 1)]
    least = min(least, rates.shape[1])
    allowed = _allowed(surface, rates, spec, bounds)
    allowed[:, : least - 1] = False
    if not allowed.any():
        allowed[-1, least - 1 :] = True
    masked = np.where(allowed, rates, -np.inf)
    best = float(masked.max())
    row, reached = _row_and_goal(masked, spec.objective, surface.cpu_cores)
    goal = _goal(masked[row], spec.objective)
    column = int(np.argmax(masked[row] >= goal * (1 - 1e-9)))
    if spec.objective.type is ObjectiveType.EFFICIENCY:
        column = _worthwhile(masked[row], spec.objective.tolerance_percent / 100.0)
    rate = float(rates[row, column])
    return Choice(
        threads=column + 1,
        cpu_cores=surface.cpu_cores[row],
        tasks_per_second=rate,
        best_tasks_per_second=best,
        reached=reached,
        demand_cores=rate * surface.cpu_seconds_a_task,
    )


def _allowed(
    surface: Surface, rates: NDArray[np.float64], spec: SimWorkloadSpec, bounds: CpuBounds
) -> BoolArray:
    """Which (CPU, threads) the limit policy admits."""
    cores = np.asarray(surface.cpu_cores)[:, np.newaxis]
    threads = np.arange(1, rates.shape[1] + 1)[np.newaxis, :]
    if not bounds.adjustable:
        return np.ones(rates.shape, dtype=np.bool_)
    if spec.cpu.limit_policy is LimitPolicy.EQUAL_THREADS:
        return np.asarray((np.abs(cores - threads) < 1e-9) | ((cores < 1) & (threads == 1)))
    if spec.cpu.limit_policy is LimitPolicy.HEADROOM:
        wanted = rates * surface.cpu_seconds_a_task * (1 + spec.cpu.headroom_percent / 100.0)
        return np.asarray(cores >= np.minimum(wanted, bounds.most / 1000.0) - 1e-9)
    return np.ones(rates.shape, dtype=np.bool_)


def _goal(row: NDArray[np.float64], objective: Objective) -> float:
    tolerance = objective.tolerance_percent / 100.0
    top = float(row.max())
    if objective.type is ObjectiveType.TARGET_THROUGHPUT:
        return min(_wanted(objective) * (1 - tolerance), top)
    return top * (1 - tolerance * FOR_FEWER_THREADS)


def _wanted(objective: Objective) -> float:
    return float(parse_quantity(objective.tasks_per_second or "1"))


def _row_and_goal(
    masked: NDArray[np.float64], objective: Objective, cpu_cores: tuple[float, ...]
) -> tuple[int, bool]:
    """Index of the least CPU that is enough, and whether the objective is reached at all."""
    tops = masked.max(axis=1)
    tolerance = objective.tolerance_percent / 100.0
    best = float(tops.max())
    if objective.type is ObjectiveType.EFFICIENCY:
        row = int(np.argmax(np.isfinite(tops)))
        for candidate in range(row + 1, len(cpu_cores)):
            # A step of ten per cent more CPU has to bring `tolerance` more work; others in ratio.
            growth = cpu_cores[candidate] / cpu_cores[row] - 1
            if tops[candidate] / tops[row] - 1 >= tolerance * max(growth, 1e-9) / 0.1:
                row = candidate
        return row, True
    wanted = best if objective.type is ObjectiveType.MAX_THROUGHPUT else _wanted(objective)
    enough = tops >= wanted * (1 - tolerance) * (1 - 1e-9)
    if enough.any():
        return int(np.argmax(enough)), True
    return int(np.argmax(tops >= best * (1 - 1e-9))), False


def _worthwhile(row: NDArray[np.float64], tolerance: float) -> int:
    """Add threads while the next one brings at least `tolerance` of the present rate."""
    first = int(np.argmax(np.isfinite(row)))
    column = first
    while column + 1 < len(row) and np.isfinite(row[column + 1]):
        if row[column + 1] / row[column] - 1 < max(tolerance, 1e-6):
            break
        column += 1
    return column


def with_resources(
    threads: int, limit_millicores: int | None, spec: SimWorkloadSpec, standing: Standing
) -> PodTarget:
    """The target with the request that goes with its limit; None leaves both as they are."""
    if limit_millicores is None:
        return PodTarget(threads)
    return PodTarget(threads, request_for(limit_millicores, spec, standing), limit_millicores)


def request_for(limit_millicores: int, spec: SimWorkloadSpec, standing: Standing) -> int | None:
    """The request moves in proportion and the QoS class stays. None: it is not touched."""
    if spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY:
        return None
    if standing.qos_class is QosClass.GUARANTEED:
        return limit_millicores
    request, limit = (
        standing.resources.cpu_request_millicores,
        standing.resources.cpu_limit_millicores,
    )
    if request is None:
        return None
    wanted = round(request * limit_millicores / limit) if limit else request
    most = limit_millicores
    if standing.equality_makes_guaranteed:
        most = max(1, limit_millicores - APART_MILLICORES)
    return max(1, min(wanted, most))
