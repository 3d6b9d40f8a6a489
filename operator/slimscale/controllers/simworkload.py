"""Reconcile one SimWorkload: observe, decide, plan, act, report. Level-based, safe to repeat."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pydantic import ValidationError

from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.api.validation import (
    describe_errors,
    describe_never_namespace,
    validate_simworkload,
)
from slimscale.controllers.glance import Glances
from slimscale.controllers.injection_catalog import CatalogEntry, InjectionCatalog, choice_for
from slimscale.controllers.pod_watch import PodWatches
from slimscale.controllers.stages import (
    Applies,
    Decides,
    Folds,
    Key,
    MemoKeeper,
    Observes,
    Plans,
    Reporter,
    StatusKeeper,
)
from slimscale.domain.clock import Clock
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.domain.plan import ApplyResult, Plan, ResizePod
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["SimWorkloadController", "Stages", "next_look_seconds"]

_log = logging.getLogger(__name__)
_UNRESOLVED_SECONDS = 30.0
"""A target that is missing may appear without an event that we would hear."""
_AFTER_FAILED_WRITE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Stages:
    observer: Observes
    decide: Decides
    plan: Plans
    applier: Applies
    fold: Folds
    memo: MemoKeeper
    status: StatusKeeper
    reporter: Reporter


class SimWorkloadController:
    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        stages: Stages,
        pods: PodWatches,
        catalog: InjectionCatalog,
        lease_held: Callable[[], bool],
        resync_seconds: float,
        forget_key: Callable[[Key], None] = lambda _key: None,
        never_namespaces: tuple[str, ...] = (),
        was_woken: Callable[[Key], bool] = lambda _key: True,
    ) -> None:
        """was_woken: whether a reconcile comes of something that happened, or is merely due again.
        never_namespaces: nothing is changed there. The webhook refuses first, but it may be
        down or switched off, and then lets everything through."""
        self._client = client
        self._clock = clock
        self._stages = stages
        self._pods = pods
        self._catalog = catalog
        self._lease_held = lease_held
        self._resync_seconds = resync_seconds
        self._forget_key = forget_key
        self._never_namespaces = never_namespaces
        self._was_woken = was_woken
        self._glances = Glances(
            clock, observer=stages.observer, decide=stages.decide, memo=stages.memo
        )

    async def reconcile(self, key: Key) -> float | None:
        """Return seconds until the next look; None when the object is gone.

        Raises:
            SlimError: a passing fault of the API server; the queue tries again.
        """
        namespace, name = key
        if not self._was_woken(key):
            seconds = await self._glances.look(key, lease_held=self._lease_held)
            if seconds is not None:
                return seconds
        self._glances.forget(key)
        raw = await self._client.get(item(API_VERSION, SIMWORKLOAD_PLURAL, name, namespace))
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            _log.info("gone: its pods keep their threads and CPU", extra={"object": "/".join(key)})
            await self.forget(key)
            return None
        if namespace in self._never_namespaces:
            return await self._refuse(key, raw, [describe_never_namespace(namespace)])
        try:
            spec = validate_simworkload(raw).spec
        except ValidationError as error:
            return await self._refuse(key, raw, describe_errors(error))
        return await self._reconcile_valid(key, raw, spec)

    async def _refuse(self, key: Key, raw: Json, problems: list[str]) -> float:
        """Only the user can mend it, and his change wakes us: no retry."""
        await self._release(key)
        if self._lease_held():
            await self._stages.status.refuse(raw, problems)
        return self._resync_seconds

    async def forget(self, key: Key) -> None:
        """The object is gone. Its pods keep what they have."""
        await self._release(key)
        self._glances.forget(key)
        self._forget_key(key)
        self._stages.memo.forget(key)
        self._stages.status.forget(key)
        self._stages.reporter.forget(key)

    async def _release(self, key: Key) -> None:
        self._pods.drop(key)
        self._catalog.remove(key)
        await self._stages.observer.forget(key)

    async def _reconcile_valid(self, key: Key, raw: Json, spec: SimWorkloadSpec) -> float:
        stages = self._stages
        with self._timed("observe"):
            observation = await stages.observer.observe(raw, spec)
            memo, plan_memo = await stages.memo.load(raw)
        now = self._clock.now_seconds()
        with self._timed("decide"):
            # In a thread: a fit takes longer than a probe may wait.
            decision = await asyncio.to_thread(
                stages.decide, observation=observation, spec=spec, memo=memo, now_seconds=now
            )
        plan = stages.plan(
            observation=observation, decision=decision, spec=spec, memo=plan_memo, now_seconds=now
        )
        self._follow(key, spec, observation, decision)
        if not self._lease_held():
            return _AFTER_FAILED_WRITE_SECONDS
        with self._timed("act"):
            plan, result = await self._act(raw, plan, decision)
        with self._timed("status"):
            status = await stages.status.update(
                raw,
                observation=observation,
                decision=decision,
                plan=plan,
                result=result,
                spec=spec,
            )
            await stages.reporter.report(
                raw,
                observation=observation,
                decision=decision,
                plan=plan,
                result=result,
                status=status,
                spec=spec,
                memo=memo,
            )
        wait = next_look_seconds(observation=observation, plan=plan, result=result, spec=spec)
        return self._glances.remember(
            key,
            raw,
            spec,
            observation=observation,
            decision=decision,
            plan=plan,
            result=result,
            wait_seconds=wait,
        )

    async def _act(self, raw: Json, plan: Plan, decision: Decision) -> tuple[Plan, ApplyResult]:
        """Remember what will be asked for, ask, remember what was refused: safe at any crash."""
        memo, namespace = self._stages.memo, str(raw["metadata"]["namespace"])
        allowed = tuple(
            operation
            for operation in plan.operations
            # A hold still takes back what it asked for itself; nothing else.
            if decision.may_write or (isinstance(operation, ResizePod) and operation.reverts)
        )
        plan = replace(plan, operations=allowed)
        await memo.save(raw, decided=decision.memo, planned=plan.memo)
        if not allowed:
            return plan, ApplyResult()
        result = await self._stages.applier.apply(
            plan, namespace=namespace, lease_held=self._lease_held
        )
        folded = self._stages.fold(plan, result, now_seconds=self._clock.now_seconds())
        if folded.memo != plan.memo:
            await memo.save(raw, decided=decision.memo, planned=folded.memo)
        return folded, result

    def _follow(
        self, key: Key, spec: SimWorkloadSpec, observation: Observation, decision: Decision
    ) -> None:
        target = observation.target
        if target is None:
            self._pods.drop(key)
            self._catalog.remove(key)
            return
        self._pods.ensure(key, target.selector)
        choice = choice_for(
            spec,
            container=target.container,
            # Another owner of the pods is never overruled, not at creation either.
            target=decision.target if not observation.other_owners else None,
        )
        self._catalog.update(key, CatalogEntry(selector=target.selector, choice=choice))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._stages.reporter.stage_seconds(stage, time.perf_counter() - started)


def next_look_seconds(
    *, observation: Observation, plan: Plan, result: ApplyResult, spec: SimWorkloadSpec
) -> float:
    """Until the next whole reconcile: every window, earlier for a deadline or a failed write."""
    if observation.target is None:
        return _UNRESOLVED_SECONDS
    wait = float(max(spec.metrics.interval_seconds, spec.tuning.window_seconds))
    if plan.wake_after_seconds is not None:
        wait = min(wait, max(1.0, plan.wake_after_seconds))
    if not result.ok:
        wait = min(wait, _AFTER_FAILED_WRITE_SECONDS)
    return wait
