"""`decide`: Observe, Verify, Estimate, Predict, Choose, Guard. Pure, so every decision can be replayed.

Each stage leaves a DecisionStep in the words of someone who reads `kubectl describe`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slimscale.api.conditions import Reason
from slimscale.api.simworkload import ControlledValues, SimWorkloadSpec, UpdateMode
from slimscale.domain.decision import (
    Action,
    Confidence,
    Decision,
    DecisionStep,
    ModelView,
    PodTarget,
)
from slimscale.domain.observation import ConflictKind, Observation
from slimscale.threads.bounds import CpuBounds, Standing, cpu_bounds, standing_of
from slimscale.threads.change import watch_load
from slimscale.threads.describe import target_words
from slimscale.threads.load_memory import look_at_load
from slimscale.threads.looks import next_look
from slimscale.threads.memo import Memo, load_memo
from slimscale.threads.predictor import AnalyticPredictor, ThreadPredictor, floor_of_quota
from slimscale.threads.recommend import Recommendation, recommend
from slimscale.threads.sampling import eligible_pods
from slimscale.threads.verify import crashed_since_change, revert, verify_change
from slimscale.threads.window import WindowResult, WorkloadWindow, observe_window

__all__ = ["decide"]

CONTRACT_GRACE_SECONDS = 60.0
"""How long a ready pod may take to serve its first metrics before it counts as having none."""
SETTLE_SECONDS = 2.0
"""After a change of CPU, where the pods do not report their quota themselves."""
CLOCK_SLACK_SECONDS = 10.0


@dataclass(slots=True)
class _Draft:
    """What a decision is made of while its stages run."""

    memo: Memo
    steps: list[DecisionStep] = field(default_factory=list)
    action: Action = Action.HOLD
    target: PodTarget | None = None
    uncapped: PodTarget | None = None
    lower: PodTarget | None = None
    upper: PodTarget | None = None
    confidence: Confidence = Confidence.NONE
    reason: Reason = Reason.HELD
    message: str = ""
    metrics_reason: Reason = Reason.METRICS_MISSING
    metrics_message: str = ""
    hold_writes: bool = True
    idle: bool = False
    """The window was short of work."""
    model: ModelView = field(default_factory=lambda: ModelView(predictor="none"))

    def say(self, stage: str, outcome: str, reason: str, *, constrained: bool = False) -> None:
        self.steps.append(DecisionStep(stage, outcome, reason[:512], constrained))


def decide(
    *,
    observation: Observation,
    spec: SimWorkloadSpec,
    memo: Mapping[str, object],
    now_seconds: float,
    predictor: ThreadPredictor | None = None,
) -> Decision:
    """One target for all pods of the workload, and why; `Decision.memo` goes into the next call.

    Args:
        observation: what was seen; nothing else is looked at.
        spec: of the SimWorkload.
        memo: `Decision.memo` of the last decision, or an empty mapping. Damaged content is dropped.
        now_seconds: wall-clock time, seconds since the epoch.
        predictor: the analytic model by default.

    Never raises on odd data: what is missing, stale, not finite or contradictory gives a Hold.
    """
    known, problem = load_memo(memo)
    draft = _Draft(memo=_after_clock_step(known, now_seconds))
    if problem:
        draft.say("Memo", "StartedAfresh", problem, constrained=True)
    _run(draft, observation, spec, now_seconds, predictor or AnalyticPredictor())
    forbidden = _forbidden(observation, spec)
    if forbidden:
        draft.say("Guard", "NoWrites", forbidden, constrained=True)
    look = next_look(draft.memo, spec=spec, now_seconds=now_seconds, idle=draft.idle)
    return Decision(
        decision_id=_decision_id(observation, spec, memo, now_seconds),
        decided_at_seconds=now_seconds,
        action=draft.action,
        target=draft.target,
        uncapped=draft.uncapped or draft.target,
        lower=draft.lower or draft.target,
        upper=draft.upper or draft.target,
        confidence=draft.confidence,
        reason=draft.reason.value,
        message=draft.message[:1024],
        metrics_reason=draft.metrics_reason.value,
        metrics_message=draft.metrics_message[:1024],
        may_write=not forbidden and not draft.hold_writes and draft.target is not None,
        model=draft.model,
        steps=tuple(draft.steps),
        memo=draft.memo.to_json(),
        tier=draft.memo.target_tier,
        next_look_seconds=look.seconds,
        next_look_reason=look.reason,
    )


def _run(
    draft: _Draft,
    observation: Observation,
    spec: SimWorkloadSpec,
    now_seconds: float,
    predictor: ThreadPredictor,
) -> None:
    if observation.target is None:
        _hold(draft, observation.target_message or "the target was not found")
        return
    standing = standing_of(observation)
    bounds = cpu_bounds(observation, spec, standing)
    _fit_to_bounds(draft, spec, bounds)
    crashed = crashed_since_change(observation, draft.memo, now_seconds=now_seconds)
    if crashed and not _forbidden(observation, spec):  # else the change was never made
        draft.memo = revert(draft.memo, now_seconds=now_seconds)
        words = f"pod {crashed} crash-loops since the last change, which is taken back"
        _reverted(draft, words)
        draft.say("Guard", "Reverted", words, constrained=True)
        return
    uncertain = False
    if spec.tuning.online:
        change = watch_load(
            eligible_pods(observation),
            draft.memo,
            interval_seconds=float(spec.metrics.interval_seconds),
        )
        draft.memo, uncertain = change.memo, change.uncertain
        if change.changed:
            draft.say("Detect", "LoadChanged", f"{change.reason}: what was learned is dropped")
    result = observe_window(
        observation,
        tuning=spec.tuning,
        metrics=spec.metrics,
        now_seconds=now_seconds,
        not_before_seconds=_not_before(observation, draft.memo),
        first_look=draft.memo.repredict and draft.memo.target is not None,
    )
    draft.metrics_reason, draft.metrics_message = result.reason, result.message
    draft.idle = result.window is not None and not result.window.saturated
    if result.window is None:
        _without_window(
            draft,
            result=result,
            observation=observation,
            spec=spec,
            standing=standing,
            now_seconds=now_seconds,
        )
        return
    draft.memo = replace(draft.memo, contract_seen=True)
    draft.say("Observe", result.reason.value, f"{result.message}; {_seen(result.window)}")
    if uncertain and draft.memo.target is not None:
        # A loss of ours that is no chance is taken back whatever else may be going on.
        lost = verify_change(draft.memo, result.window, spec=spec, now_seconds=now_seconds)
        if not lost.reverted:
            _await_load(draft, result.window)
            return
    draft.memo, drifted = look_at_load(draft.memo, result.window, spec=spec, standing=standing)
    if drifted:
        draft.say("Detect", "LoadDrifted", f"{drifted}: what was learned is dropped")
    outcome = verify_change(draft.memo, result.window, spec=spec, now_seconds=now_seconds)
    draft.memo = outcome.memo
    if outcome.step is not None:
        draft.steps.append(outcome.step)
    if outcome.reverted:
        draft.model = replace(draft.model, measured_tasks_per_second=result.window.tasks_per_second)
        _reverted(draft, outcome.step.reason if outcome.step else "the last change cost throughput")
        return
    made = recommend(
        window=result.window,
        spec=spec,
        memo=draft.memo,
        standing=standing,
        bounds=bounds,
        predictor=predictor,
        now_seconds=now_seconds,
        writes=not _forbidden(observation, spec),
        restarts=_restarts(observation, spec),
    )
    _take(draft, made)


def _take(draft: _Draft, made: Recommendation) -> None:
    draft.memo = made.memo
    draft.steps.extend(made.steps)
    draft.action, draft.target = made.action, made.target
    draft.uncapped, draft.lower, draft.upper = made.uncapped, made.lower, made.upper
    draft.confidence, draft.reason, draft.message = made.confidence, made.reason, made.message
    draft.model = made.model
    draft.hold_writes = made.target is None or made.reason is Reason.HELD


def _without_window(
    draft: _Draft,
    *,
    result: WindowResult,
    observation: Observation,
    spec: SimWorkloadSpec,
    standing: Standing,
    now_seconds: float,
) -> None:
    """Idle, collecting, no contract and no data are four different things."""
    if _has_no_contract(draft, result, observation, now_seconds):
        _floor_of_quota(draft, observation, spec, standing, now_seconds)
        return
    starting = result.reason is Reason.METRICS_MISSING and not (
        draft.memo.contract_seen or observation.metrics_problem
    )
    if starting:
        draft.metrics_reason = Reason.WARMING_UP
    if draft.metrics_reason in (Reason.WARMING_UP, Reason.IDLE) and draft.memo.target is not None:
        # The target is sound: pods on their way to it may go on.
        idle = draft.metrics_reason is Reason.IDLE
        draft.action = Action.HOLD if idle else Action.NO_CHANGE
        draft.target = draft.memo.target
        draft.hold_writes = False
        draft.confidence = Confidence.MEDIUM
        draft.reason = Reason.HELD if idle else Reason.PREDICTED
        draft.message = f"{target_words(draft.target)} stay: {result.message}"
        draft.say("Observe", draft.metrics_reason.value, result.message)
        return
    draft.say("Observe", draft.metrics_reason.value, result.message, constrained=True)
    _hold(draft, result.message)


def _await_load(draft: _Draft, window: WorkloadWindow) -> None:
    """The last interval does not fit the load known so far: one more, before anything moves."""
    words = "the load may be changing: the next samples will tell"
    draft.say("Detect", "Uncertain", words)
    draft.action, draft.target = Action.NO_CHANGE, draft.memo.target
    draft.hold_writes, draft.confidence = False, Confidence.LOW
    draft.reason = Reason.PREDICTED
    draft.message = f"{target_words(draft.target)} stay: {words}" if draft.target else words
    draft.model = ModelView(
        predictor="none",
        task_seconds=window.task_seconds,
        measured_tasks_per_second=window.tasks_per_second,
    )


def _has_no_contract(
    draft: _Draft, result: WindowResult, observation: Observation, now_seconds: float
) -> bool:
    if draft.memo.contract_seen or observation.metrics_problem or result.usable_pods:
        return False
    if result.reason is Reason.NO_CONTRACT:
        return True
    if result.reason is not Reason.METRICS_MISSING:
        return False
    ages = [now_seconds - p.created_at_seconds for p in eligible_pods(observation)]
    return max(ages, default=0.0) > CONTRACT_GRACE_SECONDS


def _floor_of_quota(
    draft: _Draft,
    observation: Observation,
    spec: SimWorkloadSpec,
    standing: Standing,
    now_seconds: float,
) -> None:
    quotas = [
        quota
        for pod in eligible_pods(observation)
        if pod.latest is not None and (quota := pod.latest.cpu_quota_cores)
    ]
    quota = min([*quotas, standing.cores], default=math.inf)
    draft.metrics_reason = Reason.NO_CONTRACT
    draft.metrics_message = (
        "the pods serve no slimscale metrics (docs/contract.md); threads follow the CPU quota alone"
    )
    if not math.isfinite(quota):
        draft.say("Predict", "NoQuota", "no metrics, no CPU limit and no known node")
        _hold(draft, "nothing is known about the pods, not even a CPU limit")
        return
    threads = min(max(floor_of_quota(quota), spec.threads.min), spec.threads.max)
    target = PodTarget(threads)
    changed = draft.memo.target != target
    draft.target, draft.confidence, draft.reason = target, Confidence.LOW, Reason.FLOOR_OF_QUOTA
    draft.action = _direction(draft.memo.target, target) if changed else Action.NO_CHANGE
    draft.message = f"{target_words(target)}: the whole CPUs in a quota of {quota:.3g}, at least 1"
    draft.hold_writes = False
    draft.model = ModelView(predictor="floor-of-quota", cpu_limit_cores=quota)
    draft.say("Predict", "FloorOfQuota", draft.message)
    if changed:
        draft.memo = replace(
            draft.memo,
            previous=draft.memo.target,
            target=target,
            target_tier="FloorOfQuota",
            changed_at_seconds=now_seconds,
        )


def _hold(draft: _Draft, why: str) -> None:
    draft.action, draft.reason = Action.HOLD, Reason.HELD
    draft.target = draft.memo.target
    draft.hold_writes = True
    if draft.target is None:
        draft.message = f"no recommendation yet: {why}"
        return
    draft.confidence = Confidence.LOW
    draft.message = f"{target_words(draft.target)} stay as they are: {why}"


def _reverted(draft: _Draft, why: str) -> None:
    draft.action, draft.reason = Action.REVERT, Reason.REVERTED
    draft.target = draft.memo.target
    draft.confidence = Confidence.MEDIUM
    draft.hold_writes = False
    words = target_words(draft.target) if draft.target is not None else "the values before"
    draft.message = f"back to {words}: {why}"


def _fit_to_bounds(draft: _Draft, spec: SimWorkloadSpec, bounds: CpuBounds) -> None:
    """A remembered target obeys the bounds of today, whatever the metrics say."""
    target = draft.memo.target
    if target is None:
        return
    threads = min(max(target.threads, spec.threads.min), spec.threads.max)
    limit, request = target.cpu_limit_millicores, target.cpu_request_millicores
    if not bounds.adjustable:
        limit, request = None, None
    elif limit is not None and not bounds.least <= limit <= bounds.most:
        limit = min(max(limit, bounds.least), bounds.most)
        request = min(request, limit) if request is not None else None
    fitted = PodTarget(threads, request, limit)
    if fitted != target:
        draft.say(
            "Guard",
            "Clamped",
            f"{target_words(target)} became {target_words(fitted)} ({bounds.reason}; threads"
            f" {spec.threads.min} to {spec.threads.max})",
            constrained=True,
        )
        draft.memo = replace(draft.memo, target=fitted, pending=None)


def _restarts(observation: Observation, spec: SimWorkloadSpec) -> bool:
    """Whether a change of threads reaches the pods by a rollout."""
    mode = spec.update_policy.mode
    followed = all(pod.has_live_channel for pod in observation.pods)
    return mode is UpdateMode.ROLLOUT or (mode is UpdateMode.IN_PLACE_OR_ROLLOUT and not followed)


def _forbidden(observation: Observation, spec: SimWorkloadSpec) -> str:
    if spec.update_policy.mode is UpdateMode.OFF:
        return "updatePolicy.mode is Off: recommended only"
    if spec.suspend:
        return "suspend is true: recommended only"
    for owner in observation.other_owners:
        if owner.kind is ConflictKind.SECOND_SIMWORKLOAD:
            return f"SimWorkload {owner.name} has the same target and came first: it alone writes"
        if spec.cpu.controlled_values is not ControlledValues.LIMITS_ONLY:
            return (
                f"{owner.kind.value} {owner.name} acts on the same requests; set"
                " cpu.controlledValues to LimitsOnly or remove one of the two"
            )
    return ""


def _not_before(observation: Observation, memo: Memo) -> float:
    """Where the pods report their quota, samples tell a change of CPU; else our clock does."""
    start = memo.regime.started_at_seconds
    unreported = any(
        p.latest is not None and p.latest.cpu_quota_cores is None
        for p in eligible_pods(observation)
    )
    moved_cpu = memo.target is not None and memo.target.cpu_limit_millicores is not None
    if unreported and moved_cpu and memo.changed_at_seconds is not None:
        start = max(start, memo.changed_at_seconds + SETTLE_SECONDS)
    return start


def _after_clock_step(memo: Memo, now_seconds: float) -> Memo:
    """A clock that was set back must not block anything until it has caught up."""
    if memo.changed_at_seconds is not None and memo.changed_at_seconds > now_seconds:
        memo = replace(memo, changed_at_seconds=now_seconds)
    if memo.trend_seen_until_seconds > now_seconds + CLOCK_SLACK_SECONDS:
        memo = replace(memo, trend_seen_until_seconds=0.0, trends={}, pending=None)
    if memo.regime.started_at_seconds > now_seconds + CLOCK_SLACK_SECONDS:
        memo = replace(memo, regime=replace(memo.regime, started_at_seconds=0.0))
    return memo


def _direction(before: PodTarget | None, after: PodTarget) -> Action:
    if before is None or after.threads > before.threads:
        return Action.SCALE_UP
    if after.threads < before.threads:
        return Action.SCALE_DOWN
    more = (after.cpu_limit_millicores or 0) > (before.cpu_limit_millicores or 0)
    return Action.SCALE_UP if more else Action.SCALE_DOWN


def _decision_id(
    observation: Observation,
    spec: SimWorkloadSpec,
    memo: Mapping[str, object],
    now_seconds: float,
) -> str:
    text = "\n".join(
        (
            repr(observation),
            spec.model_dump_json(),
            json.dumps(memo, sort_keys=True, default=str),
            repr(now_seconds),
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _seen(window: WorkloadWindow) -> str:
    demand = "work is waiting" if window.saturated else "no work is waiting"
    return (
        f"{window.tasks_per_second:.4g} tasks/s a pod with {window.threads} threads,"
        f" {window.task_seconds * 1e3:.3g} ms a task, {demand}"
    )
