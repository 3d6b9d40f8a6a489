"""One JSON line a decision: what went in, what was made of it, what was written.

No values of environment variables, no annotations of users, no metrics bodies: names and numbers.
"""

import logging
from dataclasses import asdict
from typing import Any

from slimscale.domain.decision import Action, Decision, PodTarget
from slimscale.domain.observation import Observation, PodObservation
from slimscale.domain.plan import ApplyResult, Operation, PatchTemplate, Plan
from slimscale.kubeapi.ports import Json

__all__ = ["decision_record", "log_decision"]

_log = logging.getLogger("slimscale.decisions")
_MAX_PODS = 20


def log_decision(
    *, observation: Observation, decision: Decision, plan: Plan, result: ApplyResult, memo: Json
) -> None:
    """Changes, holds and writes at INFO; a look that changed nothing at DEBUG."""
    quiet = decision.action is Action.NO_CHANGE and not plan.operations
    level = logging.DEBUG if quiet else logging.INFO
    if _log.isEnabledFor(level):
        record = decision_record(
            observation=observation, decision=decision, plan=plan, result=result, memo=memo
        )
        _log.log(level, "decision", extra={"decision": record})


def decision_record(
    *, observation: Observation, decision: Decision, plan: Plan, result: ApplyResult, memo: Json
) -> Json:
    """The line as a JSON document. memo: what `decide` was given, so that it can be replayed."""
    target = observation.target
    return {
        "decision_id": decision.decision_id,
        "namespace": observation.namespace,
        "name": observation.name,
        "uid": observation.uid,
        "generation": observation.generation,
        "observed_at_seconds": observation.sampled_at_seconds,
        "decided_at_seconds": decision.decided_at_seconds,
        "target_ref": f"{target.kind}/{target.name}" if target else observation.target_problem,
        "action": decision.action.value,
        "reason": decision.reason,
        "message": decision.message,
        "metrics_reason": decision.metrics_reason,
        "may_write": decision.may_write,
        "target": _target(decision.target),
        "uncapped": _target(decision.uncapped),
        "confidence": decision.confidence.value,
        "inputs": {
            k: v for k, v in asdict(decision.model).items() if v is not None and k != "curve"
        },
        "steps": [[s.stage, s.outcome, s.reason] for s in decision.steps],
        "pods": [_pod(pod) for pod in observation.pods[:_MAX_PODS]],
        "nodes": {
            name: [node.allocatable_millicores, node.requested_millicores]
            for name, node in observation.nodes.items()
        },
        "other_owners": [f"{o.kind.value}/{o.name}" for o in observation.other_owners],
        "memo": memo,
        "writes": [
            {**_operation(r.operation), "ok": r.ok, "result": r.reason or "Success"}
            for r in result.results
        ],
        "plan": {"operations": len(plan.operations), "reason": plan.reason},
    }


def _pod(pod: PodObservation) -> Json:
    latest = pod.latest
    applied = pod.applied_resources or pod.spec_resources
    return {
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.node,
        "threads": pod.acknowledged_threads,
        "desired_threads": pod.desired_threads,
        "cpu": [applied.cpu_request_millicores, applied.cpu_limit_millicores],
        "qos": pod.qos_class.value,
        "resize": pod.resize.state.value,
        "freshness": pod.freshness.value,
        "samples": len(pod.samples),
        "sampled_at_seconds": latest.sampled_at_seconds if latest else None,
        "restarts": pod.restart_count,
    }


def _operation(operation: Operation) -> dict[str, Any]:
    kind = type(operation).__name__
    if isinstance(operation, PatchTemplate):
        # Names of variables only: a value may have come from a user.
        names = [name for name, _ in operation.env]
        return {"kind": kind, "object": operation.name, "env": names, "reason": operation.reason}
    return {"kind": kind, "object": operation.pod, "reason": operation.reason}


def _target(target: PodTarget | None) -> Json | None:
    return None if target is None else asdict(target)
