"""What the outside hears of a reconcile: status, events, metrics, the decision log."""

from slimscale.act.decision_log import log_decision
from slimscale.act.events import EventWriter, events_for
from slimscale.act.metrics import OperatorMetrics
from slimscale.act.status import render_invalid_spec_status, render_status
from slimscale.act.status_writer import StatusWriter
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.stages import Key
from slimscale.domain.clock import Clock
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.domain.plan import ApplyResult, Plan
from slimscale.kubeapi.ports import Json

__all__ = ["QueueMetrics", "Reporter", "StatusKeeper", "refuse_spec"]


async def refuse_spec(
    raw: Json, problems: list[str], writer: StatusWriter, events: EventWriter, *, now_seconds: float
) -> None:
    """SpecValid=False with its event; nothing else of the status changes. For every resource."""
    previous = raw.get("status")
    new = render_invalid_spec_status(
        problems=problems,
        generation=int(raw["metadata"].get("generation", 0)),
        previous=previous,
        now_seconds=now_seconds,
    )
    status = await writer.write(raw, new, now_seconds=now_seconds)
    await events.write(raw, events_for(previous, status), now_seconds=now_seconds)


class StatusKeeper:
    """Implements `stages.StatusKeeper`."""

    def __init__(self, writer: StatusWriter, events: EventWriter, clock: Clock) -> None:
        self._writer = writer
        self._events = events
        self._clock = clock

    async def update(
        self,
        simworkload: Json,
        *,
        observation: Observation,
        decision: Decision,
        plan: Plan,
        result: ApplyResult,
        spec: SimWorkloadSpec,
    ) -> Json:
        now = self._clock.now_seconds()
        new = render_status(
            observation=observation,
            decision=decision,
            plan=plan,
            result=result,
            spec=spec,
            previous=simworkload.get("status"),
            now_seconds=now,
        )
        return await self._writer.write(simworkload, new, now_seconds=now)

    async def refuse(self, simworkload: Json, problems: list[str]) -> None:
        now = self._clock.now_seconds()
        await refuse_spec(simworkload, problems, self._writer, self._events, now_seconds=now)

    def forget(self, key: Key) -> None:
        self._writer.forget(key)


class Reporter:
    """Implements `stages.Reporter`."""

    def __init__(self, metrics: OperatorMetrics, events: EventWriter, clock: Clock) -> None:
        self._metrics = metrics
        self._events = events
        self._clock = clock

    async def report(
        self,
        simworkload: Json,
        *,
        observation: Observation,
        decision: Decision,
        plan: Plan,
        result: ApplyResult,
        status: Json,
        spec: SimWorkloadSpec,  # noqa: ARG002 - part of the stage's signature
        memo: Json,
    ) -> None:
        now = self._clock.now_seconds()
        key = (observation.namespace, observation.name)
        log_decision(
            observation=observation, decision=decision, plan=plan, result=result, memo=memo
        )
        self._metrics.report(
            key, observation=observation, decision=decision, status=status, now_seconds=now
        )
        notes = events_for(simworkload.get("status"), status, plan)
        await self._events.write(simworkload, notes, now_seconds=now)

    def stage_seconds(self, stage: str, seconds: float) -> None:
        self._metrics.stage_seconds(stage, seconds)

    def forget(self, key: Key) -> None:
        self._metrics.forget(key)


class QueueMetrics:
    """Implements `queue.QueueObserver`."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._metrics = metrics

    def queued(self, depth: int) -> None:
        """Not kept: reconciles are short and the depth is nearly always 0."""

    def failed(self, _key: Key, _attempts: int, error: BaseException) -> None:
        self._metrics.reconcile_errors.labels(type(error).__name__).inc()
