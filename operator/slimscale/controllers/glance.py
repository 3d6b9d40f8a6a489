"""Looks between two reconciles: newer samples of the same pods, decided on, and forgotten.

A reconcile reads a dozen things from the API server, few of which change in seconds. What does
change is what the pods have done since. So in between only they are asked, and the decision is made
on the rest as it was. Where it comes out as before, that was all: nothing is read from the API
server and nothing written. Where it does not, a whole reconcile follows at once, which reads
everything anew and decides again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from slimscale.act.memo_store import same_memo
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.controllers.stages import Decides, Key, MemoKeeper, Observes
from slimscale.domain.clock import Clock
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.domain.plan import ApplyResult, Plan
from slimscale.kubeapi.ports import Json

__all__ = ["Glances"]

_SHORTEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last whole reconcile saw and decided."""

    raw: Json
    spec: SimWorkloadSpec
    observation: Observation
    decision: Decision
    due_seconds: float
    """When the next whole reconcile is due, on the monotonic clock."""


class Glances:
    """One for the operator; remembers a reconcile for each SimWorkload until `forget`."""

    def __init__(
        self, clock: Clock, *, observer: Observes, decide: Decides, memo: MemoKeeper
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._decide = decide
        self._memo = memo
        self._known: dict[Key, _Known] = {}

    def remember(
        self,
        key: Key,
        raw: Json,
        spec: SimWorkloadSpec,
        *,
        observation: Observation,
        decision: Decision,
        plan: Plan,
        result: ApplyResult,
        wait_seconds: float,
    ) -> float:
        """After a reconcile that may wait so long for the next one; returns when to look again."""
        self.forget(key)
        if observation.target is None or not result.ok:
            return wait_seconds
        soon = min(wait_seconds, decision.next_look_seconds or wait_seconds)
        if plan.operations:
            return soon  # what was asked of the pods is seen by looking at them properly
        due = self._clock.monotonic_seconds() + wait_seconds
        self._known[key] = _Known(raw, spec, observation, decision, due)
        return soon

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    async def look(self, key: Key, *, lease_held: Callable[[], bool]) -> float | None:
        """Seconds until the next look; None: a whole reconcile is due, or has become so."""
        known = self._known.get(key)
        if known is None or not lease_held():
            return None
        left = known.due_seconds - self._clock.monotonic_seconds()
        memo = self._memo.kept(known.raw)
        if left <= 0 or memo is None:
            return None
        observation = await self._observer.glance(known.observation, known.spec)
        if observation is None or _acknowledged(observation) != _acknowledged(known.observation):
            return None
        decision = await asyncio.to_thread(
            self._decide,
            observation=observation,
            spec=known.spec,
            memo=memo,
            now_seconds=self._clock.now_seconds(),
        )
        if not _as_before(known.decision, decision) or not same_memo(memo, decision.memo):
            return None
        self._memo.keep(known.raw, decided=decision.memo)
        return max(min(left, decision.next_look_seconds or left), _SHORTEST_SECONDS)


def _acknowledged(observation: Observation) -> list[float | None]:
    return [pod.latest.threads_applied if pod.latest else None for pod in observation.pods]


def _as_before(before: Decision, now: Decision) -> bool:
    """Nothing that a user or a pod would hear of."""
    return (before.target, before.may_write, before.metrics_reason) == (
        now.target,
        now.may_write,
        now.metrics_reason,
    )
