"""The status of a SlimInference, and whether it is worth a write. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slimscale.act.builders import rfc3339
from slimscale.act.inference_conditions import inference_conditions
from slimscale.act.inference_names import InferenceNames
from slimscale.act.inference_policy import routing_status
from slimscale.api.inference_status import DECISIONS_KEPT
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import ChildResult, InferenceObservation, RouterReport
from slimscale.domain.scaling import PoolDecision, PoolObservation, ScalingDecision
from slimscale.kubeapi.ports import Json

__all__ = ["inference_status_needs_write", "render_inference_status"]

FIGURES_INTERVAL_SECONDS = 30.0
_FIGURE_MOVED_RATIO = 0.2
_FIGURES = frozenset(
    {
        "attainment", "latencyMilliseconds", "requestsPerSecond", "rejectedPerSecond", "share",
        "memoryFreeBytes", "utilisation", "overruledShare", "powerWatts", "message", "lastTransitionTime",
    }
)  # fmt: skip
"""Never twice the same: they alone make no write before their time."""


def render_inference_status(
    *,
    observation: InferenceObservation,
    decision: ScalingDecision,
    failed: Sequence[ChildResult],
    spec: SlimInferenceSpec,
    config_digest: str,
    previous: Mapping[str, Any] | None,
    now_seconds: float,
) -> Json:
    """The whole status in camelCase, without absent values; valid as a SlimInferenceStatus."""
    before: Mapping[str, Any] = previous or {}
    names = InferenceNames(observation.name)
    pools = observation.scaling.pools
    router = observation.deployment(names.router) or {}
    status: Json = {
        "observedGeneration": observation.generation,
        "service": names.front,
        "url": f"http://{names.front}.{observation.namespace}.svc",
        "replicas": sum(len(_there(pool)) for pool in pools),
        "readyReplicas": sum(len(pool.ready_pods) for pool in pools),
        "readyRouters": int((router.get("status") or {}).get("readyReplicas", 0)),
        "configDigest": config_digest,
        "pools": [_pool(pool, _decision_of(decision, pool.name), observation) for pool in pools],
        "widths": _widths(observation.reports, spec),
        "slo": _slo(observation),
        "routing": routing_status(observation, spec),
        "decisions": _decisions(before, decision, now_seconds),
        "conditions": inference_conditions(
            observation=observation,
            decision=decision,
            failed=failed,
            spec=spec,
            previous=before.get("conditions") or [],
            now_seconds=now_seconds,
        ),
    }
    return {key: value for key, value in status.items() if value is not None}


def inference_status_needs_write(
    previous: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    last_written_seconds: float | None,
    now_seconds: float,
) -> bool:
    """Counts, decisions and conditions at once; figures that have moved every 30 s."""
    if not previous:
        return bool(new)
    if _hard(previous) != _hard(new):
        return True
    due = (
        last_written_seconds is None
        or now_seconds - last_written_seconds >= FIGURES_INTERVAL_SECONDS
        or now_seconds < last_written_seconds  # the clock was set back
    )
    return due and _moved(previous, new)


def _there(pool: PoolObservation) -> list[Any]:
    return [pod for pod in pool.pods if not pod.terminating]


def _decision_of(decision: ScalingDecision, pool: str) -> PoolDecision | None:
    return next((entry for entry in decision.pools if entry.name == pool), None)


def _pool(
    pool: PoolObservation, decided: PoolDecision | None, observation: InferenceObservation
) -> Json:
    there = _there(pool)
    heard = [pod.telemetry for pod in there if pod.telemetry is not None]
    warm: dict[str, int] = {}
    for telemetry in heard:
        for width in telemetry.widths:
            if width.instances > 0:
                warm[width.model] = warm.get(width.model, 0) + 1
    problem = next((p for p in observation.problems if p.pool == pool.name), None)
    draining = [pod for pod in pool.pods if pod.terminating]
    status: Json = {
        "name": pool.name,
        "replicas": len(there),
        "desiredReplicas": decided.replicas if decided is not None else None,
        "readyReplicas": len(pool.ready_pods),
        "drainingReplicas": len(draining) + sum(telemetry.draining for telemetry in heard),
        "warmWidths": [{"model": model, "pods": pods} for model, pods in sorted(warm.items())],
        "memoryFreeBytes": min(
            (t.memory_free_bytes for t in heard if t.memory_free_bytes is not None), default=None
        ),
        "memoryTotalBytes": max(
            (t.memory_total_bytes for t in heard if t.memory_total_bytes is not None), default=None
        ),
        "utilisation": _rounded(_mean(t.utilisation for t in heard)),
        "powerWatts": _rounded(_total(t.power_watts for t in heard)),
        "reason": problem.reason if problem is not None else None,
        "message": problem.message if problem is not None else None,
    }
    return {key: value for key, value in status.items() if value is not None}


def _widths(reports: Iterable[RouterReport], spec: SlimInferenceSpec) -> list[Json]:
    rates: dict[str, float] = {}
    for report in reports:
        for model, rate in report.width_requests_per_second.items():
            rates[model] = rates.get(model, 0.0) + rate
    total = sum(rates.values())
    if not total:
        return []
    return [
        {"model": w.model, "ratio": w.ratio, "share": _rounded(rates.get(w.model, 0.0) / total)}
        for w in sorted(spec.model.widths, key=lambda width: width.ratio)
    ]


def _slo(observation: InferenceObservation) -> Json | None:
    demand = observation.scaling.demand
    if demand is None:
        return None
    reports = observation.reports
    latencies = [r.latency_seconds for r in reports if r.latency_seconds is not None]
    figures = {
        "attainment": _rounded(demand.slo_attainment),
        # Of the slowest router: percentiles of several cannot be added up.
        "latencyMilliseconds": _rounded(1000 * max(latencies)) if latencies else None,
        "requestsPerSecond": _rounded(_total(r.requests_per_second for r in reports)),
        "rejectedPerSecond": _rounded(demand.rejected_rows_per_second),
    }
    return {key: value for key, value in figures.items() if value is not None} or None


def _decisions(
    before: Mapping[str, Any], decision: ScalingDecision, now_seconds: float
) -> list[Json]:
    kept = list(before.get("decisions") or [])
    changed = [pool for pool in decision.pools if pool.replicas != pool.current]
    for pool in changed:
        entry = {
            "time": rfc3339(now_seconds),
            "decisionId": decision_id(decision),
            "pool": pool.name,
            "fromReplicas": pool.current,
            "toReplicas": pool.replicas,
            "reason": decision.message[:512],
        }
        last = next((e for e in reversed(kept) if e.get("pool") == pool.name), None)
        same = last is not None and all(
            last.get(key) == entry[key] for key in ("fromReplicas", "toReplicas")
        )
        if not same:  # External: the wish stands until somebody follows it
            kept.append(entry)
    return kept[-DECISIONS_KEPT:]


def decision_id(decision: ScalingDecision) -> str:
    """Time in milliseconds: a service has one decision at a time."""
    return f"s-{int(decision.decided_at_seconds * 1000):x}"


def _hard(value: Any) -> Any:
    """Without figures, words and times; conditions keep the words of SpecValid."""
    if isinstance(value, Mapping):
        words = {"message": value["message"]} if value.get("type") == "SpecValid" else {}
        kept = {key: _hard(inner) for key, inner in value.items() if key not in _FIGURES}
        return {key: inner for key, inner in (kept | words).items() if inner not in ({}, [])}
    if isinstance(value, list):
        return [_hard(entry) for entry in value]
    return value


def _moved(old: Any, new: Any) -> bool:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = {*old, *new} - {"lastTransitionTime"}
        return any(_moved(old.get(key), new.get(key)) for key in keys)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(map(_moved, old, new))
    if isinstance(old, int | float) and isinstance(new, int | float):
        return not math.isclose(old, new, rel_tol=_FIGURE_MOVED_RATIO)
    return bool(old != new) and not isinstance(new, str)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rounded(value: float | None) -> float | None:
    """Three significant digits; what is not finite does not belong into JSON."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.3g}")
