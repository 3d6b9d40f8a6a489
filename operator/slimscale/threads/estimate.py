"""From a window to the parameters of the queueing model.

S, the dispatcher: the contract's histogram measures the holding time without the wait for it.
D, the CPU part: CPU time inside tasks. Zio, the blocking part: wall - CPU - run queue; but a
thread that waits for a lock, for an interpreter or for a throttled quota looks blocked as well, so
the figure is corrected for throttling, and it is believed only until more threads bring nothing
(`Regime.serial_seconds`) or where no CPU is short (science.md 1.4 and 6).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from slimscale.domain.decision import Confidence
from slimscale.threads.closed_network import NetworkParameters, throughput_curve
from slimscale.threads.memo import LoadPoint, Regime
from slimscale.threads.window import WorkloadWindow

__all__ = ["Estimate", "estimate_parameters"]

ASSUMED_DISPATCH_SECONDS = 20e-6
"""Where the program does not serve the histogram: a wake-up through a futex, roughly."""
CONTENDED_HANDOVER_SECONDS = 40e-6
"""Prior for what a contended hand-over costs on top: two context switches and cold caches."""
LEAST_CONTENTION, MOST_CONTENTION = 0.01, 2.0
CONTENTION_GRID = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4, 2.0)
CLEARLY_BETTER = 0.05
"""How much closer, in log throughput, a fitted contention must come than the prior."""
THROTTLED = 0.05
"""Share of throttled periods from which throttling is looked for in the blocked time."""
LIGHT_RATIO = 2.0
"""Task CPU below so many dispatch times: the tasks are light."""
BUSY_SHARE = 0.7
"""CPU use from which a process of light tasks is held up by its own hand-overs."""
STEADY_FIT = 1.02


@dataclass(frozen=True, slots=True)
class Estimate:
    """One pod's load, as the predictor takes it. Seconds a task; cores of one container."""

    parameters: NetworkParameters
    """At the CPU that the window was measured with."""
    cpu_seconds_a_task: float
    """D and S and whatever else the container burns for a task: what the quota has to pay."""
    threads: int
    tasks_per_second: float
    saturated: bool
    serial_seconds: float | None
    serial_threads: int | None
    uncertainty: float
    """Relative, of the means."""
    confidence: Confidence
    notes: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """r = Z/S, task time over dispatch time, both without queueing."""
        outside = self.parameters.blocking_seconds + self.parameters.cpu_seconds
        return outside / self.parameters.dispatch_seconds

    def stretched(self, factor: float) -> "Estimate":
        """The same load with its blocking and CPU parts longer by `factor`: for the bounds."""
        return replace(
            self,
            parameters=replace(
                self.parameters,
                blocking_seconds=self.parameters.blocking_seconds * factor,
                cpu_seconds=self.parameters.cpu_seconds * factor,
            ),
            cpu_seconds_a_task=self.cpu_seconds_a_task * factor,
        )


def estimate_parameters(
    window: WorkloadWindow, *, cores: float, node_cores: float, regime: Regime, min_tasks: int
) -> Estimate | None:
    """None where the pods serve no CPU time at all: nothing tells computing from waiting.

    `cores` is the CPU that one container may use: its quota or, without one, its node's cores.
    """
    notes: list[str] = []
    dispatch, dispatch_known = _dispatch(window, notes)
    cpu = window.task_cpu_seconds
    if cpu is None and window.cpu_seconds_a_task is not None:
        cpu = max(0.0, window.cpu_seconds_a_task - dispatch)
        notes.append("CPU a task taken from the container's use")
    if cpu is None:
        return None
    cores = max(cores, 0.001)
    blocking = _blocking(window, cpu=cpu, dispatch=dispatch, cores=cores, node_cores=node_cores,
                         notes=notes)  # fmt: skip
    if regime.floor_threads is None and _held_up_by_handover(
        window, cpu=cpu, dispatch=dispatch, cores=cores
    ):
        blocking = 0.0
        notes.append("light tasks keep the CPU busy, so their waiting is taken for contention")
    own = max(cpu, 1e-9) + dispatch
    if regime.serial_seconds is not None:
        cpu = max(0.0, cpu - regime.serial_seconds)
        notes.append(
            f"a bottleneck of {_seconds(regime.serial_seconds)} a task showed when more threads"
            " brought nothing"
        )
    parameters = NetworkParameters(
        blocking_seconds=min(blocking, 1e6),
        cpu_seconds=min(max(cpu, 1e-9), 1e6),
        dispatch_seconds=min(dispatch, 1e3),
        cpu_servers=min(max(cores, 0.001), 4096.0),
        contention_linear=_prior_contention(dispatch),
    )
    parameters = _fit_contention(parameters, regime.points, notes)
    uncertainty, confidence = _trust(
        window, min_tasks=min_tasks, complete=dispatch_known and window.task_cpu_seconds is not None
    )
    return Estimate(
        parameters=parameters,
        cpu_seconds_a_task=_cpu_a_task(window, own=own, cores=cores),
        threads=window.threads,
        tasks_per_second=window.tasks_per_second,
        saturated=window.saturated,
        serial_seconds=regime.serial_seconds,
        serial_threads=regime.serial_threads,
        uncertainty=uncertainty,
        confidence=confidence,
        notes=tuple(notes),
    )


def _dispatch(window: WorkloadWindow, notes: list[str]) -> tuple[float, bool]:
    mean, median = window.dispatch_seconds, window.dispatch_median_seconds
    if mean is None or mean <= 0:
        notes.append(f"no dispatch time served, {_seconds(ASSUMED_DISPATCH_SECONDS)} assumed")
        return ASSUMED_DISPATCH_SECONDS, False
    if median:
        # A thread that loses its CPU while it dispatches holds it for a time slice: not S.
        mean = min(mean, 3.0 * median)
    return max(mean, 1e-7), True


def _blocking(
    window: WorkloadWindow,
    *,
    cpu: float,
    dispatch: float,
    cores: float,
    node_cores: float,
    notes: list[str],
) -> float:
    """Seconds a task that it waits for something that is not a CPU."""
    wall = max(window.task_seconds, 1e-9)
    waiting = max(0.0, wall - cpu)
    if waiting <= 0.02 * wall:
        return 0.0
    if window.task_runqueue_seconds is None:
        if window.threads <= cores and (window.throttled_ratio or 0.0) < THROTTLED:
            return waiting
        notes.append("no run-queue time served: the least waiting that explains the throughput")
        return _least_blocking(window, cpu=cpu, dispatch=dispatch, cores=cores, most=waiting)
    blocked = max(0.0, waiting - window.task_runqueue_seconds)
    stopped = window.throttled_seconds_per_second
    if (window.throttled_ratio or 0.0) < THROTTLED or not stopped:
        return blocked
    return _less_throttling(window, blocked=blocked, stopped=stopped, node_cores=node_cores)


def _less_throttling(
    window: WorkloadWindow, *, blocked: float, stopped: float, node_cores: float
) -> float:
    """Take out the time in which the quota stood all runnable threads still.

    phi is the share of time for which a CPU of the group is stopped, z the share of a task that
    really waits, u the share on or queued for a CPU. What is stopped is what does not wait:
    1 = z + u + phi*(1 - z). Older kernels count the stop as run-queue time already, newer ones
    (6.18) as neither; u tells which, as it then is at least what phi predicts.
    """
    wall = max(window.task_seconds, 1e-9)
    phi = min(0.98, stopped / max(1.0, min(float(window.threads), node_cores)))
    runqueue = (window.task_runqueue_seconds or 0.0) / wall
    busy = 1.0 - blocked / wall
    apart = max(0.0, 1.0 - busy / (1.0 - phi))
    counted_already = runqueue >= 0.8 * phi * (1.0 - apart)
    return blocked if counted_already else apart * wall


def _least_blocking(
    window: WorkloadWindow, *, cpu: float, dispatch: float, cores: float, most: float
) -> float:
    """Smallest Zio with which the model gives no more than was measured (bisection)."""
    if not window.saturated:
        return most if window.threads <= cores else 0.0

    def predicted(blocking: float) -> float:
        parameters = NetworkParameters(blocking, max(cpu, 1e-9), dispatch, cores)
        return float(throughput_curve(parameters, window.threads)[-1])

    low, high = 0.0, most
    if predicted(low) <= window.tasks_per_second * STEADY_FIT:
        return 0.0
    for _ in range(20):
        middle = (low + high) / 2
        if predicted(middle) > window.tasks_per_second * STEADY_FIT:
            low = middle
        else:
            high = middle
    return high


def _held_up_by_handover(
    window: WorkloadWindow, *, cpu: float, dispatch: float, cores: float
) -> bool:
    """Light tasks on a busy CPU: the threads wait for each other, not for an engine."""
    if window.threads < 2 or cpu > LIGHT_RATIO * dispatch:
        return False
    whole = max(window.cpu_seconds_a_task or 0.0, cpu + dispatch)
    return whole * window.tasks_per_second >= BUSY_SHARE * min(1.0, cores)


def _prior_contention(dispatch: float) -> float:
    return min(MOST_CONTENTION, max(LEAST_CONTENTION, CONTENDED_HANDOVER_SECONDS / dispatch))


def _fit_contention(
    parameters: NetworkParameters, points: tuple[LoadPoint, ...], notes: list[str]
) -> NetworkParameters:
    """Refine a1 from two thread counts on the rising side, seen under one CPU and one load.

    On the falling side the model's linear growth is too steep to be fitted, and the regime's
    bounds say all that is needed there.
    """
    ordered = sorted(points, key=lambda p: p.threads)
    pair = next(
        (
            (few, many)
            for many in reversed(ordered)
            for few in ordered
            if many.threads >= 1.2 * few.threads
            and math.isclose(many.cpu_cores, few.cpu_cores, rel_tol=0.05)
            and many.tasks_per_second > few.tasks_per_second
        ),
        None,
    )
    if pair is None:
        return parameters
    few, many = pair
    measured = math.log(many.tasks_per_second / few.tasks_per_second)

    def miss(contention: float) -> float:
        candidate = replace(
            parameters, contention_linear=contention, cpu_servers=max(many.cpu_cores, 0.001)
        )
        curve = np.log(throughput_curve(candidate, many.threads))
        return abs(float(curve[many.threads - 1] - curve[few.threads - 1]) - measured)

    best = min(CONTENTION_GRID, key=miss)
    if miss(best) > miss(parameters.contention_linear) - CLEARLY_BETTER:
        return parameters
    notes.append(f"contention {best:g} fitted to {few.threads} and {many.threads} threads")
    return replace(parameters, contention_linear=best)


def _cpu_a_task(window: WorkloadWindow, *, own: float, cores: float) -> float:
    whole = window.cpu_seconds_a_task
    if whole is None:
        return own
    if not window.saturated:
        # Few tasks share the container's standing use: it must not be multiplied by the peak.
        return max(own, min(whole, 2.0 * own))
    # What was done was paid for: a quota is overdrawn for a moment, never in the long run.
    return max(own, min(whole, cores / max(window.tasks_per_second, 1e-9)))


def _trust(window: WorkloadWindow, *, min_tasks: int, complete: bool) -> tuple[float, Confidence]:
    uncertainty = min(0.5, 0.05 + 1.5 / math.sqrt(max(window.tasks, 1.0)))
    if not complete:
        return max(0.3, uncertainty), Confidence.LOW
    if window.saturated and window.tasks >= 3 * min_tasks:
        return uncertainty, Confidence.HIGH
    return max(0.1, uncertainty), Confidence.MEDIUM


def _seconds(value: float) -> str:
    if value >= 1.0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
