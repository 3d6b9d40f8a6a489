"""Changes of the pod template: only where the mode allows them, once a target, taken back once.

The template is written by server-side apply, which removes what a manager leaves out: everything
that we set before and still want is therefore in each patch.
"""

from dataclasses import dataclass, replace

from slimscale.act.plan_memo import CpuAsk, RolloutEntry
from slimscale.act.resize_policy import wanted_cpu
from slimscale.act.thread_env import append_java_option, thread_variables, threads_of_a_process
from slimscale.api.conditions import Reason
from slimscale.api.simworkload import MAX_THREADS, SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import TargetObservation
from slimscale.domain.plan import PatchTemplate

__all__ = ["ROLLED_KINDS", "RolloutStep", "step_rollout", "template_cpu", "template_variables"]

ROLLED_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
"""A ReplicaSet's template does not reach its running pods."""
ROLLOUT_DEADLINE_SECONDS = 1800.0
POD_DEADLINE_SECONDS = 600.0
"""As a Deployment's default, for each pod: these kinds replace them one after the other."""
_MARKER = "SLIMSCALE_THREADS"


@dataclass(frozen=True, slots=True)
class RolloutStep:
    entry: RolloutEntry | None
    operation: PatchTemplate | None = None
    reason: str = ""
    message: str = ""
    foreign_change: bool = False
    """The template showed our target once, and is now given it again."""


def step_rollout(
    template: TargetObservation,
    target: PodTarget,
    *,
    spec: SimWorkloadSpec,
    entry: RolloutEntry | None,
    again: bool,
    now_seconds: float,
) -> RolloutStep:
    """The next step towards a template that shows the target.

    Args:
        template: the workload as it stands.
        entry: what was rolled out last.
        again: whether a target that someone took out of the template may be put back.
    """
    if template.template_owner:
        words = (
            f"the pod template of {template.kind} {template.name} belongs to"
            f" {template.template_owner}, which would change it back; set updatePolicy.mode InPlace"
        )
        return RolloutStep(entry, reason=Reason.TEMPLATE_OWNED, message=words)
    if template.kind not in ROLLED_KINDS:
        words = f"a {template.kind} does not roll out its template; target its owner instead"
        return RolloutStep(entry, reason=Reason.RESIZE_UNSUPPORTED, message=words)
    variables = template_variables(template, target.threads, spec=spec)
    cpu = template_cpu(template, target, spec=spec, owned=entry is not None)
    same = entry is not None and (entry.threads, entry.cpu) == (target.threads, cpu)
    standing = _standing(template, entry, same=same, now_seconds=now_seconds)
    if standing is not None:
        return standing
    if _shows(template, variables, cpu):
        return RolloutStep(entry)
    if same and not again:
        words = "the template was changed back by someone else; a target is rolled out once"
        return RolloutStep(entry, reason=Reason.NOT_APPLIED, message=words)
    fresh = RolloutEntry(
        threads=target.threads,
        cpu=cpu,
        at_seconds=now_seconds,
        before_cpu=_cpu_of(template),
        before_env=tuple(sorted(_own_variables(template).items())),
    )
    operation = _patch(template, variables, cpu, threads=target.threads, reason="Target")
    words = f"rolling out {target.threads} threads"
    return RolloutStep(
        fresh, operation, reason=Reason.ROLLING_OUT, message=words, foreign_change=same
    )


def _standing(
    template: TargetObservation, entry: RolloutEntry | None, *, same: bool, now_seconds: float
) -> RolloutStep | None:
    """What the last rollout still has to say; None: the way is free."""
    if entry is not None:
        if not entry.rolled_back and _failed(template, entry, now_seconds):
            return _roll_back(template, entry)
        if same and entry.rolled_back:
            words = f"the rollout to {entry.threads} threads failed and was taken back"
            return RolloutStep(entry, reason=Reason.ROLLOUT_FAILED, message=words)
        if same and entry.refused:
            return RolloutStep(entry, reason=Reason.RESIZE_REFUSED, message=entry.refused)
    if template.rollout_in_progress:
        words = f"{template.kind} {template.name} is rolling out"
        return RolloutStep(entry, reason=Reason.ROLLING_OUT, message=words)
    return None


def _failed(template: TargetObservation, entry: RolloutEntry, now_seconds: float) -> bool:
    """By the Deployment's own deadline; the other kinds have none, so they get one here."""
    if not _is_of(template, entry):
        return False
    deadline = max(ROLLOUT_DEADLINE_SECONDS, POD_DEADLINE_SECONDS * template.desired_replicas)
    late = now_seconds - entry.at_seconds > deadline
    hangs = template.kind != "Deployment" and template.rollout_in_progress and late
    return template.rollout_failed or hangs


def template_variables(
    template: TargetObservation, threads: int, *, spec: SimWorkloadSpec
) -> dict[str, str]:
    """The variables to set: all known ones, except those that users set themselves."""
    each = threads_of_a_process(threads, spec.threads.processes_per_pod)
    wanted = thread_variables(each, extra_names=spec.threads.env)
    override = spec.threads.override_user_env
    present, own = template.template_env, _own_variables(template)
    opaque = set(template.template_opaque_env)
    chosen = {
        name: value
        for name, value in wanted.items()
        if override
        or (name not in present and name not in opaque)
        or name in own
        or present.get(name) == value
    }
    if spec.threads.java_tool_options:
        # Options can be appended to, never replaced: where the user has some, the webhook does it.
        for entry in append_java_option([], each):
            name, value = entry["name"], entry["value"]
            if name not in opaque and (name not in present or name in own or override):
                chosen[name] = value
    return chosen


def template_cpu(
    template: TargetObservation, target: PodTarget, *, spec: SimWorkloadSpec, owned: bool
) -> CpuAsk:
    """CPU to set. Once ours, what stands is repeated: leaving it out would remove it."""
    ask = wanted_cpu(template.template_resources, target, spec=spec)
    if ask is not None:
        return ask
    return _cpu_of(template) if owned or _own_variables(template) else CpuAsk(None, None)


def _own_variables(template: TargetObservation) -> dict[str, str]:
    """Those of the template that an earlier rollout of ours set, told by their common count."""
    present = template.template_env
    text = present.get(_MARKER, "")
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:6]) <= MAX_THREADS:
        return {}
    names = set(present)
    each = int(text)
    earlier = thread_variables(each, extra_names=sorted(names))
    earlier |= {e["name"]: e["value"] for e in append_java_option([], each)}
    return {name: value for name, value in earlier.items() if present.get(name) == value}


def _shows(template: TargetObservation, variables: dict[str, str], cpu: CpuAsk) -> bool:
    current = _cpu_of(template)
    return (
        all(template.template_env.get(name) == value for name, value in variables.items())
        and cpu.request in (None, current.request)
        and cpu.limit in (None, current.limit)
    )


def _is_of(template: TargetObservation, entry: RolloutEntry) -> bool:
    current = _cpu_of(template)
    return (
        _MARKER in template.template_env
        and entry.cpu.request in (None, current.request)
        and entry.cpu.limit in (None, current.limit)
    )


def _roll_back(template: TargetObservation, entry: RolloutEntry) -> RolloutStep:
    words = f"the rollout to {entry.threads} threads failed; the template is set back, once"
    operation = _patch(
        template, dict(entry.before_env), entry.before_cpu, threads=entry.threads, reason="RollBack"
    )
    return RolloutStep(
        replace(entry, rolled_back=True), operation, reason=Reason.ROLLOUT_FAILED, message=words
    )


def _patch(
    template: TargetObservation, env: dict[str, str], cpu: CpuAsk, *, threads: int, reason: str
) -> PatchTemplate:
    return PatchTemplate(
        kind=template.kind,
        name=template.name,
        uid=template.uid,
        container=template.container,
        env=tuple(sorted(env.items())),
        cpu_request_millicores=cpu.request,
        cpu_limit_millicores=cpu.limit,
        threads=threads,
        reason=reason,
        native_sidecar=template.native_sidecar,
    )


def _cpu_of(template: TargetObservation) -> CpuAsk:
    resources = template.template_resources
    return CpuAsk(resources.cpu_request_millicores, resources.cpu_limit_millicores)
