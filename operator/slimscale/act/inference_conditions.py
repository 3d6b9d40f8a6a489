"""The conditions of a SlimInference: all of positive polarity, each with a reason. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slimscale.act.inference_names import InferenceNames
from slimscale.act.inference_policy import policy_condition
from slimscale.act.status_conditions import ConditionRow, dated
from slimscale.api.conditions import ConditionType, Reason
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import ChildResult, InferenceObservation, PodProblem
from slimscale.domain.scaling import ScalingDecision
from slimscale.kubeapi.ports import Json

__all__ = ["inference_conditions"]

_MOVING = frozenset({Reason.STARTING, Reason.CHILD_NOT_WRITTEN})
_PROBLEM_REASONS = {
    "Unschedulable": Reason.UNSCHEDULABLE,
    "ImagePullFailed": Reason.IMAGE_PULL_FAILED,
    "CrashLoop": Reason.CRASH_LOOP,
    "QuotaExceeded": Reason.QUOTA_EXCEEDED,
    "DeviceLost": Reason.DEVICE_LOST,
}
_SHOWN = 3
_NO_MATTER = (ConditionType.METRICS_AVAILABLE, ConditionType.POLICY_IN_USE)


def inference_conditions(
    *,
    observation: InferenceObservation,
    decision: ScalingDecision,
    failed: Sequence[ChildResult],
    spec: SlimInferenceSpec,
    previous: Iterable[Mapping[str, Any]],
    now_seconds: float,
) -> list[Json]:
    """All seven; lastTransitionTime moves only when a status does."""
    rows: list[ConditionRow] = [
        (ConditionType.SPEC_VALID, "True", Reason.VALID, ""),
        _applied(failed),
        _router(observation, spec),
        _pools(observation, decision),
        _metrics(observation, decision, routers=_ready_routers(observation)),
        policy_condition(observation, spec),
    ]
    rows.insert(0, _ready(rows))
    return dated(rows, observation.generation, previous, now_seconds)


def _applied(failed: Sequence[ChildResult]) -> ConditionRow:
    kind = ConditionType.APPLIED
    if not failed:
        return kind, "True", Reason.CHILDREN_APPLIED, ""
    by_reason = {result.reason for result in failed}
    if "NameTaken" in by_reason:
        reason = Reason.NAME_TAKEN
    elif "Refused" in by_reason:
        reason = Reason.CHILD_REFUSED
    elif "NotPermitted" in by_reason:
        reason = Reason.NOT_PERMITTED
    elif "OtherManagerReverts" in by_reason:
        reason = Reason.OTHER_MANAGER
    else:
        reason = Reason.CHILD_NOT_WRITTEN
    words = [f"{r.plural} {r.name}: {r.message}" for r in failed[:_SHOWN]]
    return kind, "False", reason, "; ".join(words)


def _router(observation: InferenceObservation, spec: SlimInferenceSpec) -> ConditionRow:
    kind = ConditionType.ROUTER_AVAILABLE
    ready = _ready_routers(observation)
    problem = next((p for p in observation.problems if not p.pool), None)
    if ready:
        words = f"{ready} of {spec.router.replicas} routers ready"
        return kind, "True", Reason.AVAILABLE, _with_problem(words, problem)
    if problem is not None:
        return kind, "False", _reason(problem), f"{problem.pod}: {problem.message}"
    return kind, "False", Reason.STARTING, "no router is ready yet"


def _pools(observation: InferenceObservation, decision: ScalingDecision) -> ConditionRow:
    """True while every pool that is to have pods has ready ones."""
    kind = ConditionType.POOLS_AVAILABLE
    wanted = {pool.name: pool.replicas for pool in decision.pools}
    ready = {pool.name: len(pool.ready_pods) for pool in observation.scaling.pools}
    problems = [problem for problem in observation.problems if problem.pool]
    if not any(wanted.values()) and not any(ready.values()):
        words = "no pool has pods; the first request starts one"
        return kind, "True", Reason.SCALED_TO_ZERO, words
    empty = [name for name, count in wanted.items() if count and not ready.get(name)]
    words = ", ".join(f"{name} {ready.get(name, 0)}/{count}" for name, count in wanted.items())
    if not empty:
        return kind, "True", Reason.AVAILABLE, _with_problem(f"ready pods: {words}", *problems)
    mine = next((problem for problem in problems if problem.pool in empty), None)
    if mine is not None:
        text = f"pool {mine.pool}: {mine.pod} {mine.message}".replace("  ", " ")
        return kind, "False", _reason(mine), text
    return kind, "False", Reason.STARTING, f"ready pods: {words}"


def _ready_routers(observation: InferenceObservation) -> int:
    live = observation.deployment(InferenceNames(observation.name).router)
    return int(((live or {}).get("status") or {}).get("readyReplicas", 0))


def _metrics(
    observation: InferenceObservation, decision: ScalingDecision, *, routers: int
) -> ConditionRow:
    kind = ConditionType.METRICS_AVAILABLE
    demand = observation.scaling.demand
    if demand is None and not routers:
        return kind, "Unknown", Reason.WARMING_UP, "no router is ready yet"
    if demand is None:
        words = "no router could be asked; replicas stay as they are"
        return kind, "False", Reason.METRICS_MISSING, words
    if not decision.metrics_available:
        words = f"{demand.routers_answering} of {demand.routers} routers answered"
        return kind, "False", Reason.METRICS_PARTIAL, f"{words}; nothing is scaled down"
    return kind, "True", Reason.METRICS_FOUND, decision.message


def _ready(rows: Sequence[ConditionRow]) -> ConditionRow:
    """Missing figures keep nobody from being served, nor does a policy whose stead another takes."""
    bad = [row for row in rows if row[1] != "True" and row[0] not in _NO_MATTER]
    if not bad:
        return ConditionType.READY, "True", Reason.UP_TO_DATE, ""
    first = next((row for row in bad if row[2] not in _MOVING), bad[0])
    reason = Reason.PROGRESSING if first[2] in _MOVING else first[2]
    return ConditionType.READY, "False", reason, first[3]


def _reason(problem: PodProblem) -> Reason:
    return _PROBLEM_REASONS.get(problem.reason, Reason.PODS_MISSING)


def _with_problem(words: str, *problems: PodProblem | None) -> str:
    known = next((problem for problem in problems if problem is not None), None)
    return words if known is None else f"{words}; {known.pod} {known.reason}: {known.message}"
