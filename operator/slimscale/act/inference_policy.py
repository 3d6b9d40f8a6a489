"""What the routers tell of their policy, as a condition and as figures of the status. Pure."""

from collections.abc import Sequence

from slimscale.act.status_conditions import ConditionRow
from slimscale.api.conditions import ConditionType, Reason
from slimscale.api.serving_config import PolicyName, RoutingMode
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import InferenceObservation, PolicyReport, RouterReport
from slimscale.kubeapi.ports import Json

__all__ = ["policy_condition", "routing_status"]

_STAGES = ("Shadow", "Canary", "Active")
_MADE_BY = "`slimscale train router` makes such a ConfigMap"
_MOST_WORDS = 900


def policy_condition(observation: InferenceObservation, spec: SlimInferenceSpec) -> ConditionRow:
    """True: the policy has the share of requests that the spec asks for, on every router that told."""
    kind, asked = ConditionType.POLICY_IN_USE, spec.routing.policy
    missing = _missing(observation, spec) if asked is PolicyName.PPO else ""
    if missing:
        words = f"{missing}; the last policy or ColdAwareSED answers"
        return kind, "False", Reason.POLICY_NOT_FOUND, words
    told = _told(observation.reports, spec)
    if told:
        return _as_told(told, spec)
    if asked is not PolicyName.PPO and spec.routing.mode is RoutingMode.ACTIVE:
        return kind, "True", Reason.IN_USE, asked.value
    return kind, "Unknown", Reason.WARMING_UP, "no router has told of this policy yet"


def _as_told(
    told: Sequence[tuple[RouterReport, PolicyReport]], spec: SlimInferenceSpec
) -> ConditionRow:
    kind = ConditionType.POLICY_IN_USE
    for report, policy in told:
        if policy.error:
            words = f"{report.router}: {policy.error}"[:_MOST_WORDS]
            return kind, "False", Reason.POLICY_REFUSED, words
    report, policy = min(told, key=lambda one: _order(one[1]))
    if not policy.stage or policy.stage == spec.routing.mode.value:
        return kind, "True", _well(spec), _summary(told, spec.routing.policy)
    words = f"{report.router}: {policy.stage}: {policy.words}"[:_MOST_WORDS]
    if not policy.falls:
        return kind, "Unknown", Reason.PROVING, words
    worse = policy.reason == Reason.WORSE_THAN_INCUMBENT
    reason = Reason.WORSE_THAN_INCUMBENT if worse else Reason.SLO_BURN
    back = f"{words}; {policy.acting} answers, and it is tried again by itself"
    return kind, "False", reason, back


def routing_status(observation: InferenceObservation, spec: SlimInferenceSpec) -> Json:
    """`status.routing`: of the router that is furthest behind."""
    status: Json = {"policy": spec.routing.policy.value}
    told = _told(observation.reports, spec)
    if told:
        _, policy = min(told, key=lambda one: _order(one[1]))
        shares = [p.overruled_share for _, p in told if p.overruled_share is not None]
        status |= {
            "acting": policy.acting,
            "stage": policy.stage,
            "version": policy.version,
            "overruledShare": float(f"{sum(shares) / len(shares):.3g}") if shares else None,
        }
    return {key: value for key, value in status.items() if value not in (None, "")}


def _missing(observation: InferenceObservation, spec: SlimInferenceSpec) -> str:
    """What the named ConfigMap lacks, in words; empty: nothing, or none is named."""
    found = observation.policy_file
    if spec.routing.learned.policy_config_map is None or found is None:
        return ""
    if not found.exists:
        return f"there is no ConfigMap {found.name} in this namespace; {_MADE_BY}"
    if found.missing_keys:
        keys = " and ".join(found.missing_keys)
        return f"ConfigMap {found.name} has no {keys}; {_MADE_BY}"
    return ""


def _told(
    reports: Sequence[RouterReport], spec: SlimInferenceSpec
) -> list[tuple[RouterReport, PolicyReport]]:
    """Of the routers that have taken this policy up."""
    return [
        (report, report.policy)
        for report in reports
        if report.policy is not None and report.policy.asked == spec.routing.policy.value
    ]


def _order(policy: PolicyReport) -> tuple[int, int]:
    """The least first: what stands furthest back, and of those the one that has fallen."""
    stage = _STAGES.index(policy.stage) if policy.stage in _STAGES else len(_STAGES)
    return stage, -policy.falls


def _well(spec: SlimInferenceSpec) -> Reason:
    if spec.routing.mode is RoutingMode.SHADOW:
        return Reason.IN_SHADOW
    return Reason.CANARY if spec.routing.mode is RoutingMode.CANARY else Reason.IN_USE


def _summary(told: Sequence[tuple[RouterReport, PolicyReport]], asked: PolicyName) -> str:
    versions = sorted({policy.version for _, policy in told if policy.version})
    words = f"{asked.value} {', '.join(versions)}".strip()
    return f"{words} on {len(told)} router{'s' if len(told) > 1 else ''}"
