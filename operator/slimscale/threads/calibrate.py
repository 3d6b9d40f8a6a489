"""What was measured in this load overrules what is predicted, where it was measured.

The logarithm of measured over predicted throughput is interpolated over the logarithm of the
thread count between the points of the load's memory and kept beyond them. So the surface passes
through what is known, keeps the model's shape between, and a count that was tried and did worse
is not wished back. Below `TRUSTED` a difference is noise and is left alone.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.memo import LoadPoint
from slimscale.threads.predictor import Surface

__all__ = ["best_known", "through_measured"]

FloatArray = NDArray[np.float64]

TRUSTED = 0.05
"""Log ratio up to which prediction and measurement agree."""
SAME_CPU = 0.05


def through_measured(surface: Surface, points: tuple[LoadPoint, ...], *, cores: float) -> Surface:
    """The surface moved onto the points measured on about `cores` CPUs; same shape.

    The correction found there holds for the other CPU values too, within the CPU's own bound
    (T <= C over CPU a task). Two points are needed: one alone the predictor has met already.
    """
    row = int(np.argmin(np.abs(np.asarray(surface.cpu_cores) - cores)))
    columns = surface.tasks_per_second.shape[1]
    known = {
        p.threads: p.tasks_per_second
        for p in points
        if p.threads <= columns and abs(p.cpu_cores - cores) <= SAME_CPU * cores
    }
    if len(known) < 2:
        return surface
    threads = np.array(sorted(known), dtype=np.float64)
    measured = np.array([known[int(k)] for k in threads])
    residual = np.log(measured / surface.tasks_per_second[row, threads.astype(int) - 1])
    residual = np.sign(residual) * np.maximum(np.abs(residual) - TRUSTED, 0.0)
    grid = np.log(np.arange(1, columns + 1, dtype=np.float64))
    moved = surface.tasks_per_second * np.exp(np.interp(grid, np.log(threads), residual))
    bound = np.asarray(surface.cpu_cores)[:, np.newaxis] / max(surface.cpu_seconds_a_task, 1e-12)
    bound = np.maximum(bound, surface.tasks_per_second)
    return replace(surface, tasks_per_second=np.minimum(moved, bound))


def best_known(
    chosen: int, rates: FloatArray, points: tuple[LoadPoint, ...], *, hysteresis: float
) -> int:
    """`chosen`, or the best measured count where moving from there is not worth it.

    `rates` are the tasks a second of 1, 2, ... threads as predicted, (K,), for the CPU that the
    points were measured with. A count that was
    measured is worth what was measured, another what is predicted: it must promise more than
    `hysteresis` (a share) above the best measured one, as any change does (`guards.weigh`).
    """
    known = {p.threads: p.tasks_per_second for p in points if p.threads <= len(rates)}
    if not known:
        return chosen
    best = max(known, key=lambda threads: known[threads])
    if chosen in known:
        return chosen if known[chosen] * (1.0 + hysteresis) >= known[best] else best
    return chosen if rates[chosen - 1] > (1.0 + hysteresis) * known[best] else best
