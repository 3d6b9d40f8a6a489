"""One running pod, one step nearer to its target. Pure; the order of the writes is the point.

Threads shrink before CPU, and CPU is lowered only once the pod itself has acknowledged; CPU grows
before threads, which are raised only once the kubelet has applied it. What stands is what the pod
and the kubelet report, never what was asked for.
"""

from dataclasses import dataclass, replace

from slimscale.act.plan_memo import CpuAsk, PodEntry, Refusal
from slimscale.act.resize_policy import Objection, Room, desired_cpu, object_to
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    LimitRangeBounds,
    PodObservation,
    ResizeState,
)
from slimscale.domain.plan import Operation, PodProgress, PodState, ResizePod, SetThreads

__all__ = ["PodStep", "StepContext", "settle_resize", "step_pod"]

_PENDING_STATES = {
    ResizeState.DEFERRED: PodState.RESIZE_DEFERRED,
    ResizeState.INFEASIBLE: PodState.RESIZE_INFEASIBLE,
    ResizeState.ERROR: PodState.RESIZE_ERROR,
    ResizeState.IN_PROGRESS: PodState.RESIZE_IN_PROGRESS,
    ResizeState.PROPOSED: PodState.RESIZE_IN_PROGRESS,
    ResizeState.NONE: PodState.RESIZE_IN_PROGRESS,
}
_BLOCKED = frozenset(
    {
        PodState.RESIZE_UNSUPPORTED,
        PodState.RESIZE_INFEASIBLE,
        PodState.RESIZE_DEFERRED,
        PodState.RESIZE_ERROR,
        PodState.RESIZE_REFUSED,
        PodState.NO_LIVE_CHANNEL,
    }
)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What is the same for all pods of one plan; `room` shrinks as they take from it."""

    spec: SimWorkloadSpec
    container: str
    limit_range: LimitRangeBounds
    room: Room
    now_seconds: float
    native_sidecar: bool = False
    """The container is a native sidecar."""


@dataclass(frozen=True, slots=True)
class PodStep:
    progress: PodProgress
    entry: PodEntry
    operations: tuple[Operation, ...] = ()
    wake_after_seconds: float | None = None
    blocked: bool = False
    """In place it goes no further: where the mode allows it, a rollout would."""


def step_pod(
    pod: PodObservation, target: PodTarget, entry: PodEntry, context: StepContext
) -> PodStep:
    """The next step of a running pod. At most one write of its threads and one of its CPU."""
    settled = settle_resize(pod, entry, context)
    if settled.operations:
        return settled
    entry = settled.entry
    ask = desired_cpu(pod, target, spec=context.spec, limit_range=context.limit_range)
    pending = settled.progress.state is not PodState.UP_TO_DATE
    if pending and (ask is None or ask == _as_ask(pod.spec_resources)):
        return _while_pending(pod, target, settled, context)
    applied = _as_ask(pod.applied_resources or pod.spec_resources)
    if ask is None or ask == applied == _as_ask(pod.spec_resources):
        return _threads_alone(pod, target, entry, context)
    objection = object_to(
        pod,
        ask,
        spec=context.spec,
        room=context.room,
        refusal=entry.refusal,
        now_seconds=context.now_seconds,
    )
    if _grows(applied, ask):
        return _grow(pod, target, ask, entry, context, objection=objection)
    return _shrink(pod, target, ask, entry, context, objection=objection)


def settle_resize(pod: PodObservation, entry: PodEntry, context: StepContext) -> PodStep:
    """Where a resize that was asked for stands: done, waiting, or to be taken back now.

    An ask that waits keeps room on the node from others, so that none waits without an end.
    """
    asked = _as_ask(pod.spec_resources)
    applied = pod.applied_resources
    state = pod.resize.state
    hopeless = state is ResizeState.INFEASIBLE
    if (applied is None and state is ResizeState.NONE) or (
        applied is not None and _as_ask(applied) == asked
    ):
        # A condition that is still there belongs to an ask that was taken back.
        return PodStep(_progress(pod, PodState.UP_TO_DATE), _done(entry, asked))
    since = entry.pending_since_seconds
    if since is None:
        since = context.now_seconds
    entry = replace(entry, pending_since_seconds=since)
    kind = _PENDING_STATES[state]
    left = since + context.spec.update_policy.resize_deadline_seconds - context.now_seconds
    words = pod.resize.message or f"the kubelet has not applied {_words(asked)} yet"
    if (hopeless or left <= 0) and applied is not None:
        return _revert(pod, asked, applied, entry, context, kind=kind, words=words)
    return PodStep(_progress(pod, kind, words), entry, wake_after_seconds=max(left, 1.0))


def _revert(
    pod: PodObservation,
    asked: CpuAsk,
    applied: ContainerResources,
    entry: PodEntry,
    context: StepContext,
    *,
    kind: PodState,
    words: str,
) -> PodStep:
    # A value that was added cannot be removed again: Kubernetes refuses that.
    back = CpuAsk(
        applied.cpu_request_millicores or asked.request,
        applied.cpu_limit_millicores or asked.limit,
    )
    if back == asked:
        return PodStep(_progress(pod, kind, words), entry, blocked=True)
    free = context.room.node_free_millicores.get(pod.node)
    if free is not None:
        free += (asked.request or 0) - (back.request or 0)
    sticky = "static" in words.lower()  # a matter of the node's configuration, not of its room
    previous = entry.refusal
    times = previous.times + 1 if previous is not None and previous.ask == asked else 1
    text = f"{_words(asked)} taken back to {_words(back)}: {words}"
    refusal = Refusal(
        ask=asked,
        at_seconds=context.now_seconds,
        why=kind.value,
        message=text[:300],
        free_millicores=None if sticky else free,
        times=times,
        may_retry=kind in (PodState.RESIZE_ERROR, PodState.RESIZE_IN_PROGRESS),
    )
    return PodStep(
        _progress(pod, kind, text),
        replace(entry, cpu_asked=back, pending_since_seconds=None, refusal=refusal),
        (_resize(pod, back, context, reason=kind.value, reverts=True),),
        wake_after_seconds=float(context.spec.update_policy.resize_deadline_seconds),
        blocked=True,
    )


def _while_pending(
    pod: PodObservation, target: PodTarget, settled: PodStep, context: StepContext
) -> PodStep:
    """Fewer threads are safe at once; more wait for the CPU."""
    standing = pod.acknowledged_threads
    if not pod.has_live_channel or standing is None or standing <= target.threads:
        return settled
    threads = _threads_alone(pod, target, settled.entry, context)
    return replace(settled, operations=threads.operations, entry=threads.entry)


def _grow(
    pod: PodObservation,
    target: PodTarget,
    ask: CpuAsk,
    entry: PodEntry,
    context: StepContext,
    *,
    objection: Objection | None,
) -> PodStep:
    fewer = pod.acknowledged_threads is not None and pod.acknowledged_threads >= target.threads
    unbounded = pod.spec_resources.cpu_limit_millicores is None
    threads = _threads_alone(pod, target, entry, context)
    if objection is not None:
        if (fewer or unbounded) and not threads.blocked:
            # Threads do not wait for CPU that nothing holds back, and fewer need none.
            return _with_objection(threads, objection)
        return PodStep(
            _progress(pod, objection.state, objection.message), entry, blocked=_rolls(objection)
        )
    if threads.progress.state is PodState.NO_LIVE_CHANNEL:
        return threads  # more CPU for threads that cannot come
    if not fewer:
        threads = PodStep(threads.progress, entry)
    return _ask_for(pod, ask, threads, context)


def _shrink(
    pod: PodObservation,
    target: PodTarget,
    ask: CpuAsk,
    entry: PodEntry,
    context: StepContext,
    *,
    objection: Objection | None,
) -> PodStep:
    threads = _threads_alone(pod, target, entry, context)
    if threads.progress.state is not PodState.UP_TO_DATE:
        return threads  # not acknowledged: the CPU that the old count uses stays
    if objection is not None:
        return _with_objection(threads, objection)
    return _ask_for(pod, ask, threads, context)


def _ask_for(pod: PodObservation, ask: CpuAsk, threads: PodStep, context: StepContext) -> PodStep:
    context.room.take(pod, ask)
    since = threads.entry.pending_since_seconds
    deadline = float(context.spec.update_policy.resize_deadline_seconds)
    return PodStep(
        _progress(pod, PodState.RESIZE_IN_PROGRESS, f"asked for {_words(ask)}"),
        replace(
            threads.entry,
            cpu_asked=ask,
            pending_since_seconds=context.now_seconds if since is None else since,
        ),
        (*threads.operations, _resize(pod, ask, context, reason="Target")),
        wake_after_seconds=deadline,
    )


def _threads_alone(
    pod: PodObservation, target: PodTarget, entry: PodEntry, context: StepContext
) -> PodStep:
    """Bring the threads to the target; the CPU allows it."""
    standing = pod.acknowledged_threads
    if not pod.has_live_channel:
        if standing == target.threads:
            return PodStep(_progress(pod, PodState.UP_TO_DATE), entry)
        return PodStep(
            _progress(
                pod,
                PodState.NO_LIVE_CHANNEL,
                "the container mounts no thread annotation; label the pod template with"
                " slimscale.dev/inject=true or follow docs/contract.md",
            ),
            entry,
            blocked=True,
        )
    operations: tuple[Operation, ...] = ()
    if pod.desired_threads != target.threads:
        operations = (SetThreads(pod.name, pod.uid, target.threads, reason="Target"),)
    if operations or entry.threads_asked != target.threads:
        entry = replace(
            entry, threads_asked=target.threads, threads_asked_at_seconds=context.now_seconds
        )
    if standing == target.threads:
        return PodStep(_progress(pod, PodState.UP_TO_DATE), entry, operations)
    deadline = context.spec.update_policy.acknowledge_deadline_seconds
    left = entry.threads_asked_at_seconds + deadline - context.now_seconds
    reports = "reports no thread count" if standing is None else f"reports {standing} threads"
    if left > 0:
        words = f"asked for {target.threads} threads, the pod {reports}"
        state = PodState.AWAITING_ACKNOWLEDGEMENT
        # The acknowledgement comes with a sample of metrics, which is no event that wakes us.
        look = max(1.0, min(left, float(context.spec.metrics.interval_seconds)))
        return PodStep(_progress(pod, state, words), entry, operations, wake_after_seconds=look)
    words = f"{reports} {deadline} s after it was asked for {target.threads}"
    return PodStep(_progress(pod, PodState.NOT_ACKNOWLEDGED, words), entry, operations)


def _with_objection(threads: PodStep, objection: Objection) -> PodStep:
    """Threads go on; what is shown is why the CPU does not."""
    if threads.progress.state in (PodState.UP_TO_DATE, PodState.AWAITING_ACKNOWLEDGEMENT):
        progress = replace(threads.progress, state=objection.state, message=objection.message)
        threads = replace(threads, progress=progress)
    return replace(threads, blocked=_rolls(objection))


def _rolls(objection: Objection) -> bool:
    return objection.state in _BLOCKED


def _grows(applied: ContainerResources | CpuAsk, ask: CpuAsk) -> bool:
    """By the limit, which is what threads feel; by the request where the limit stays."""
    before = applied if isinstance(applied, CpuAsk) else _as_ask(applied)
    unlimited = 10**9
    limits = (before.limit or unlimited, ask.limit or unlimited)
    if limits[0] != limits[1]:
        return limits[1] > limits[0]
    return (ask.request or 0) > (before.request or 0)


def _done(entry: PodEntry, asked: CpuAsk) -> PodEntry:
    refusal = entry.refusal
    if refusal is not None and refusal.ask == asked:
        refusal = None  # the size that was refused has been applied after all
    return replace(entry, pending_since_seconds=None, refusal=refusal)


def _resize(
    pod: PodObservation, ask: CpuAsk, context: StepContext, *, reason: str, reverts: bool = False
) -> ResizePod:
    """Only what differs from the spec goes into the patch."""
    current = _as_ask(pod.spec_resources)
    return ResizePod(
        pod=pod.name,
        uid=pod.uid,
        container=context.container,
        cpu_request_millicores=ask.request if ask.request != current.request else None,
        cpu_limit_millicores=ask.limit if ask.limit != current.limit else None,
        reason=reason,
        reverts=reverts,
        native_sidecar=context.native_sidecar,
    )


def _as_ask(resources: ContainerResources) -> CpuAsk:
    return CpuAsk(resources.cpu_request_millicores, resources.cpu_limit_millicores)


def _progress(pod: PodObservation, state: PodState, message: str = "") -> PodProgress:
    return PodProgress(pod.name, pod.uid, state, message[:512])


def _words(ask: CpuAsk) -> str:
    request = "none" if ask.request is None else f"{ask.request}m"
    limit = "none" if ask.limit is None else f"{ask.limit}m"
    return f"CPU request {request}, limit {limit}"
