"""Did the last change keep its promise? If not, it is taken back and remembered for this load."""

import math
from dataclasses import dataclass, replace

from slimscale.api.simworkload import ObjectiveType, SimWorkloadSpec
from slimscale.domain.decision import DecisionStep, PodTarget
from slimscale.domain.observation import Observation
from slimscale.threads.change import rate_noise
from slimscale.threads.describe import target_words
from slimscale.threads.estimate import crowd_at_dispatcher
from slimscale.threads.memo import Memo, Pending, Refusal, Regime
from slimscale.threads.probe import TRUST_RADIUS
from slimscale.threads.window import WorkloadWindow

__all__ = ["Outcome", "crashed_since_change", "revert", "verify_change"]

STAGE = "Verify"
SIGMAS = 2.0
"""How far beyond noise a loss must lie."""
LEAST_PREDICTED_GAIN = 0.05
REALISED_SHARE = 0.25
"""Of a raise's predicted gain; below it the threads queue for something unseen (docs/model.md 5)."""
CPU_BOUND_SHARE = 0.9
RETRY_ABOVE = 1.5
CLIFF = 0.7
"""Throughput after a raise over that before, below which the next loads are raised in two steps."""
IN_PROPORTION = 0.8
"""Log loss over log cut of the threads, from which the threads that went were all at work."""
NO_GAIN = 0.03
CLEAR_GAIN = 0.05
CRASH_WATCH_SECONDS = 300.0
GIVE_UP_WINDOWS = 4.0
LEAST_PROBE_GAIN = 0.02
GROW, SHRINK, MOST_RADIUS = 1.4, 0.7, 3.0
"""Of the trust region's radius, after a probe that was worth it and after one that was not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    memo: Memo
    step: DecisionStep | None = None
    reverted: bool = False


def crashed_since_change(observation: Observation, memo: Memo, *, now_seconds: float) -> str:
    """The pod that crash-loops since our last change, if one does."""
    changed = memo.changed_at_seconds
    if changed is None or memo.previous is None or now_seconds - changed > CRASH_WATCH_SECONDS:
        return ""
    for pod in observation.running_pods:
        last = pod.last_restart_seconds
        if pod.crash_looping and (last is None or last >= changed):
            return pod.name
    return ""


def verify_change(
    memo: Memo, window: WorkloadWindow, *, spec: SimWorkloadSpec, now_seconds: float
) -> Outcome:
    """Compare the windows before and after the last change, in one regime, demand saturated."""
    pending = memo.pending
    if pending is None or not _speaks_of(pending, window):
        return Outcome(memo)
    before = pending.tasks_per_second
    if before is None or not window.saturated:
        patience = GIVE_UP_WINDOWS * spec.tuning.window_seconds
        late = before is None or now_seconds - pending.since_seconds > patience
        return Outcome(replace(memo, pending=None) if late else memo)
    interval = float(spec.metrics.interval_seconds)
    intervals = max(1.0, window.span_seconds / interval)
    noise = rate_noise(memo, tasks=window.tasks / intervals) * math.sqrt(
        1.0 / intervals + 1.0 / pending.intervals
    )
    gain = window.tasks_per_second / before - 1.0
    full = window.span_seconds >= 0.9 * min(2.0 * interval, spec.tuning.window_seconds)
    allowed = spec.tuning.regression_percent / 100.0
    if memo.regime.serial_seconds is not None and pending.after.threads < pending.before.threads:
        # Behind a bottleneck threads are halved again and again: small losses must not add up.
        allowed = min(allowed, max(0.03, spec.objective.tolerance_percent / 100.0))
    loss = -gain
    if spec.objective.type is not ObjectiveType.MAX_THROUGHPUT:
        # Less work may be what was asked for: only what falls short of the promise counts.
        promise = min(before, pending.predicted_tasks_per_second)
        loss = 1.0 - window.tasks_per_second / promise
    lost = -math.log(max(1.0 - loss, 1e-3))
    if loss > allowed and lost > SIGMAS * noise:
        words = (
            f"{target_words(pending.after)} gave {window.tasks_per_second:.4g} tasks/s,"
            f" {-gain:.0%} less than {before:.4g} before; the last good values return"
        )
        return Outcome(
            revert(
                memo,
                now_seconds=now_seconds,
                cpu_bound=_cpu_bound(window),
                gave=window.tasks_per_second,
            ),
            DecisionStep(STAGE, "Reverted", words, constrained=True),
            reverted=True,
        )
    if pending.probe and (full or abs(gain) > max(CLEAR_GAIN, SIGMAS * noise)):
        return _judge_probe(
            memo, pending, gain=gain, noise=noise, spec=spec, now_seconds=now_seconds
        )
    short = not full or (loss > allowed and window.span_seconds < 0.95 * spec.tuning.window_seconds)
    if short and (pending.probe or not _clearly_paid(pending, gain=gain, noise=noise)):
        return Outcome(memo, DecisionStep(STAGE, "Waiting", "the window after is still short"))
    return _settled(memo, pending, window, gain=gain, noise=noise, now_seconds=now_seconds)


def _clearly_paid(pending: Pending, *, gain: float, noise: float) -> bool:
    """Half of what was promised is there already, and chance does not explain it: no need to wait."""
    before = pending.tasks_per_second or pending.predicted_tasks_per_second
    promised = pending.predicted_tasks_per_second / before - 1.0
    return gain > max(CLEAR_GAIN, promised / 2.0, SIGMAS * noise)


def _judge_probe(
    memo: Memo,
    pending: Pending,
    *,
    gain: float,
    noise: float,
    spec: SimWorkloadSpec,
    now_seconds: float,
) -> Outcome:
    """A probe stays when it was worth it: more work, or as much with fewer threads.

    Either way the next one is a step further or the other side: the same step is not taken twice.
    """
    up = pending.after.threads > pending.before.threads
    radius = memo.regime.trust_radius or TRUST_RADIUS
    tolerance = spec.objective.tolerance_percent / 100.0
    # More threads that did more most likely do more: chance cuts both ways.
    kept = gain > max(LEAST_PROBE_GAIN, noise / 2) if up else gain > -tolerance / 2
    words = f"{target_words(pending.after)} gave {gain:+.1%} against {target_words(pending.before)}"
    if not kept:
        step = DecisionStep(STAGE, "ProbeTakenBack", f"{words}: not worth it")
        return Outcome(revert(memo, now_seconds=now_seconds), step, reverted=True)
    regime = replace(memo.regime, trust_radius=min(MOST_RADIUS, radius * GROW))
    count = pending.after.threads
    if up:
        regime = replace(regime, floor_threads=max(count, regime.floor_threads or 1))
    else:
        regime = replace(regime, ceiling_threads=min(count, regime.ceiling_threads or count))
    step = DecisionStep(STAGE, "ProbeKept", words)
    return Outcome(replace(memo, regime=regime, pending=None), step)


def _after_failed_probe(regime: Regime, before: PodTarget, after: PodTarget) -> Regime:
    """That side is closed in this load; the next step is a smaller one."""
    radius = 1.0 + (regime.trust_radius or TRUST_RADIUS) * SHRINK - SHRINK
    if after.threads > before.threads:
        return replace(regime, tried_above=before.threads, trust_radius=radius)
    return replace(regime, tried_below=before.threads, trust_radius=radius)


def _cpu_bound(window: WorkloadWindow) -> bool:
    if window.cpu_used_cores is None or window.cpu_quota_cores is None:
        return False
    return window.cpu_used_cores >= CPU_BOUND_SHARE * window.cpu_quota_cores


def _speaks_of(pending: Pending, window: WorkloadWindow) -> bool:
    if window.threads != pending.after.threads:
        return False
    if window.started_at_seconds < pending.since_seconds:
        return False
    limit, quota = pending.after.cpu_limit_millicores, window.cpu_quota_cores
    return limit is None or quota is None or abs(quota * 1000 - limit) <= 0.02 * limit + 1


def _settled(
    memo: Memo,
    pending: Pending,
    window: WorkloadWindow,
    *,
    gain: float,
    noise: float,
    now_seconds: float,
) -> Outcome:
    before = pending.tasks_per_second or window.tasks_per_second
    promised = pending.predicted_tasks_per_second / before - 1.0
    raised = pending.after.threads > pending.before.threads
    significant = promised > max(LEAST_PREDICTED_GAIN, SIGMAS * noise)
    # Threads that crowd at the dispatcher are seen and in the estimate: nothing about them is hidden.
    hidden = not (
        _cpu_bound(window) or crowd_at_dispatcher(window) is not None or memo.regime.serial_refuted
    )
    if raised and significant and gain < REALISED_SHARE * promised and hidden:
        return _hidden_bottleneck(
            memo, pending, window, gain=gain, promised=promised, now_seconds=now_seconds
        )
    regime = memo.regime
    if regime.serial_seconds is not None and not raised:
        fewest = pending.after.threads
        regime = replace(
            regime,
            serial_seconds=1.0 / max(before, window.tasks_per_second),
            serial_threads=min(regime.serial_threads or fewest, fewest),
        )
    words = f"{target_words(pending.after)} gave {gain:+.0%} against {promised:+.0%} predicted"
    return Outcome(
        replace(memo, regime=regime, pending=None), DecisionStep(STAGE, "Confirmed", words)
    )


def _hidden_bottleneck(
    memo: Memo,
    pending: Pending,
    window: WorkloadWindow,
    *,
    gain: float,
    promised: float,
    now_seconds: float,
) -> Outcome:
    """More threads brought next to nothing: tasks queue for a lock, an interpreter, an engine."""
    regime = memo.regime
    rate = max(pending.tasks_per_second or 0.0, window.tasks_per_second)
    # A thread never does more in larger company: what came on top needs threads in proportion.
    fewest = math.floor(pending.before.threads * (1.0 + max(0.0, gain)))
    fewest = min(fewest, pending.after.threads, regime.serial_threads or pending.after.threads)
    learned = replace(
        memo,
        regime=replace(regime, serial_seconds=1.0 / rate, serial_threads=fewest),
    )
    words = (
        f"{target_words(pending.after)} brought {gain:+.0%} of the {promised:+.0%} predicted: tasks queue"
        f" for something else, {1e3 / rate:.3g} ms each"
    )
    step = DecisionStep(STAGE, "HiddenBottleneck", words, constrained=True)
    if gain < NO_GAIN:  # `revert` first asks whether a cliff lies between, then learns the same
        return Outcome(revert(memo, now_seconds=now_seconds), step, reverted=True)
    return Outcome(replace(learned, pending=None), step)


def revert(
    memo: Memo, *, now_seconds: float, cpu_bound: bool = False, gave: float | None = None
) -> Memo:
    """Back to the target before the last change; that way is closed while the load stays as it is.

    A raise that lost may have gone past a cliff: the geometric mean is tried once, then no more.
    `gave`: tasks a second after the change, where it is taken back for that.
    """
    before = memo.pending.before if memo.pending is not None else memo.previous
    after = memo.pending.after if memo.pending is not None else memo.target
    if before is None or after is None:
        return memo
    regime = memo.regime
    if memo.pending is not None and memo.pending.probe:
        regime = _after_failed_probe(regime, before, after)
    elif after.threads < before.threads:
        regime = _after_failed_cut(regime, before, after)
        if _lost_in_proportion(memo.pending, gave):
            regime = _without_bottleneck(regime)
    elif after.threads > before.threads:
        regime = _after_failed_raise(memo, before, after, cpu_bound=cpu_bound)
    limits = (before.cpu_limit_millicores or 0, after.cpu_limit_millicores or 0)
    if limits[1] < limits[0]:
        regime = replace(regime, floor_cpu_millicores=before.cpu_limit_millicores)
    elif limits[1] > limits[0] and regime.floor_cpu_millicores is not None:
        # The raise had made itself the floor; it was no need after all.
        floor = min(regime.floor_cpu_millicores, limits[0])
        regime = replace(regime, floor_cpu_millicores=floor or None)
    return replace(
        memo,
        refusal=_refused(memo, before, after, gave=gave),
        target=before,
        target_tier="Revert",
        previous=None,
        pending=None,
        changed_at_seconds=now_seconds,
        regime=regime,
        proposals=(),
        repredict=False,
    )


def _refused(
    memo: Memo, before: PodTarget, after: PodTarget, *, gave: float | None
) -> Refusal | None:
    """A raise that lost a cliff's worth, or what was known of one."""
    rate = memo.pending.tasks_per_second if memo.pending is not None else None
    if gave is None or rate is None or after.threads <= before.threads:
        return memo.refusal
    return Refusal(before.threads, after.threads) if gave < CLIFF * rate else memo.refusal


def _after_failed_cut(regime: Regime, before: PodTarget, after: PodTarget) -> Regime:
    """A large cut that failed once says little about half of it; a second one closes the way."""
    again = regime.failed_cuts == 0 and before.threads >= RETRY_ABOVE * after.threads
    floor = round(math.sqrt(before.threads * after.threads)) if again else before.threads
    return replace(
        regime,
        failed_cuts=regime.failed_cuts + 1,
        floor_threads=max(floor, regime.floor_threads or floor),
    )


def _lost_in_proportion(pending: Pending | None, gave: float | None) -> bool:
    """Fewer threads did as much less as there were fewer: nothing queued before the cut."""
    if pending is None or pending.tasks_per_second is None or gave is None:
        return False
    fewer = math.log(pending.before.threads / pending.after.threads)
    return math.log(pending.tasks_per_second / gave) >= IN_PROPORTION * fewer


def _without_bottleneck(regime: Regime) -> Regime:
    """What a raise seemed to show was chance; it is not concluded a second time in this load."""
    if regime.serial_seconds is None:
        return regime
    return replace(
        regime,
        serial_seconds=None,
        serial_threads=None,
        serial_refuted=True,
        ceiling_threads=None,
        failed_raises=0,
    )


def _after_failed_raise(
    memo: Memo, before: PodTarget, after: PodTarget, *, cpu_bound: bool
) -> Regime:
    regime = memo.regime
    again = regime.failed_raises == 0 and after.threads >= RETRY_ABOVE * before.threads
    ceiling = round(math.sqrt(before.threads * after.threads)) if again else before.threads
    regime = replace(
        regime,
        failed_raises=regime.failed_raises + 1,
        ceiling_threads=min(ceiling, regime.ceiling_threads or ceiling),
        # The raise had made itself the floor; it was no need after all.
        floor_threads=min(regime.floor_threads, before.threads) if regime.floor_threads else None,
    )
    rate = memo.pending.tasks_per_second if memo.pending is not None else None
    if again or cpu_bound or rate is None or regime.serial_refuted:
        return regime
    known = regime.serial_threads or before.threads
    return replace(regime, serial_seconds=1.0 / rate, serial_threads=min(known, before.threads))
