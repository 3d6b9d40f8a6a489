"""Everything the operator is made of, built from its settings in one place, and run together."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random, SystemRandom

from kubernetes.aio.client import Configuration
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from slimscale.act.metrics import OperatorMetrics
from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL, SLIMINFERENCE_PLURAL
from slimscale.api.simworkload import SimWorkload
from slimscale.controllers.clock import SystemClock
from slimscale.controllers.heartbeat import HealthLimits, Heartbeat
from slimscale.controllers.inference_context import InferencePart, build_inference
from slimscale.controllers.injection_catalog import InjectionCatalog, entry_from_status
from slimscale.controllers.leadership import Leadership, LeaseTimes
from slimscale.controllers.pod_watch import PodWatches
from slimscale.controllers.queue import Key, WorkQueue
from slimscale.controllers.reporting import QueueMetrics
from slimscale.controllers.resync import WATCH_NAME, Resync, WatchAudit, key_of
from slimscale.controllers.simworkload import SimWorkloadController, Stages
from slimscale.domain.clock import Clock
from slimscale.exceptions import SlimError
from slimscale.kubeapi.client import AioKubeClient, load_configuration
from slimscale.kubeapi.ports import Json
from slimscale.observe.inference import RouterSource
from slimscale.observe.observer import Observer
from slimscale.observe.prometheus import PrometheusReader
from slimscale.observe.sampling import SampleSource
from slimscale.observe.scrape import PodScraper
from slimscale.settings import OperatorSettings

__all__ = ["AppContext", "build_context", "exit_now"]

_log = logging.getLogger(__name__)
_FLUSH_SECONDS = 5.0
_LOOP_BEAT_SECONDS = 1.0
_LEASE_LOST_EXIT_CODE = 75
_RUN_LIMIT_SECONDS = 120.0
_API_POLL_SECONDS = 2.0
_SECOND_KIND_POLLS = 15

MakeStages = Callable[..., Stages]
"""Takes (client, clock, observer, metrics, name of the pod, predictor=)."""


def exit_now(reason: str) -> None:
    """Without clean-up: whatever would still run might write after another process has begun."""
    sys.stderr.write(f'{{"level": "error", "message": "exiting at once: {reason}"}}\n')
    sys.stderr.flush()
    os._exit(_LEASE_LOST_EXIT_CODE)


@dataclass(slots=True)
class AppContext:
    settings: OperatorSettings
    configuration: Configuration
    client: AioKubeClient
    clock: Clock
    heartbeat: Heartbeat
    registry: CollectorRegistry
    metrics: OperatorMetrics
    catalog: InjectionCatalog
    queue: WorkQueue
    audit: WatchAudit
    resync: Resync
    leadership: Leadership | None
    observer: Observer
    pods: PodWatches
    stages: Stages
    inference: InferencePart
    closers: list[Callable[[], Awaitable[None]]]

    async def run(self) -> None:
        """The loops, until cancelled or one of them fails. Nothing is reconciled without the lease."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(), name="loop-beat")
            # Listed before there is a lease: the webhook answers, and probes say ready, meanwhile.
            group.create_task(self.resync.run(), name="resync")
            group.create_task(self.inference.run_reads(), name="inference")
            if self.leadership is not None:
                group.create_task(self.leadership.run(), name="lease")
                await self.leadership.acquired()
            group.create_task(self.queue.run(), name="queue")
            group.create_task(self.inference.queue.run(), name="inference queue")

    async def wait_for_api(self) -> None:
        """Until the API server knows our kinds: kopf looks once and would never watch them later.

        Installed in one go, the operator may start before its CRDs are established. For the second
        one it waits half a minute only: an older install may have the first alone.
        """
        polls = 0
        while True:
            try:
                known = await self.client.get(f"/apis/{API_VERSION}")
            except SlimError as error:
                _log.warning("API server not reached", extra={"error": str(error)})
                known = None
            names = [resource.get("name") for resource in (known or {}).get("resources") or []]
            if SIMWORKLOAD_PLURAL in names:
                if SLIMINFERENCE_PLURAL in names:
                    return
                polls += 1
                if polls > _SECOND_KIND_POLLS:
                    _log.error("the CRD of SlimInference is not installed; apply it and restart")
                    return
            self.heartbeat.outage(WATCH_NAME)
            await asyncio.sleep(_API_POLL_SECONDS)

    async def close(self) -> None:
        """An orderly end: no more writes, then the lease goes back."""
        await self.pods.close()
        await self.observer.close()
        if self.leadership is None or self.leadership.held():
            # The lease is not renewed any more: what is written now must be done before it runs out.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self.stages.memo.flush()
                    await self.inference.memo.flush()
        if self.leadership is not None:
            await self.leadership.release()
        for close in reversed(self.closers):
            await close()

    async def _beat(self) -> None:
        while True:
            self.heartbeat.loop_turned()
            self._tell_watch_ages()
            await asyncio.sleep(_LOOP_BEAT_SECONDS)

    def _tell_watch_ages(self) -> None:
        ages = self.heartbeat.ages_seconds()
        kinds = (WATCH_NAME, SLIMINFERENCE_PLURAL)
        pods = [age for watch, age in ages.items() if watch not in kinds]
        self.metrics.watch_age.labels(WATCH_NAME).set(ages.get(WATCH_NAME, 0.0))
        self.metrics.watch_age.labels(SLIMINFERENCE_PLURAL).set(ages.get(kinds[1], 0.0))
        self.metrics.watch_age.labels("pods").set(max(pods, default=0.0))  # the worst of all


async def build_context(
    settings: OperatorSettings,
    *,
    make_stages: MakeStages,
    configuration: Configuration | None = None,
    clock: Clock | None = None,
    rng: Random | None = None,
    pods_source: SampleSource | None = None,
    routers: RouterSource | None = None,
    on_lease_lost: Callable[[str], None] = exit_now,
) -> AppContext:
    """Build all parts; nothing runs yet. Call inside the event loop.

    pods_source, routers: instead of asking the pods over HTTP.

    Raises:
        Unavailable: no way to a cluster.
        ValueError: the Prometheus address is none.
    """
    clock = clock if clock is not None else SystemClock()
    rng = rng if rng is not None else SystemRandom()
    times = LeaseTimes()
    if configuration is None:
        configuration = await load_configuration(settings.kubeconfig, settings.kube_context)
    client = AioKubeClient(configuration, write_timeout_seconds=times.call_timeout_seconds)
    closers: list[Callable[[], Awaitable[None]]] = [client.close]
    heartbeat = Heartbeat(clock, HealthLimits(watch_silence_seconds=settings.watch_silence_seconds))
    prometheus = _prometheus(settings, closers)
    if pods_source is None:
        pods_source = _scraper(settings, clock, closers)
    observer = Observer(client, clock, pods_source=pods_source, prometheus=prometheus)
    leadership = None
    if settings.lease_enabled:
        leadership = Leadership(
            client,
            clock,
            namespace=settings.own_namespace,
            identity=settings.identity(),
            on_lost=on_lease_lost,
            rng=rng,
            times=times,
            lease_name=settings.lease_name,
        )
    catalog = InjectionCatalog()
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)

    # The queue calls the controller, whose pod watches wake the queue.
    async def reconcile(key: Key) -> float | None:
        return await controller.reconcile(key)

    queue = WorkQueue(
        reconcile,
        rng=rng,
        workers=settings.workers,
        run_limit_seconds=_RUN_LIMIT_SECONDS,
        observer=QueueMetrics(metrics),
    )
    pods = PodWatches(
        client,
        wake=lambda key: queue.wake(key, urgent=False),
        heartbeat=heartbeat,
        rng=rng,
    )
    stages = make_stages(
        client, clock, observer, metrics, settings.pod_name, predictor=settings.predictor
    )
    controller = SimWorkloadController(
        client,
        clock,
        stages=stages,
        pods=pods,
        catalog=catalog,
        lease_held=leadership.held if leadership is not None else lambda: True,
        resync_seconds=settings.resync_seconds,
        forget_key=queue.forget,
        never_namespaces=settings.never_namespaces,
        was_woken=queue.was_woken,
    )
    audit = WatchAudit(heartbeat)
    resync = Resync(
        client,
        namespaces=settings.namespaces,
        wake=lambda key: queue.wake(key, urgent=False),
        audit=audit,
        heartbeat=heartbeat,
        rng=rng,
        interval_seconds=settings.resync_seconds,
        on_first=lambda items: fill_catalog(catalog, items),
    )
    inference = build_inference(
        client,
        clock,
        settings,
        heartbeat=heartbeat,
        registry=registry,
        metrics=metrics,
        lease_held=leadership.held if leadership is not None else lambda: True,
        rng=rng,
        closers=closers,
        routers=routers,
    )
    return AppContext(
        settings=settings,
        configuration=configuration,
        client=client,
        clock=clock,
        heartbeat=heartbeat,
        registry=registry,
        metrics=metrics,
        catalog=catalog,
        queue=queue,
        audit=audit,
        resync=resync,
        leadership=leadership,
        observer=observer,
        pods=pods,
        stages=stages,
        inference=inference,
        closers=closers,
    )


def _scraper(
    settings: OperatorSettings, clock: Clock, closers: list[Callable[[], Awaitable[None]]]
) -> PodScraper:
    scraper = PodScraper(
        clock,
        timeout_seconds=settings.scrape_timeout_seconds,
        limit_bytes=settings.scrape_limit_bytes,
        concurrency=settings.scrape_concurrency,
    )
    closers.append(scraper.close)
    return scraper


def _prometheus(
    settings: OperatorSettings, closers: list[Callable[[], Awaitable[None]]]
) -> PrometheusReader | None:
    if not settings.prometheus_url:
        return None
    reader = PrometheusReader(
        settings.prometheus_url,
        token_file=settings.prometheus_token_file,
        timeout_seconds=settings.prometheus_timeout_seconds,
    )

    async def close() -> None:
        reader.close()

    closers.append(close)
    return reader


def fill_catalog(catalog: InjectionCatalog, items: list[Json]) -> None:
    """What the last process knew, so that a pod made right after a restart gets its threads."""
    for thing in items:
        try:
            known = SimWorkload.model_validate(thing)
        except ValidationError:
            continue  # the reconcile says what is wrong with it
        entry = entry_from_status(known)
        if entry is not None:
            catalog.update(key_of(thing), entry)
