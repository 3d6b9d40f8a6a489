"""Has the load changed? A two-sided CUSUM on logarithms of what a task costs.

Page's test (Biometrika 1954): on z = (x - mean)/sigma keep rise = max(0, rise + z - drift) and its
mirror image; alarm above a threshold. Sigma is learned and has a floor, one interval's share is
capped so that a single pause never alarms, and the drift is wide because quiet false alarms would
forget what was learned (drift 1 and threshold 8: about exp(16) intervals between false alarms in
independent normal noise). The state is in the memo; nothing here reads a clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slimscale.domain.observation import PodObservation
from slimscale.threads.memo import Memo, Regime, Trend
from slimscale.threads.recall import remember_load
from slimscale.threads.sampling import SamplePair, consecutive_pairs
from slimscale.threads.window import WorkloadWindow, aggregate

__all__ = ["RATE", "LoadChange", "has_drifted", "is_another_load", "rate_noise", "watch_load"]

RATE = "rate"
"""Log throughput: for its noise only. It moves with every change of ours, so it never alarms."""
CPU = "cpu"
_BLOCKED, _THREADS = "blocked", "threads"
DRIFTED = math.log(1.35)
HEAVY_TAILED = 8.0
"""Squared variation of task times that a mean of few of them must allow for."""

DRIFT = 1.0
THRESHOLD = 8.0
LARGEST_SHARE = 0.7 * THRESHOLD
SIGMA_FLOOR = 0.10
SIGMA_PRIOR = 0.20
LEARNING_INTERVALS = 4
FORGETTING = 0.05
FEWEST_TASKS = 3.0
OTHER_RATE = math.log(1.25)
CPU_JUMP = math.log(2.0)
"""CPU a task that doubles or halves with a change of threads: the load changed at the same time."""
MOST_SPREAD = 30.0
"""Squared variation of task times that the noise of their mean allows for."""
UNCERTAIN_INTERVALS = 1.5
FAR_DEVIATION = 4.0
"""Sigmas of a second deviating interval in a row that need no third one."""
DEVIATION = 2.5
"""Sigmas from which an interval may already belong to the new load."""


@dataclass(frozen=True, slots=True)
class LoadChange:
    memo: Memo
    changed: bool
    reason: str = ""
    uncertain: bool = False
    """The last intervals deviate and the next ones will tell: no time to act on a mixture."""


def watch_load(
    pods: Sequence[PodObservation], memo: Memo, *, interval_seconds: float
) -> LoadChange:
    """Feed the intervals that are new since the last look; on alarm start a new regime.

    The new regime begins with the second interval that deviated: the first one is likely to hold
    tasks of both loads.
    """
    groups: dict[int, list[SamplePair]] = {}
    for pod in pods:
        for pair in consecutive_pairs(pod.samples):
            if (
                pair.started_at_seconds >= memo.regime.started_at_seconds
                and pair.ended_at_seconds > memo.trend_seen_until_seconds
            ):
                groups.setdefault(int(pair.ended_at_seconds / interval_seconds), []).append(pair)
    changed, reason = False, ""
    for _, pairs in sorted(groups.items()):
        common = max(
            {(p.threads, p.cpu_quota_cores) for p in pairs},
            key=lambda key: sum((p.threads, p.cpu_quota_cores) == key for p in pairs),
        )
        window = aggregate([p for p in pairs if (p.threads, p.cpu_quota_cores) == common])
        memo, alarm = _step(memo, window, interval_seconds=interval_seconds)
        if alarm:
            changed, reason = True, alarm
    since = memo.deviating_since_seconds
    waited = memo.trend_seen_until_seconds - since if since is not None else 0.0
    uncertain = since is not None and waited <= UNCERTAIN_INTERVALS * interval_seconds
    return LoadChange(memo, changed, reason, uncertain)


def rate_noise(memo: Memo, *, tasks: float) -> float:
    """Standard deviation of the log throughput of one interval with so many tasks.

    Until it is learned it is that of counting tasks of a squared variation of 3, and some more.
    """
    if memo.rate_variance is None:
        return min(SIGMA_PRIOR, 0.04 + math.sqrt(3.0 / max(tasks, 1.0)))
    return max(0.02, math.sqrt(memo.rate_variance))


def has_drifted(
    memo: Memo,
    *,
    threads: int,
    cpu_seconds: float,
    blocked_seconds: float,
    tasks: float,
    started_at_seconds: float,
    ended_at_seconds: float,
) -> tuple[Memo, str]:
    """A load that moves so slowly that no interval deviates still leaves what was learned behind.

    The first window of a load is its reference; once a task's CPU or its wait is DRIFTED away from
    it and a later window without a common second says so too, a new load begins with that one: a
    few giants among the tasks make one window deviate, not two. Returns the memo and what drifted
    (empty: nothing).
    """
    now = {CPU: math.log(max(cpu_seconds, 1e-9)), _THREADS: math.log(threads)}
    if blocked_seconds > 0.2 * (cpu_seconds + blocked_seconds):
        now[_BLOCKED] = math.log(blocked_seconds)
    reference = dict(memo.regime.reference)
    far = max(DRIFTED, 4.0 * math.sqrt(HEAVY_TAILED / max(tasks, 1.0)))
    if reference.get(_THREADS) != now[_THREADS]:
        # Waits depend on the threads, and so does CPU where they contend: compare it alone, and
        # more mildly. It keeps its first reference, so that small changes add up.
        cpu = reference.get(CPU, now[CPU])
        if abs(now[CPU] - cpu) <= far + DRIFTED:
            kept = replace(memo.regime, reference={**now, CPU: cpu})
            return replace(memo, regime=kept), ""
        reference = {CPU: cpu}
    for name, value in now.items():
        if name in _UNITS and name in reference and abs(value - reference[name]) > far:
            since = memo.regime.drifting_since_seconds
            if since is None or started_at_seconds < since:
                kept = replace(memo.regime, drifting_since_seconds=since or ended_at_seconds)
                return replace(memo, regime=kept), ""
            was = math.exp(reference[name])
            fresh = _new_regime(memo, started_at_seconds)
            real = memo.regime.waits_are_real
            kept = replace(fresh.regime, reference=now, waits_are_real=real)
            fresh = replace(fresh, regime=kept)
            words = f"{_WORDS[name]} drifted from {was:.3g} to {math.exp(value):.3g}{_UNITS[name]}"
            return fresh, words
    if memo.regime.drifting_since_seconds is not None:
        memo = replace(memo, regime=replace(memo.regime, drifting_since_seconds=None))
    return memo, ""


def is_another_load(
    memo: Memo, window: WorkloadWindow, *, interval_seconds: float
) -> tuple[Memo, str]:
    """A thread count that is held again and does not do what it did before belongs to another load.

    A change of ours ends the detector's series, so a load that changes at that moment is seen by
    nothing else. Returns the memo and what was seen (empty: nothing).
    """
    changed = memo.changed_at_seconds
    if (
        changed is None
        or window.started_at_seconds < changed
        or window.span_seconds > 2.5 * interval_seconds
    ):
        return memo, ""
    cores = window.cpu_quota_cores
    for point in memo.regime.points:
        if point.threads != window.threads:
            continue
        if cores is not None and not math.isclose(point.cpu_cores, cores, rel_tol=0.05):
            continue
        intervals = max(1.0, window.span_seconds / interval_seconds)
        noise = rate_noise(memo, tasks=window.tasks / intervals) / math.sqrt(intervals)
        moved = abs(math.log(window.tasks_per_second / point.tasks_per_second))
        if moved > OTHER_RATE + 4.0 * noise:
            words = (
                f"{window.threads} threads do {window.tasks_per_second:.3g} tasks/s now,"
                f" {point.tasks_per_second:.3g} before"
            )
            return _new_regime(memo, window.started_at_seconds), words
    return memo, ""


def _signals(window: WorkloadWindow) -> dict[str, float]:
    wall = window.task_seconds
    if window.tasks < FEWEST_TASKS or wall <= 0:
        return {}
    signals = {"wall": math.log(wall), RATE: math.log(window.tasks_per_second)}
    cpu = window.task_cpu_seconds
    if cpu is not None and cpu > 0:
        signals[CPU] = math.log(cpu)
        waiting = wall - cpu - (window.task_runqueue_seconds or 0.0)
        # Below a tenth of the task the wait is a difference of larger numbers: noise.
        signals["blocked"] = math.log(max(waiting, 0.1 * wall))
    if window.dispatch_seconds:
        signals["ratio"] = math.log(wall / window.dispatch_seconds)
    return signals


def _step(memo: Memo, window: WorkloadWindow, *, interval_seconds: float) -> tuple[Memo, str]:
    memo = replace(memo, trend_seen_until_seconds=window.ended_at_seconds)
    signals = _signals(window)
    if not signals:
        return memo, ""
    cores = window.cpu_quota_cores
    if (memo.trend_threads, memo.trend_cores) != (window.threads, cores):
        cpu = memo.trends.get(CPU)
        memo = replace(
            memo,
            trends={},
            trend_threads=window.threads,
            trend_cores=cores,
            carried_cpu_log=cpu.mean if cpu and cpu.count >= 2 else memo.carried_cpu_log,
            deviating_since_seconds=None,
        )
    trends: dict[str, Trend] = {}
    worst, alarm = 0.0, ""
    for name, value in signals.items():
        # A mean of few tasks is noisy in itself, and more so where their times are very unlike.
        spread = min(max(window.task_squared_variation or 1.0, 1.0), MOST_SPREAD)
        trend, z = _update(
            memo.trends.get(name, Trend()), value, sampling=spread / max(window.tasks, 1.0)
        )
        trends[name] = trend
        if name == RATE:
            if trend.count > LEARNING_INTERVALS and window.span_seconds > 0.9 * interval_seconds:
                memo = replace(memo, rate_variance=trend.variance)
            continue
        worst = max(worst, abs(z))
        if max(trend.rise, trend.fall) > THRESHOLD and not alarm:
            was, now = math.exp(trend.mean), math.exp(value)
            alarm = f"{_WORDS[name]} went from {was:.3g} to {now:.3g}{_UNITS[name]}"
        if not alarm and memo.deviating_since_seconds is not None:
            alarm = _twice(name, memo.trends.get(name), trend, z, value)
    alarm = alarm or _jump(trends.get(CPU), memo.carried_cpu_log, tasks=window.tasks)
    if alarm:
        started = memo.deviating_since_seconds or window.started_at_seconds
        return _new_regime(memo, started), alarm
    deviating = memo.deviating_since_seconds
    if worst < DEVIATION:
        deviating = None
    elif deviating is None:
        deviating = window.ended_at_seconds
    return replace(memo, trends=trends, deviating_since_seconds=deviating), ""


_WORDS = {"wall": "time of a task", CPU: "CPU of a task", "blocked": "waiting in a task",
          "ratio": "task time over dispatch time"}  # fmt: skip
_UNITS = {"wall": " s", CPU: " s", "blocked": " s", "ratio": ""}


def _update(trend: Trend, value: float, *, sampling: float) -> tuple[Trend, float]:
    """One interval. The mean learns fast at first, then slowly, and never from what deviates."""
    if trend.count == 0:
        return Trend(count=1, mean=value, variance=SIGMA_PRIOR**2), 0.0
    sigma = math.sqrt(max(trend.variance, SIGMA_FLOOR**2) + sampling)
    z = (value - trend.mean) / sigma
    rise = max(0.0, trend.rise + min(z - DRIFT, LARGEST_SHARE))
    fall = max(0.0, trend.fall + min(-z - DRIFT, LARGEST_SHARE))
    weight = max(FORGETTING, 1.0 / (trend.count + 1))
    if abs(z) > DEVIATION and trend.count >= 2:
        weight = 0.0
    error = value - trend.mean
    return (
        Trend(
            count=trend.count + 1,
            mean=trend.mean + weight * error,
            variance=(1 - weight) * (trend.variance + weight * error * error),
            rise=rise,
            fall=fall,
        ),
        z,
    )


def _twice(name: str, before: Trend | None, after: Trend, z: float, value: float) -> str:
    """A second interval in a row on the same side, and this one far beyond chance: the first one
    was a mixture of both loads. Quicker than the sum, which holds no interval for more than its share.
    """
    if before is None or abs(z) < FAR_DEVIATION:
        return ""
    kept = before.rise if z > 0 else before.fall
    if kept <= 0.0:
        return ""
    return (
        f"{_WORDS[name]} went from {math.exp(after.mean):.3g} to"
        f" {math.exp(value):.3g}{_UNITS[name]}"
    )


def _jump(cpu: Trend | None, carried: float | None, *, tasks: float) -> str:
    """After two intervals with other threads; after one where no chance explains it."""
    if cpu is None or carried is None or cpu.count > 2:
        return ""
    chance = 4.0 * math.sqrt(HEAVY_TAILED / max(tasks, 1.0)) if cpu.count == 1 else 0.0
    if abs(cpu.mean - carried) < CPU_JUMP + chance:
        return ""
    return f"CPU of a task went from {math.exp(carried):.3g} to {math.exp(cpu.mean):.3g} s"


def _new_regime(memo: Memo, started_at_seconds: float) -> Memo:
    memo = remember_load(memo)
    old = memo.regime
    least = old.least_crowded
    regime = Regime(
        number=old.number + 1,
        started_at_seconds=started_at_seconds,
        former_dispatch_seconds=(
            least.dispatch_seconds if least is not None else old.former_dispatch_seconds
        ),
        former_contention=(
            old.contention_linear if old.contention_linear is not None else old.former_contention
        ),
    )
    return replace(
        memo,
        regime=regime,
        pending=None,
        trends={},
        carried_cpu_log=None,
        deviating_since_seconds=None,
        repredict=True,
        proposals=(),
    )
