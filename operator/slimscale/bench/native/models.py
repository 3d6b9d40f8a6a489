"""Curves of the closed network and of the simulator for loads whose parts are known.

A machine adds something of its own to every task: a wait for a timer ends late and costs CPU, a
dispatcher that others want is handed over by waking a thread. These are few numbers of the machine,
not of a load. They are taken from the families in `train` and hold for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.native.dataset import MeasuredCurve
from slimscale.bench.native.plan import bounded_curve
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import TimeDistribution, Waiting, Workload

__all__ = [
    "NO_COSTS",
    "MachineCosts",
    "fit_handover",
    "network_rates",
    "simulated_rates",
    "single_thread_costs",
]

FloatArray = NDArray[np.float64]

HANDOVERS_SECONDS = (0.0, 2e-6, 5e-6, 10e-6, 20e-6, 40e-6, 80e-6)
SIMULATED_TASKS = 3000


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """Seconds a task that the machine adds. 0: the load as it was asked for."""

    wake_cpu_seconds: float = 0.0
    """CPU of going to sleep and waking up, of tasks that block."""
    wake_delay_seconds: float = 0.0
    """Lateness of the wake-up beside that."""
    task_seconds: float = 0.0
    """CPU of taking, timing and counting one task."""
    handover_seconds: float = 0.0
    """CPU of handing a dispatcher that others wait for to one of them."""

    def applied(self, workload: Workload) -> Workload:
        blocks = workload.blocking.mean_seconds > 0
        cpu = workload.cpu.mean_seconds + self.task_seconds
        held = workload.dispatch.mean_seconds
        parks = workload.waiting is Waiting.PARK
        return replace(
            workload,
            cpu=_longer(workload.cpu, cpu + (self.wake_cpu_seconds if blocks else 0.0)),
            blocking=_longer(
                workload.blocking, workload.blocking.mean_seconds + self.wake_delay_seconds
            )
            if blocks
            else workload.blocking,
            contention_handover=self.handover_seconds / held if parks and held > 0 else 0.0,
        )


NO_COSTS = MachineCosts()


def _longer(time: TimeDistribution, mean_seconds: float) -> TimeDistribution:
    """The added part is nearly constant, so the variance stays and the variation falls."""
    share = (time.mean_seconds / mean_seconds) ** 2 if mean_seconds > 0 else 1.0
    return replace(
        time, mean_seconds=mean_seconds, squared_variation=time.squared_variation * share
    )


def single_thread_costs(curves: Sequence[MeasuredCurve]) -> MachineCosts:
    """Medians over the curves of what one thread took beyond what it was asked for.

    One thread never waits for another, so nothing of a curve's shape enters.
    """
    plain, cpu, late = [], [], []
    for measured in curves:
        points = [p for p in measured.points if p.threads == 1]
        tasks = sum(p.tasks for p in points)
        quota = measured.curve.quota_cores
        if not tasks or (quota is not None and quota < 1):  # one thread is throttled there
            continue
        workload = measured.curve.workload
        spent = sum(p.task_cpu_seconds for p in points) / tasks - workload.cpu.mean_seconds
        if workload.blocking.mean_seconds > 0:
            blocked = sum(p.blocked_seconds for p in points) / tasks
            cpu.append(spent)
            late.append(blocked - workload.blocking.mean_seconds)
        elif workload.cpu.mean_seconds < 200e-6:  # the drawn mean of longer ones is too uncertain
            cycle = sum(p.seconds for p in points) / tasks
            plain.append(cycle - workload.cpu.mean_seconds - workload.dispatch.mean_seconds)
    task = float(np.median(plain)) if plain else 0.0
    wake = max(0.0, float(np.median(cpu)) - task) if cpu else 0.0
    delay = max(0.0, float(np.median(late)) - wake) if late else 0.0
    return MachineCosts(wake, delay, max(0.0, task))


def fit_handover(
    curves: Sequence[MeasuredCurve], costs: MachineCosts, *, seed: int
) -> MachineCosts:
    """The hand-over with which the simulator's median error over all points is least."""

    def error(handover: float) -> float:
        tried = replace(costs, handover_seconds=handover)
        return float(
            np.median(
                np.concatenate(
                    [np.abs(np.log(simulated_rates(m, tried, seed=seed) / m.rates)) for m in curves]
                )
            )
        )

    return replace(costs, handover_seconds=min(HANDOVERS_SECONDS, key=error))


def network_rates(measured: MeasuredCurve, costs: MachineCosts) -> FloatArray:
    """The closed network at the measured counts, shape (len(threads),)."""
    workload = costs.applied(measured.curve.workload)
    curve = bounded_curve(
        workload,
        max(measured.threads),
        cores=measured.cores,
        quota_cores=measured.curve.quota_cores,
    )
    return np.asarray(curve[np.array(measured.threads) - 1], dtype=np.float64)


def simulated_rates(measured: MeasuredCurve, costs: MachineCosts, *, seed: int) -> FloatArray:
    """The simulator at the measured counts, shape (len(threads),)."""
    return measure_curve(
        costs.applied(measured.curve.workload),
        measured.host,
        measured.threads,
        seed=seed,
        tasks=SIMULATED_TASKS,
    )
