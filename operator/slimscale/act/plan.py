"""`plan`: the API writes that bring pods one step nearer to a decision. Pure, empty when nothing changes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slimscale.act.plan_memo import CpuAsk, PlanMemo, PodEntry, load_plan_memo
from slimscale.act.pod_steps import PodStep, StepContext, settle_resize, step_pod
from slimscale.act.resize_policy import Room, desired_cpu
from slimscale.act.rollout import step_rollout
from slimscale.api.conditions import Reason
from slimscale.api.simworkload import SimWorkloadSpec, UpdateMode
from slimscale.domain.decision import Decision, PodTarget
from slimscale.domain.observation import Observation, PodObservation
from slimscale.domain.plan import Operation, Plan, PodProgress, PodState, ResizePod

__all__ = ["MAX_FOREIGN_CHANGES", "plan"]

MAX_FOREIGN_CHANGES = 3
"""After so many changes by someone else of what we set, we stop: nobody wins that."""
FOREIGN_MEMORY_SECONDS = 3600.0
_IN_PLACE = (UpdateMode.IN_PLACE, UpdateMode.IN_PLACE_OR_ROLLOUT)
_ROLLS = (UpdateMode.ROLLOUT, UpdateMode.IN_PLACE_OR_ROLLOUT)


@dataclass(slots=True)
class _Draft:
    memo: PlanMemo
    operations: list[Operation]
    steps: list[PodStep]
    reason: str = ""
    message: str = ""


def plan(
    *,
    observation: Observation,
    decision: Decision,
    spec: SimWorkloadSpec,
    memo: Mapping[str, object],
    now_seconds: float,
) -> Plan:
    """What to write now, where each pod stands, and when a deadline needs another look.

    Args:
        memo: `Plan.memo` of the last plan that had one, or an empty mapping.
        now_seconds: wall-clock time, seconds since the epoch.
    """
    known = load_plan_memo(memo)
    target = decision.target
    if observation.target is None or target is None:
        return Plan(progress=_standing(observation, None, spec, "nothing is decided yet"))
    mode = spec.update_policy.mode
    context = StepContext(
        spec=spec,
        container=observation.target.container,
        limit_range=observation.limit_range,
        room=_room(observation),
        now_seconds=now_seconds,
        native_sidecar=observation.target.native_sidecar,
    )
    known = known.without_gone({pod.uid for pod in observation.pods})
    # Under LimitsOnly another owner may be no conflict; the decision knows, and may write then.
    conflict = bool(observation.other_owners) and not decision.may_write
    if mode is UpdateMode.OFF or spec.suspend or conflict:
        words = "mode Off recommends only" if mode is UpdateMode.OFF else "nothing is written"
        return _finished(memo, known, _standing(observation, target, spec, words))
    if not decision.may_write:
        return _hold(observation, target, known, context, memo)
    if mode is UpdateMode.INITIAL:
        words = "mode Initial changes new pods only"
        made = _finished(memo, known, _standing(observation, target, spec, words))
        return _reaching_new_pods(made, observation.target.template_owner)
    known = _count_foreign(observation, target, known, context)
    if known.foreign_changes >= MAX_FOREIGN_CHANGES:
        words = f"something else changed the values back {known.foreign_changes} times; change the"
        words += " SimWorkload once that has ended"
        stopped = _finished(memo, known, _standing(observation, target, spec, words))
        return replace(stopped, reason=Reason.OTHER_MANAGER.value, message=words)
    draft = _Draft(known, [], [])
    if mode in _IN_PLACE:
        _in_place(draft, observation, target, context)
    if mode in _ROLLS:
        _roll(draft, observation, target, context)
    progress = _standing(observation, target, spec, "waiting for the rollout", steps=draft.steps)
    wakes = [s.wake_after_seconds for s in draft.steps if s.wake_after_seconds is not None]
    return replace(
        _finished(memo, draft.memo, progress),
        operations=tuple(draft.operations),
        wake_after_seconds=min(wakes, default=None),
        reason=draft.reason,
        message=draft.message[:512],
    )


def _reaching_new_pods(made: Plan, template_owner: str) -> Plan:
    """Says so where new pods come from a template that our webhook does not see."""
    if not template_owner:
        return made
    words = (
        f"new pods of {template_owner} are made without our webhook; set updatePolicy.mode InPlace"
    )
    return replace(made, reason=Reason.TEMPLATE_OWNED.value, message=words)


def _in_place(
    draft: _Draft, observation: Observation, target: PodTarget, context: StepContext
) -> None:
    pods = dict(draft.memo.pods)
    for pod in observation.running_pods:
        step = step_pod(pod, target, pods.get(pod.uid, PodEntry()), context)
        pods[pod.uid] = step.entry
        draft.steps.append(step)
        draft.operations.extend(step.operations)
    draft.memo = replace(draft.memo, pods=pods)


def _roll(draft: _Draft, observation: Observation, target: PodTarget, context: StepContext) -> None:
    template = observation.target
    if template is None:
        return
    always = context.spec.update_policy.mode is UpdateMode.ROLLOUT
    if template.template_owner and not always:
        return  # what stands in the way of the pods is the thing to say
    rolled_out = draft.memo.rollout is not None and template.rollout_in_progress
    if not (always or rolled_out or any(step.blocked for step in draft.steps)):
        return
    step = step_rollout(
        template,
        target,
        spec=context.spec,
        entry=draft.memo.rollout,
        again=always,
        now_seconds=context.now_seconds,
    )
    draft.memo = replace(draft.memo, rollout=step.entry)
    draft.reason, draft.message = str(step.reason), step.message
    if step.foreign_change:
        draft.memo = _one_more_foreign(draft.memo, observation.generation, context.now_seconds)
        if draft.memo.foreign_changes >= MAX_FOREIGN_CHANGES:
            draft.reason = Reason.OTHER_MANAGER.value
            return
    if step.operation is not None or step.reason == Reason.ROLLING_OUT:
        _leave_pods(draft)
    if step.operation is not None:
        draft.operations.append(step.operation)


def _leave_pods(draft: _Draft) -> None:
    """The pods are going to be replaced: only what frees room is still worth a write."""
    kept = [op for op in draft.operations if isinstance(op, ResizePod) and op.reverts]
    left = {op.uid for op in draft.operations} - {op.uid for op in kept}
    draft.memo = replace(
        draft.memo,
        pods={
            uid: replace(entry, cpu_asked=None, threads_asked=None) if uid in left else entry
            for uid, entry in draft.memo.pods.items()
        },
    )
    draft.steps = [step for step in draft.steps if step.progress.uid not in left]
    draft.operations = [*kept]


def _hold(
    observation: Observation,
    target: PodTarget,
    known: PlanMemo,
    context: StepContext,
    memo: Mapping[str, object],
) -> Plan:
    """Without good data nothing moves, but an ask of ours that waits is still taken back in time."""
    standing = _standing(observation, target, context.spec, "the last values are held")
    if context.spec.update_policy.mode not in _IN_PLACE:
        return _finished(memo, known, standing)
    pods = dict(known.pods)
    steps = []
    for pod in observation.running_pods:
        entry = pods.get(pod.uid, PodEntry())
        if entry.cpu_asked is None or entry.cpu_asked != _asked(pod):
            continue
        step = settle_resize(pod, entry, context)
        pods[pod.uid] = step.entry
        if step.progress.state is not PodState.UP_TO_DATE:
            steps.append(step)
    progress = _standing(observation, target, context.spec, "the last values are held", steps=steps)
    wakes = [s.wake_after_seconds for s in steps if s.wake_after_seconds is not None]
    return replace(
        _finished(memo, replace(known, pods=pods), progress),
        operations=tuple(op for step in steps for op in step.operations),
        wake_after_seconds=min(wakes, default=None),
    )


def _count_foreign(
    observation: Observation, target: PodTarget, memo: PlanMemo, context: StepContext
) -> PlanMemo:
    """One more when a pod no longer shows what the API server had taken from us."""
    expired = context.now_seconds - memo.foreign_at_seconds > FOREIGN_MEMORY_SECONDS
    below = memo.foreign_changes < MAX_FOREIGN_CHANGES
    if memo.foreign_changes and (
        memo.foreign_generation != observation.generation or (expired and below)
    ):
        memo = replace(memo, foreign_changes=0)
    if memo.foreign_changes >= MAX_FOREIGN_CHANGES:
        return memo
    pods = dict(memo.pods)
    found = False
    for pod in observation.running_pods:
        entry = pods.get(pod.uid)
        if entry is None:
            continue
        wanted = desired_cpu(pod, target, spec=context.spec, limit_range=context.limit_range)
        # What is wanted now anyway may be a write of ours whose record was lost.
        cpu = entry.cpu_asked is not None and _asked(pod) not in (entry.cpu_asked, wanted)
        threads = entry.threads_asked is not None and pod.desired_threads not in (
            entry.threads_asked,
            target.threads,
        )
        if cpu:
            entry = replace(entry, cpu_asked=None)
        if threads:
            entry = replace(entry, threads_asked=None)
        found = found or cpu or threads
        pods[pod.uid] = entry
    memo = replace(memo, pods=pods)
    return _one_more_foreign(memo, observation.generation, context.now_seconds) if found else memo


def _one_more_foreign(memo: PlanMemo, generation: int, now_seconds: float) -> PlanMemo:
    return replace(
        memo,
        foreign_changes=memo.foreign_changes + 1,
        foreign_generation=generation,
        foreign_at_seconds=now_seconds,
    )


def _standing(
    observation: Observation,
    target: PodTarget | None,
    spec: SimWorkloadSpec,
    words: str,
    *,
    steps: list[PodStep] | None = None,
) -> tuple[PodProgress, ...]:
    """Where each pod stands; for those without a step by comparing it with the target."""
    known = {step.progress.uid: step.progress for step in steps or []}
    progress = []
    for pod in observation.pods:
        if pod.terminating:
            continue
        if pod.uid in known:
            progress.append(known[pod.uid])
        elif pod.phase != "Running":
            progress.append(PodProgress(pod.name, pod.uid, PodState.STARTING))
        elif target is not None and _is_there(pod, target, spec, observation):
            progress.append(PodProgress(pod.name, pod.uid, PodState.UP_TO_DATE))
        else:
            progress.append(PodProgress(pod.name, pod.uid, PodState.NOT_APPLIED, words))
    return tuple(progress)


def _is_there(
    pod: PodObservation, target: PodTarget, spec: SimWorkloadSpec, observation: Observation
) -> bool:
    if pod.acknowledged_threads != target.threads:
        return False
    wanted = desired_cpu(pod, target, spec=spec, limit_range=observation.limit_range)
    applied = pod.applied_resources or pod.spec_resources
    return wanted is None or wanted == CpuAsk(
        applied.cpu_request_millicores, applied.cpu_limit_millicores
    )


def _room(observation: Observation) -> Room:
    return Room(
        node_free_millicores={n: node.free_millicores for n, node in observation.nodes.items()},
        static_nodes=frozenset(
            n for n, node in observation.nodes.items() if node.static_cpu_manager
        ),
        quota_request_millicores=observation.quota_free_request_millicores,
        quota_limit_millicores=observation.quota_free_limit_millicores,
    )


def _asked(pod: PodObservation) -> CpuAsk:
    resources = pod.spec_resources
    return CpuAsk(resources.cpu_request_millicores, resources.cpu_limit_millicores)


def _finished(
    before: Mapping[str, object], memo: PlanMemo, progress: tuple[PodProgress, ...]
) -> Plan:
    document = memo.to_json()
    return Plan(progress=progress, memo=None if document == before else document)
