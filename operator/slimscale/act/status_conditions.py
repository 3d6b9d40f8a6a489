"""The conditions of a SimWorkload: all of positive polarity, each with a reason from the API. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from slimscale.act.builders import rfc3339
from slimscale.api.conditions import ConditionType, Reason
from slimscale.api.simworkload import ControlledValues, SimWorkloadSpec, UpdateMode
from slimscale.domain.decision import Decision
from slimscale.domain.observation import ConflictKind, Observation
from slimscale.domain.plan import ApplyResult, Plan, PodState
from slimscale.kubeapi.ports import Json

__all__ = ["ConditionRow", "conditions_of", "dated", "invalid_conditions"]

MESSAGE_LIMIT = 1024
_METRICS_GOOD = frozenset({Reason.METRICS_FOUND, Reason.METRICS_PARTIAL, Reason.IDLE})
_WORST_FIRST = (
    PodState.RESIZE_REFUSED,
    PodState.RESIZE_INFEASIBLE,
    PodState.RESIZE_ERROR,
    PodState.RESIZE_UNSUPPORTED,
    PodState.NO_LIVE_CHANNEL,
    PodState.NOT_ACKNOWLEDGED,
    PodState.RESIZE_DEFERRED,
    PodState.RESIZE_IN_PROGRESS,
    PodState.AWAITING_ACKNOWLEDGEMENT,
    PodState.NOT_APPLIED,
    PodState.STARTING,
)
_MOVING = frozenset(
    {
        Reason.RESIZE_IN_PROGRESS,
        Reason.AWAITING_ACKNOWLEDGEMENT,
        Reason.ROLLING_OUT,
        Reason.RESIZE_DEFERRED,
        Reason.PROGRESSING,
    }
)

ConditionRow = tuple[ConditionType, str, str, str]
"""(type, status, reason, message)"""


def conditions_of(
    *,
    observation: Observation,
    decision: Decision,
    plan: Plan,
    result: ApplyResult,
    spec: SimWorkloadSpec,
    previous: Iterable[Mapping[str, Any]],
    now_seconds: float,
) -> list[Json]:
    """All seven; lastTransitionTime moves only when a status does."""
    rows: list[ConditionRow] = [
        (ConditionType.SPEC_VALID, "True", Reason.VALID, ""),
        _target_resolved(observation),
        _metrics_available(observation, decision),
        _recommendation(decision),
        _no_conflict(observation, plan, spec),
        _applied(observation, plan, result, spec),
    ]
    rows.insert(0, _ready(rows, decision, spec))
    return dated(rows, observation.generation, previous, now_seconds)


def invalid_conditions(
    *,
    problems: list[str],
    generation: int,
    previous: Iterable[Mapping[str, Any]],
    now_seconds: float,
) -> list[Json]:
    """SpecValid and Ready are False; the others are kept, with the generation they were seen at."""
    before = list(previous)
    message = "; ".join(problems) or "the spec is not valid"
    rows: list[ConditionRow] = [
        (ConditionType.READY, "False", Reason.INVALID, message),
        (ConditionType.SPEC_VALID, "False", Reason.INVALID, message),
    ]
    changed = {row[0].value for row in rows}
    kept = [dict(c) for c in before if c.get("type") not in changed]
    return dated(rows, generation, before, now_seconds) + kept


def _target_resolved(observation: Observation) -> ConditionRow:
    kind = ConditionType.TARGET_RESOLVED
    target = observation.target
    if target is None:
        reason = observation.target_problem or Reason.TARGET_NOT_FOUND
        return kind, "False", reason, observation.target_message
    if not any(not pod.terminating for pod in observation.pods):
        return kind, "True", Reason.NO_PODS, f"{target.kind} {target.name} has no pods"
    words = f"{target.kind} {target.name}, container {target.container}"
    return kind, "True", Reason.TARGET_FOUND, words


def _metrics_available(observation: Observation, decision: Decision) -> ConditionRow:
    kind = ConditionType.METRICS_AVAILABLE
    reason, message = decision.metrics_reason, decision.metrics_message
    if observation.target is None:
        return kind, "Unknown", reason, "there is no target to measure"
    if reason in _METRICS_GOOD:
        return kind, "True", reason, message
    return kind, "Unknown" if reason == Reason.WARMING_UP else "False", reason, message


def _recommendation(decision: Decision) -> ConditionRow:
    status = "False" if decision.target is None else "True"
    return ConditionType.RECOMMENDATION_PROVIDED, status, decision.reason, decision.message


def _no_conflict(observation: Observation, plan: Plan, spec: SimWorkloadSpec) -> ConditionRow:
    """LimitsOnly leaves the requests to an HPA or a VPA: then the two do not meet."""
    kind = ConditionType.NO_CONFLICT
    limits_only = spec.cpu.controlled_values is ControlledValues.LIMITS_ONLY
    owners = [
        o
        for o in observation.other_owners
        if o.kind is ConflictKind.SECOND_SIMWORKLOAD or not limits_only
    ]
    if owners:
        owner = owners[0]
        names = ", ".join(o.name for o in owners)
        words = f"{names}: also decides about this target; remove one of the two"
        return kind, "False", owner.kind.value, words
    if plan.reason == Reason.OTHER_MANAGER:
        return kind, "False", Reason.OTHER_MANAGER, plan.message
    return kind, "True", Reason.NO_OTHER_OWNER, ""


def _applied(
    observation: Observation, plan: Plan, result: ApplyResult, spec: SimWorkloadSpec
) -> ConditionRow:
    kind = ConditionType.APPLIED
    if observation.target is None or not plan.progress:
        return kind, "Unknown", Reason.NO_PODS, "there are no pods to apply anything to"
    if spec.update_policy.mode is UpdateMode.OFF:
        return kind, "False", Reason.NOT_APPLIED, "mode Off recommends only"
    refused = [r for r in result.results if r.reason in ("NotPermitted", "Refused")]
    if refused:
        reason = (
            Reason.NOT_PERMITTED if refused[0].reason == "NotPermitted" else Reason.RESIZE_REFUSED
        )
        return kind, "False", reason, refused[0].message
    if plan.reason and plan.reason != Reason.OTHER_MANAGER:
        return kind, "False", plan.reason, plan.message
    states = [p.state for p in plan.progress]
    for state in _WORST_FIRST:
        if state in states:
            there = [p for p in plan.progress if p.state is state]
            words = f"{len(there)} of {len(states)} pods; {there[0].pod}: {there[0].message}"
            reason_text = Reason.PROGRESSING if state is PodState.STARTING else state.value
            return kind, "False", reason_text, words.rstrip(": ")
    return kind, "True", Reason.ALL_ACKNOWLEDGED, f"all {len(states)} pods"


def _ready(rows: list[ConditionRow], decision: Decision, spec: SimWorkloadSpec) -> ConditionRow:
    kind = ConditionType.READY
    by_kind = {row[0]: row for row in rows}
    if spec.suspend:
        return kind, "False", Reason.SUSPENDED, "spec.suspend is true: nothing is written"
    # In this order: the first that is not True is the one to mend first.
    for needed in (
        ConditionType.TARGET_RESOLVED,
        ConditionType.NO_CONFLICT,
        ConditionType.METRICS_AVAILABLE,
        ConditionType.RECOMMENDATION_PROVIDED,
    ):
        _, status, reason, message = by_kind[needed]
        # floor(quota) is the answer to pods without metrics, and a sound one.
        floor = needed is ConditionType.METRICS_AVAILABLE and decision.reason == (
            Reason.FLOOR_OF_QUOTA
        )
        if status != "True" and not floor:
            return kind, "False", reason, message
    if spec.update_policy.mode is UpdateMode.OFF:
        return kind, "True", Reason.RECOMMENDATION_ONLY, decision.message
    _, status, reason, message = by_kind[ConditionType.APPLIED]
    if status == "True":
        return kind, "True", Reason.UP_TO_DATE, decision.message
    if reason in _MOVING:
        return kind, "False", Reason.PROGRESSING, message
    return kind, "False", reason, message


def dated(
    rows: list[ConditionRow],
    generation: int,
    previous: Iterable[Mapping[str, Any]],
    now_seconds: float,
) -> list[Json]:
    before = {c.get("type"): c for c in previous}
    conditions: list[Json] = []
    for kind, status, reason, message in rows:
        old = before.get(kind.value) or {}
        same = old.get("status") == status and old.get("lastTransitionTime")
        conditions.append(
            {
                "type": kind.value,
                "status": status,
                "reason": str(reason)[:64] or "Unknown",
                "message": _shortened(message),
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else rfc3339(now_seconds),
            }
        )
    return conditions


def _shortened(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
