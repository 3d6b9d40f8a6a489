"""The stages of a SlimInference's reconcile, and the ones that run in the operator."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from slimscale.act.events import EventNote, EventWriter, events_for
from slimscale.act.inference_apply import ChildApplier
from slimscale.act.inference_metrics import InferenceMetrics
from slimscale.act.inference_status import render_inference_status
from slimscale.act.status_writer import StatusWriter
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.reporting import refuse_spec
from slimscale.domain.clock import Clock
from slimscale.domain.inference import ChildResult, InferenceObservation, InferencePlan
from slimscale.domain.scaling import ScalingDecision, ScalingObservation, ScalingSpec
from slimscale.kubeapi.ports import Json
from slimscale.observe.inference import InferenceObserver

__all__ = ["InferenceReporter", "InferenceStages", "ScalingDecides"]

_log = logging.getLogger("slimscale.decisions")


class ScalingDecides(Protocol):
    def __call__(
        self,
        observation: ScalingObservation,
        spec: ScalingSpec,
        memo: Mapping[str, object] | None,
        now_seconds: float,
    ) -> ScalingDecision: ...


@dataclass(frozen=True, slots=True)
class InferenceStages:
    observer: InferenceObserver
    decide: ScalingDecides
    applier: ChildApplier
    reporter: "InferenceReporter"


class InferenceReporter:
    """What the outside hears: status, events, metrics, one JSON line a decision."""

    def __init__(
        self, writer: StatusWriter, events: EventWriter, metrics: InferenceMetrics, clock: Clock
    ) -> None:
        self._writer = writer
        self._events = events
        self._metrics = metrics
        self._clock = clock

    async def report(
        self,
        raw: Json,
        *,
        observation: InferenceObservation,
        decision: ScalingDecision,
        plan: InferencePlan,
        failed: tuple[ChildResult, ...],
        spec: SlimInferenceSpec,
        config_digest: str,
    ) -> Json:
        """Write the status when it differs and is due; return it as it now stands."""
        now = self._clock.now_seconds()
        previous = raw.get("status")
        new = render_inference_status(
            observation=observation,
            decision=decision,
            failed=failed,
            spec=spec,
            config_digest=config_digest,
            previous=previous,
            now_seconds=now,
        )
        status = await self._writer.write(raw, new, now_seconds=now)
        key = (observation.namespace, observation.name)
        self._metrics.report(key, decision=decision, status=new)
        self._log(observation, decision, plan)
        notes = [*events_for(previous, status), *_scaled(previous, status)]
        await self._events.write(raw, notes, now_seconds=now)
        return status

    async def refuse(self, raw: Json, problems: list[str]) -> None:
        """SpecValid=False; nothing else of the status changes."""
        now = self._clock.now_seconds()
        await refuse_spec(raw, problems, self._writer, self._events, now_seconds=now)

    def forget(self, key: tuple[str, str]) -> None:
        self._writer.forget(key)
        self._metrics.forget(key)

    @staticmethod
    def _log(
        observation: InferenceObservation, decision: ScalingDecision, plan: InferencePlan
    ) -> None:
        """Changes and writes at INFO; a look that changed nothing at DEBUG."""
        quiet = not plan.operations and all(p.replicas == p.current for p in decision.pools)
        level = logging.DEBUG if quiet else logging.INFO
        if not _log.isEnabledFor(level):
            return
        record = {
            "namespace": observation.namespace,
            "name": observation.name,
            "uid": observation.uid,
            "generation": observation.generation,
            "observed": json.loads(json.dumps(asdict(observation.scaling), default=str)),
            "decided": json.loads(json.dumps(_as_dict(decision), default=str)),
            "writes": [type(operation).__name__ for operation in plan.operations],
        }
        _log.log(level, "scaling decision", extra={"decision": record})


def _as_dict(decision: ScalingDecision) -> dict[str, Any]:
    record = {name: getattr(decision, name) for name in ("decided_at_seconds", "message")}
    record |= {"action": decision.action.value, "panicking": decision.panicking}
    record["pools"] = [
        {"name": p.name, "current": p.current, "wanted": p.wanted, "replicas": p.replicas}
        for p in decision.pools
    ]
    record["steps"] = [[s.stage, s.outcome, s.reason] for s in decision.steps]
    return record


def _scaled(previous: Mapping[str, Any] | None, status: Mapping[str, Any]) -> list[EventNote]:
    known = {(e["decisionId"], e["pool"]) for e in (previous or {}).get("decisions") or []}
    return [
        EventNote(
            "Normal",
            "Scaled",
            f"pool {e['pool']}: {e['fromReplicas']} to {e['toReplicas']}: {e.get('reason', '')}",
        )
        for e in status.get("decisions") or []
        if (e["decisionId"], e["pool"]) not in known
    ]
