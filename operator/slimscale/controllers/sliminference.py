"""Reconcile one SlimInference: observe, decide, plan, act, report. Level-based, safe to repeat."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from slimscale.act.child_names import owner_label
from slimscale.act.inference_children import ChildSettings, children_of
from slimscale.act.inference_config import config_digest, config_files
from slimscale.act.inference_names import InferenceNames
from slimscale.act.inference_plan import plan_inference
from slimscale.api.names import API_VERSION, SLIMINFERENCE_PLURAL
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.api.validation import (
    describe_errors,
    describe_never_serving,
    validate_sliminference,
)
from slimscale.controllers.drift_guard import DriftGuard
from slimscale.controllers.inference_stages import InferenceStages
from slimscale.controllers.queue import Key
from slimscale.controllers.router_pulse import RouterPulse
from slimscale.controllers.scaling_memo import ScalingMemoKeeper
from slimscale.controllers.scaling_spec import scaling_spec
from slimscale.domain.clock import Clock
from slimscale.domain.inference import ChildResult, InferenceObservation, InferencePlan
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["SlimInferenceController"]

_log = logging.getLogger(__name__)
_AFTER_FAILED_WRITE_SECONDS = 5.0
_STARTING_SECONDS = 5.0


class SlimInferenceController:
    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        stages: InferenceStages,
        memo: ScalingMemoKeeper,
        pulse: RouterPulse,
        settings: ChildSettings,
        lease_held: Callable[[], bool],
        interval_seconds: float,
        resync_seconds: float,
        forget_key: Callable[[Key], None] = lambda _key: None,
        never_namespaces: tuple[str, ...] = (),
        stage_seconds: Callable[[str, float], None] = lambda _stage, _seconds: None,
    ) -> None:
        """interval_seconds: between two looks at a service, which is how often it is scaled."""
        self._client = client
        self._clock = clock
        self._stages = stages
        self._memo = memo
        self._pulse = pulse
        self._drift = DriftGuard(clock)
        self._settings = settings
        self._lease_held = lease_held
        self._interval_seconds = interval_seconds
        self._resync_seconds = resync_seconds
        self._forget_key = forget_key
        self._never_namespaces = never_namespaces
        self._stage_seconds = stage_seconds

    async def reconcile(self, key: Key) -> float | None:
        """Return seconds until the next look; None when the object is gone.

        Raises:
            SlimError: a passing fault of the API server; the queue tries again.
        """
        namespace, name = key
        raw = await self._client.get(item(API_VERSION, SLIMINFERENCE_PLURAL, name, namespace))
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            _log.info("gone: its children go with it", extra={"object": "/".join(key)})
            self.forget(key)
            return None
        if namespace in self._never_namespaces:
            return await self._refuse(raw, [describe_never_serving(namespace)])
        try:
            spec = validate_sliminference(raw).spec
        except ValidationError as error:
            return await self._refuse(raw, describe_errors(error))
        return await self._reconcile_valid(raw, spec)

    def forget(self, key: Key) -> None:
        """The object is gone; the garbage collector follows the owner references."""
        self._forget_key(key)
        self._memo.forget(key)
        self._pulse.forget(key)
        self._stages.reporter.forget(key)

    async def _refuse(self, raw: Json, problems: list[str]) -> float:
        """Only the user can mend it, and his change wakes us. What serves goes on serving."""
        if self._lease_held():
            await self._stages.reporter.refuse(raw, problems)
        return self._resync_seconds

    async def _reconcile_valid(self, raw: Json, spec: SlimInferenceSpec) -> float:
        stages = self._stages
        metadata: Json = raw["metadata"]
        namespace, names = str(metadata["namespace"]), InferenceNames(str(metadata["name"]))
        with self._timed("observe"):
            observation = await stages.observer.observe(
                raw,
                spec,
                label=owner_label(names.owner),
                deployments={pool.name: names.pool(pool.name) for pool in spec.pools},
            )
            memo = await self._memo.load(raw)
        asked = scaling_spec(spec)
        with self._timed("decide"):
            # In a thread: sizing takes longer than a probe may wait.
            decision = await asyncio.to_thread(
                stages.decide, observation.scaling, asked, memo, self._clock.now_seconds()
            )
        policy = observation.policy_file
        digest = config_digest(
            config_files(spec, names, namespace), "" if policy is None else policy.revision
        )
        plan = plan_inference(
            observation=observation,
            children=children_of(
                spec,
                name=names.owner,
                namespace=namespace,
                uid=observation.uid,
                settings=self._settings,
                monitoring=observation.monitoring,
            ),
            decision=decision,
            owner=asked.owner,
            config_digest=digest,
        )
        self._pulse.follow((namespace, names.owner), observation, decision, spec)
        if not self._lease_held():
            return _AFTER_FAILED_WRITE_SECONDS
        plan, resting = self._drift.check(plan)
        changed = any(pool.replicas != pool.current for pool in decision.pools)
        with self._timed("act"):
            await self._memo.save(raw, dict(decision.memo), urgent=changed)
            failed = await stages.applier.apply(
                plan,
                namespace=namespace,
                owner_uid=observation.uid,
                lease_held=self._lease_held,
            )
            failed = (*failed, *resting)
        if not self._lease_held():
            return _AFTER_FAILED_WRITE_SECONDS
        with self._timed("status"):
            await stages.reporter.report(
                raw,
                observation=observation,
                decision=decision,
                plan=plan,
                failed=failed,
                spec=spec,
                config_digest=digest,
            )
        return self._next_look(observation, plan, failed)

    def _next_look(
        self,
        observation: InferenceObservation,
        plan: InferencePlan,
        failed: tuple[ChildResult, ...],
    ) -> float:
        if any(result.reason in ("Conflict", "Unavailable") for result in failed):
            return _AFTER_FAILED_WRITE_SECONDS
        starting = any(pool.starting_pods for pool in observation.scaling.pools)
        if plan.operations or starting:
            return min(_STARTING_SECONDS, self._interval_seconds)
        return self._interval_seconds

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._stage_seconds(stage, time.perf_counter() - started)
