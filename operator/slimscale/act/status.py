"""The status of a SimWorkload, and whether it is worth a write. Pure.

Measured figures are never twice the same; they alone must not make a write, or a quiet cluster
would never be quiet.
"""

import math
from collections.abc import Mapping
from typing import Any

from slimscale.act.builders import rfc3339
from slimscale.act.status_conditions import conditions_of, invalid_conditions
from slimscale.api.quantity import format_millicores
from slimscale.api.simworkload import HISTORY_LENGTH, MAX_REPORTED_PODS, SimWorkloadSpec
from slimscale.domain.decision import Decision, ModelView, PodTarget
from slimscale.domain.observation import Observation, PodObservation
from slimscale.domain.plan import ApplyResult, Plan, PodState
from slimscale.kubeapi.ports import Json

__all__ = [
    "render_invalid_spec_status",
    "render_status",
    "status_needs_write",
]

FIGURES_INTERVAL_SECONDS = 30.0
FIGURE_MOVED_RATIO = 0.2
"""A figure is published again once it has moved by this much: windows differ by less than that."""
_FIGURES = ("ratio", "predictedTasksPerSecond", "measuredTasksPerSecond")
_INPUT_FIGURES = ("taskSeconds", "taskCpuSeconds")
_MODEL_FIELDS = (
    "ratio", "predictedTasksPerSecond", "measuredTasksPerSecond", "predictor", "inputs", "curve",
)  # fmt: skip
_HARD_FIELDS = (
    "observedGeneration", "selector", "replicas", "current", "target", "acknowledgedPods",
    "keptEnv", "lastChanged",
)  # fmt: skip


def render_status(
    *,
    observation: Observation,
    decision: Decision,
    plan: Plan,
    result: ApplyResult,
    spec: SimWorkloadSpec,
    previous: Mapping[str, Any] | None,
    now_seconds: float,
) -> Json:
    """The whole status in camelCase, without absent values; valid as a SimWorkloadStatus.

    Args:
        previous: the status as it stands, for transition times and the history.
        now_seconds: wall-clock time, seconds since the epoch.
    """
    before: Mapping[str, Any] = previous or {}
    live = [pod for pod in observation.pods if not pod.terminating]
    target = _choice(decision.target)
    status: Json = {
        "observedGeneration": observation.generation,
        "selector": observation.target.selector[:2048] if observation.target else None,
        "replicas": len(live),
        "current": _current(observation.running_pods),
        "target": target,
        "lowerBound": _choice(decision.lower),
        "upperBound": _choice(decision.upper),
        "uncappedTarget": _choice(decision.uncapped),
        "confidence": decision.confidence.value,
        "tier": decision.tier[:32] or None,
        "steps": [
            {"stage": s.stage[:32], "outcome": s.outcome[:64], "reason": s.reason[:512]}
            for s in decision.steps[-16:]
        ],
        "pods": _pods(live, plan),
        "acknowledgedPods": sum(
            decision.target is not None and pod.acknowledged_threads == decision.target.threads
            for pod in observation.running_pods
        ),
        "keptEnv": sorted({name for pod in live for name in pod.kept_env})[:32],
        "conditions": conditions_of(
            observation=observation,
            decision=decision,
            plan=plan,
            result=result,
            spec=spec,
            previous=before.get("conditions") or [],
            now_seconds=now_seconds,
        ),
    }
    status |= _model(decision.model)
    if decision.model.predictor == "none" and target == before.get("target"):
        # A look without a new prediction: the last one still explains the target.
        status |= {name: before[name] for name in _MODEL_FIELDS if name in before}
    status |= _history(before, decision, target, now_seconds)
    if observation.target is None:
        # A look at nothing does not take away what the user could read.
        kept = ("selector", "target", "history", "lastChanged")
        status |= {name: before[name] for name in kept if name in before}
    return {key: value for key, value in status.items() if value is not None}


def render_invalid_spec_status(
    *,
    problems: list[str],
    generation: int,
    previous: Mapping[str, Any] | None,
    now_seconds: float,
) -> Json:
    """SpecValid and Ready are False; everything else stays as it was last seen."""
    before: Json = dict(previous or {})
    before["observedGeneration"] = generation
    before["conditions"] = invalid_conditions(
        problems=problems,
        generation=generation,
        previous=before.get("conditions") or [],
        now_seconds=now_seconds,
    )
    return before


def status_needs_write(
    previous: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    last_written_seconds: float | None,
    now_seconds: float,
) -> bool:
    """Conditions, targets, pods and acknowledgements at once; figures that moved every 30 s.

    Args:
        last_written_seconds: None when this process has not written it yet.
    """
    if not previous:
        return bool(new)
    if _hard(previous) != _hard(new):
        return True
    due = (
        last_written_seconds is None
        or now_seconds - last_written_seconds >= FIGURES_INTERVAL_SECONDS
        or now_seconds < last_written_seconds  # the clock was set back
    )
    return due and _figures_moved(previous, new)


def _hard(status: Mapping[str, Any]) -> Json:
    hard: Json = {name: status.get(name) for name in _HARD_FIELDS}
    hard["pods"] = [
        {key: value for key, value in pod.items() if key != "message"}
        for pod in status.get("pods") or []
    ]
    hard["conditions"] = [
        (c.get("type"), c.get("status"), c.get("reason"), c.get("observedGeneration"))
        for c in status.get("conditions") or []
    ]
    # Words of SpecValid name fields and are never noise; those of others hold figures.
    hard["problems"] = [
        c.get("message") for c in status.get("conditions") or [] if c.get("type") == "SpecValid"
    ]
    hard["keptEnv"] = status.get("keptEnv") or []
    return hard


def _figures_moved(previous: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    inputs_before, inputs_new = previous.get("inputs") or {}, new.get("inputs") or {}
    pairs = [(previous.get(name), new.get(name)) for name in _FIGURES]
    pairs += [(inputs_before.get(name), inputs_new.get(name)) for name in _INPUT_FIGURES]
    return any(_moved(before, after) for before, after in pairs)


def _moved(before: float | None, after: float | None) -> bool:
    if after is None:
        return False  # not measured this time: what was measured last stays
    if before is None:
        return True
    return abs(after - before) > FIGURE_MOVED_RATIO * max(abs(before), abs(after))


def _model(model: ModelView) -> Json:
    inputs = {
        "taskSeconds": _rounded(model.task_seconds),
        "taskCpuSeconds": _rounded(model.task_cpu_seconds),
        "taskBlockedSeconds": _rounded(model.task_blocked_seconds),
        "dispatchSeconds": _rounded(model.dispatch_seconds),
        "cpuLimitCores": _rounded(model.cpu_limit_cores),
        "throttledRatio": _rounded(model.throttled_ratio),
        "contention": _rounded(model.contention),
    }
    inputs = {key: value for key, value in inputs.items() if value is not None}
    curve = [
        {"threads": threads, "tasksPerSecond": rate}
        for threads, raw in _thinned(model.curve)
        if (rate := _rounded(raw)) is not None
    ]
    return {
        "ratio": _rounded(model.ratio),
        "predictedTasksPerSecond": _rounded(model.predicted_tasks_per_second),
        "measuredTasksPerSecond": _rounded(model.measured_tasks_per_second),
        "predictor": model.predictor[:64],
        "inputs": inputs or None,
        "curve": curve or None,
    }


def _thinned(curve: tuple[tuple[int, float], ...]) -> list[tuple[int, float]]:
    """At most 64 points, with both ends."""
    if len(curve) <= 64:
        return list(curve)
    return [curve[round(i * (len(curve) - 1) / 63)] for i in range(64)]


def _history(
    before: Mapping[str, Any], decision: Decision, target: Json | None, now_seconds: float
) -> Json:
    history: list[Json] = list(before.get("history") or [])
    old: Mapping[str, Any] = before.get("target") or {}
    changed = before.get("lastChanged")
    if target is not None and target != (before.get("target") or None):
        entry = {
            "time": rfc3339(now_seconds),
            "decisionId": decision.decision_id[:32],
            "action": decision.action.value,
            "fromThreads": old.get("threads"),
            "toThreads": target["threads"],
            "fromCpuLimit": old.get("cpuLimit"),
            "toCpuLimit": target.get("cpuLimit"),
            "reason": decision.message[:512],
        }
        history.append({key: value for key, value in entry.items() if value is not None})
        changed = rfc3339(now_seconds)
    return {"history": history[-HISTORY_LENGTH:], "lastChanged": changed}


def _pods(pods: list[PodObservation], plan: Plan) -> list[Json]:
    """Those with something to tell first, so that the bound never hides a fault."""
    progress = {p.uid: p for p in plan.progress}
    rows = []
    for pod in pods:
        known = progress.get(pod.uid)
        applied = pod.applied_resources
        row = {
            "name": pod.name,
            "threads": pod.acknowledged_threads,
            "desiredThreads": pod.desired_threads,
            "cpuLimit": _cpu(applied.cpu_limit_millicores if applied else None),
            "state": known.state.value if known else None,
            "message": known.message[:512] if known and known.message else None,
        }
        fine = known is not None and known.state is PodState.UP_TO_DATE
        lean = {key: value for key, value in row.items() if value is not None}
        rows.append((fine, pod.name, lean))
    too_many = len(rows) > MAX_REPORTED_PODS
    rows.sort(key=lambda r: (too_many and r[0], r[1]))
    return [row for _, _, row in rows[:MAX_REPORTED_PODS]]


def _current(pods: tuple[PodObservation, ...]) -> Json | None:
    """What the pods themselves and the kubelet report; of pods that differ the lowest count."""
    known = [p for p in pods if p.acknowledged_threads]
    if not known:
        return None
    pod = min(known, key=lambda p: (p.acknowledged_threads or 0, p.name))
    resources = pod.applied_resources or pod.spec_resources
    return _choice(
        PodTarget(
            pod.acknowledged_threads or 1,
            resources.cpu_request_millicores,
            resources.cpu_limit_millicores,
        )
    )


def _choice(target: PodTarget | None) -> Json | None:
    if target is None:
        return None
    choice = {
        "threads": target.threads,
        "cpuRequest": _cpu(target.cpu_request_millicores),
        "cpuLimit": _cpu(target.cpu_limit_millicores),
    }
    return {key: value for key, value in choice.items() if value is not None}


def _cpu(millicores: int | None) -> str | None:
    return None if millicores is None else format_millicores(millicores)


def _rounded(value: float | None) -> float | None:
    """Three significant digits; what is not finite does not belong into JSON."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.3g}")
