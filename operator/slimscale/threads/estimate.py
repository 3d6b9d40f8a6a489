"""From a window to the parameters of the queueing model.

S, the dispatcher: the contract's histogram measures the holding time without the wait for it.
D, the CPU part: CPU time inside tasks. Zio, the blocking part: wall - CPU - run queue; but a
thread that waits for a lock, for an interpreter or for a throttled quota looks blocked as well, so
the figure is corrected for throttling, and it is believed only until more threads bring nothing
(`Regime.serial_seconds`) or where no CPU is short (docs/model.md 3 and 4).
"""

import math
from dataclasses import dataclass, replace

from slimscale.domain.decision import Confidence
from slimscale.threads.closed_network import MAX_THREADS, NetworkParameters, throughput_curve
from slimscale.threads.curve_table import throughput_table
from slimscale.threads.memo import LoadPoint, Regime
from slimscale.threads.window import WorkloadWindow

__all__ = ["Estimate", "crowd_at_dispatcher", "estimate_parameters"]

ASSUMED_DISPATCH_SECONDS = 20e-6
"""Where the program does not serve the histogram: a wake-up through a futex, roughly."""
CONTENDED_HANDOVER_SECONDS = 60e-6
"""Prior for what a contended hand-over costs on top: two context switches, cold caches, and for an
interpreter its lock. Measured on light tasks: 16 threads do 1/1.3 of one thread's work."""
MOST_HANDOVER = 2.0
HANDOVER_GRID = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4, 2.0)
QUEUE_SEEN = 2.0
"""Threads at the dispatcher from which its contended speed can be read off the throughput."""
HEAVY_TAILED = 4.0
"""Squared variation of task times that a mean of few of them must allow for."""
NOISE_SIGMAS = 2.5
CLEARLY_BETTER = 0.03
"""How much closer, in log throughput, a fitted hand-over must come than the prior."""
THROTTLED = 0.05
"""Share of throttled periods from which throttling is looked for in the blocked time."""
LIGHT_RATIO = 2.0
"""Task CPU below so many dispatch times: the tasks are light."""
BUSY_SHARE = 0.7
"""CPU use from which a process of light tasks is held up by its own hand-overs."""
STEADY_FIT = 1.02
INLINE_ABOVE = 2.0
"""Served dispatch time over what one thread can have paid, from which it pays none at all."""
APART, ALIKE = 1.8, 0.3
"""Ratio of two thread counts, and log ratio of the waits of a task there that count as the same."""
SHARE_NOISE = 0.05
"""How far measured CPU and throughput may be off together."""


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
    alone_per_second: float | None
    """Throughput of one thread that runs its tasks itself: no hand-over is in it."""
    points: tuple[LoadPoint, ...]
    """What was measured in this load at about this CPU."""
    crowd_seen: bool
    """The contention was read off this window: it holds for the load from now on."""
    uncertainty: float
    """Relative, of the means."""
    confidence: Confidence
    notes: tuple[str, ...]
    window: WorkloadWindow | None = None
    """What all this was read from: learned predictors look at its shape. None: made by hand."""
    node_cores: float | None = None
    """Of the smallest node that runs a pod; a quota lets threads burst to these."""
    held_seconds: float | None = None
    """The dispatcher's holding time in this window, with the crowd that was there."""
    blocked_seconds: float | None = None
    """A task's wall less CPU and run queue, before any of it was taken for contention."""
    waits_are_real: bool = False
    """Another thread count in this load waited as long a task."""
    waits_are_doubted: bool = False
    """They were taken for contention by their looks alone: nothing has been measured for it yet."""

    @property
    def point(self) -> LoadPoint:
        """What this window says of its thread count, for the load's memory."""
        window = self.window
        crowd = self.threads - self.tasks_per_second * window.task_seconds if window else None
        return LoadPoint(
            self.threads,
            round(self.parameters.cpu_servers, 3),
            self.tasks_per_second,
            dispatch_seconds=self.held_seconds,
            blocked_seconds=self.blocked_seconds,
            crowd=max(0.0, crowd) if crowd is not None else None,
            cpu_seconds=window.task_cpu_seconds or None if window else None,
        )

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
    window: WorkloadWindow,
    *,
    cores: float,
    node_cores: float,
    regime: Regime,
    min_tasks: int,
    contention: bool = True,
) -> Estimate | None:
    """None where the pods serve no CPU time at all: nothing tells computing from waiting.

    `cores` is the CPU that one container may use: its quota or, without one, its node's cores.
    Without `contention` its fit, most of the work, is left out: for a look at a task's parts.
    """
    notes: list[str] = []
    if window.threads > MAX_THREADS:  # a program that came with more: the curve ends here
        window = replace(window, threads=MAX_THREADS)
    cpu = window.task_cpu_seconds
    served = _dispatch(window, notes, cpu=cpu or 0.0)
    dispatch = served.seconds
    if cpu is None and window.cpu_seconds_a_task is not None:
        cpu = max(0.0, window.cpu_seconds_a_task - dispatch)
        notes.append("CPU a task taken from the container's use")
    if cpu is None:
        return None
    cores = max(cores, 0.001)
    blocking = _blocking(window, cpu=cpu, dispatch=dispatch, cores=cores, node_cores=node_cores,
                         notes=notes)  # fmt: skip
    blocked = blocking
    alike, apart = _waits_elsewhere(regime, window, blocked)
    real = regime.waits_are_real or alike
    doubted = False
    if (
        not real
        and regime.floor_threads is None
        and _held_up_by_handover(window, cpu=cpu, dispatch=dispatch, cores=cores)
    ):
        blocking, doubted = 0.0, not apart
        notes.append("light tasks keep the CPU busy, so their waiting is taken for contention")
    own = max(cpu, 1e-9) + dispatch
    held = dispatch
    dispatch = _uncrowded(dispatch, window, regime)
    handed_over = max(dispatch, served.alone_seconds)
    alone = window.tasks_per_second if handed_over > INLINE_ABOVE * dispatch else None
    if alone is not None:
        dispatch = handed_over
        notes.append(
            f"one thread runs its tasks itself; more would take {_seconds(dispatch)} to hand over"
        )
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
        contention_handover=min(MOST_HANDOVER, CONTENDED_HANDOVER_SECONDS / dispatch),
    )
    if contention and regime.serial_seconds is None:
        parameters = _with_contention(parameters, window, regime, notes)
    uncertainty, confidence = _trust(
        window, min_tasks=min_tasks, complete=served.known and window.task_cpu_seconds is not None
    )
    return Estimate(
        parameters=parameters,
        cpu_seconds_a_task=_cpu_a_task(window, own=own, cores=cores),
        threads=window.threads,
        tasks_per_second=window.tasks_per_second,
        saturated=window.saturated,
        serial_seconds=regime.serial_seconds,
        serial_threads=regime.serial_threads,
        alone_per_second=alone,
        points=_same_cpu(regime.points, cores),
        crowd_seen=regime.serial_seconds is None and crowd_at_dispatcher(window) is not None,
        uncertainty=uncertainty,
        confidence=confidence,
        notes=tuple(notes),
        window=window,
        node_cores=node_cores,
        held_seconds=held,
        blocked_seconds=blocked,
        waits_are_real=real,
        waits_are_doubted=doubted,
    )


def _waits_elsewhere(regime: Regime, window: WorkloadWindow, blocked: float) -> tuple[bool, bool]:
    """(another thread count waited as long a task, some other thread count is known).

    Waits that do not grow with the threads are for an engine, not for each other.
    """
    known = False
    for point in regime.points:
        apart = max(point.threads, window.threads) / max(1, min(point.threads, window.threads))
        seen = point.blocked_seconds or 0.0
        if apart < APART:
            continue
        known = True
        if min(seen, blocked) > 0 and abs(math.log(seen / blocked)) < ALIKE:
            return True, True
    return False, known


def _uncrowded(dispatch: float, window: WorkloadWindow, regime: Regime) -> float:
    """S with nobody else there: as held by the smallest crowd that this load has shown."""
    crowd, fewest = window.threads_outside_tasks, regime.least_crowded
    if not window.saturated:
        return dispatch
    if fewest is None:
        former, growth = regime.former_dispatch_seconds, regime.former_contention or 0.0
        explained = (former or 0.0) * (1.0 + growth * max(0.0, crowd - 1.0))
        alike = former is not None and abs(math.log(explained / dispatch)) < ALIKE
        return min(dispatch, former) if alike and former is not None else dispatch
    if (fewest.crowd or 0.0) > 0.7 * crowd:
        return dispatch
    return min(dispatch, fewest.dispatch_seconds or dispatch)


@dataclass(frozen=True, slots=True)
class _Dispatch:
    """The dispatcher's holding time as the program serves it, judged by what the window allows."""

    seconds: float
    """No more than the threads can have paid."""
    known: bool
    """The program serves it."""
    alone_seconds: float = 0.0
    """What it says a hand-over costs, where its single thread cannot have paid that; 0 elsewhere."""


def _dispatch(window: WorkloadWindow, notes: list[str], *, cpu: float) -> _Dispatch:
    mean, median = window.dispatch_seconds, window.dispatch_median_seconds
    if mean is None or mean <= 0:
        notes.append(f"no dispatch time served, {_seconds(ASSUMED_DISPATCH_SECONDS)} assumed")
        return _Dispatch(ASSUMED_DISPATCH_SECONDS, False)
    said = median or mean
    if median:
        # A thread that loses its CPU while it dispatches holds it for a time slice: not S.
        mean = min(mean, 3.0 * median)
    if window.saturated and window.tasks_per_second > 0:
        # One dispatcher hands over T tasks a second: T*S <= 1. And a task with its dispatch takes
        # no longer than a thread's share of the time: Z + S <= k/T. A program that runs a task in
        # the caller's own thread has next to no dispatch, whatever a hand-over would cost it.
        turn = 1.0 / window.tasks_per_second
        # The last is a difference of large numbers where tasks are heavy: noise must not make it 0.
        share = window.threads * turn - (1.0 - SHARE_NOISE) * cpu
        mean = min(mean, turn, max(share, 0.0))
    return _Dispatch(max(mean, 1e-7), True, said if _alone(window) else 0.0)


def _alone(window: WorkloadWindow) -> bool:
    return window.threads <= 1 and window.saturated


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


def _with_contention(
    parameters: NetworkParameters,
    window: WorkloadWindow,
    regime: Regime,
    notes: list[str],
) -> NetworkParameters:
    """Replace the prior by what the window shows, then by what two thread counts show.

    k - T*wall threads are at the dispatcher (Little). When those are a few or more, it hardly
    rests (busy for Q/(1+Q) of the time, as an M/M/1 queue): that over T is its holding time. The part above the prior's hand-over is taken to
    grow with the crowd. A throughput above the model's says that the prior was too dear.
    """
    if regime.contention_linear is not None:
        parameters = replace(parameters, contention_linear=max(0.0, regime.contention_linear))
    if not window.saturated or window.threads < 2:
        return parameters
    dispatch = parameters.dispatch_seconds / min(1.0, parameters.cpu_servers)
    crowd = crowd_at_dispatcher(window)
    if crowd is not None:
        busy = crowd / (1.0 + crowd)
        growth = max(0.0, busy / (window.tasks_per_second * dispatch) - 1.0)
        handover = min(growth, parameters.contention_handover)
        linear = min(1e3, (growth - handover) / (crowd - 1.0))
        notes.append(f"{crowd:.3g} threads at the dispatcher slow it {1 + growth:.3g} times")
        return replace(parameters, contention_handover=handover, contention_linear=linear)
    measured = [LoadPoint(window.threads, parameters.cpu_servers, window.tasks_per_second)]
    known = [p for p in _same_cpu(regime.points, parameters.cpu_servers) if p.threads >= 2]
    fitted = _fit_handover(parameters, [*measured, *known])
    if fitted != parameters:
        notes.append(f"contended hand-overs cost {fitted.contention_handover:.2g} dispatches more")
    return fitted


def crowd_at_dispatcher(window: WorkloadWindow) -> float | None:
    """Threads at the dispatcher, when they are enough to keep it busy all the time."""
    crowd = window.threads_outside_tasks
    enough = window.saturated and crowd >= max(QUEUE_SEEN, 0.2 * window.threads)
    # T*wall is a mean of finished tasks: what chance explains is no crowd, nor is what the tasks
    # in progress have done already. Those are of a renewal's age, wall*(1 + CV^2)/2 in the mean,
    # and after a change of threads the window begins with none of it.
    noise = window.threads * math.sqrt(HEAVY_TAILED / max(window.tasks, 1.0))
    age = window.task_seconds * (1.0 + HEAVY_TAILED) / 2.0
    in_progress = window.threads * min(1.0, age / max(window.span_seconds, 1e-9))
    return crowd if enough and crowd > NOISE_SIGMAS * noise + in_progress else None


def _same_cpu(points: tuple[LoadPoint, ...], cores: float) -> tuple[LoadPoint, ...]:
    return tuple(p for p in points if math.isclose(p.cpu_cores, cores, rel_tol=0.05))


def _fit_handover(parameters: NetworkParameters, points: list[LoadPoint]) -> NetworkParameters:
    """The hand-over that explains the best point seen; only ever cheaper than the prior.

    Points below the model are no proof of contention: anything may have been slow.
    """
    best = max(points, key=lambda p: p.tasks_per_second)

    def miss(handover: float) -> float:
        candidate = replace(parameters, contention_handover=handover)
        row = (candidate.cpu_servers, candidate.dispatch_seconds)
        predicted = float(throughput_table(candidate, [row], best.threads)[0, -1])
        return abs(math.log(predicted / best.tasks_per_second))

    prior = parameters.contention_handover
    cheaper = [h for h in HANDOVER_GRID if h < prior]
    if not cheaper:
        return parameters
    # Throughput falls as the hand-over gets dearer, so the miss has one valley: bisection finds it.
    low, high = 0, len(cheaper) - 1
    while low < high:
        middle = (low + high) // 2
        if miss(cheaper[middle]) <= miss(cheaper[middle + 1]):
            high = middle
        else:
            low = middle + 1
    fitted = cheaper[low]
    if miss(fitted) > miss(prior) - CLEARLY_BETTER:
        return parameters
    return replace(parameters, contention_handover=fitted)


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
    # Without run-queue time, waiting for a CPU and waiting for an engine are told apart by guess.
    told_apart = window.task_runqueue_seconds is not None or window.threads <= 1
    if window.saturated and window.tasks >= 3 * min_tasks and told_apart:
        return uncertainty, Confidence.HIGH
    return max(0.1, uncertainty), Confidence.MEDIUM


def _seconds(value: float) -> str:
    if value >= 1.0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
