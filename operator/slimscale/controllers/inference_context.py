"""The part of the operator that serves SlimInferences, built from its settings in one place."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from prometheus_client import CollectorRegistry

from slimscale.act.events import EventWriter
from slimscale.act.inference_apply import ChildApplier
from slimscale.act.inference_children import CHILD_KINDS, ChildSettings
from slimscale.act.inference_metrics import InferenceMetrics
from slimscale.act.inference_pods import Images
from slimscale.act.inference_status import inference_status_needs_write
from slimscale.act.metrics import OperatorMetrics
from slimscale.act.status_writer import StatusWriter
from slimscale.api.names import SLIMINFERENCE_PLURAL
from slimscale.controllers.child_watch import ChildWatches
from slimscale.controllers.heartbeat import Heartbeat
from slimscale.controllers.inference_stages import InferenceReporter, InferenceStages
from slimscale.controllers.queue import Key, WorkQueue
from slimscale.controllers.reporting import QueueMetrics
from slimscale.controllers.resync import Resync, WatchAudit
from slimscale.controllers.router_pulse import RouterPulse
from slimscale.controllers.scaling_memo import ScalingMemoKeeper
from slimscale.controllers.sliminference import SlimInferenceController
from slimscale.domain.clock import Clock
from slimscale.kubeapi.ports import KubeClient
from slimscale.observe.inference import InferenceObserver, RouterSource
from slimscale.observe.router_reports import RouterReader
from slimscale.scaling.decide import decide
from slimscale.settings import OperatorSettings

__all__ = ["InferencePart", "build_inference", "child_settings"]

_RUN_LIMIT_SECONDS = 120.0


@dataclass(slots=True)
class InferencePart:
    """Queue, watches and controller of SlimInferences; `run_*` are tasks of the operator's loop."""

    queue: WorkQueue
    audit: WatchAudit
    resync: Resync
    watches: ChildWatches
    memo: ScalingMemoKeeper
    controller: SlimInferenceController
    settings: ChildSettings
    pulse: RouterPulse

    async def run_reads(self) -> None:
        """Lists and watches: these need no lease."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.resync.run(), name="resync of SlimInferences")
            group.create_task(self.watches.run(), name="children")
            group.create_task(self.pulse.run(), name="routers of empty services")


def build_inference(
    client: KubeClient,
    clock: Clock,
    settings: OperatorSettings,
    *,
    heartbeat: Heartbeat,
    registry: CollectorRegistry,
    metrics: OperatorMetrics,
    lease_held: Callable[[], bool],
    rng: Random,
    closers: list[Callable[[], Awaitable[None]]],
    routers: RouterSource | None = None,
) -> InferencePart:
    """routers: instead of asking the routers over HTTP. Call inside the event loop."""
    if routers is None:
        reader = RouterReader(
            timeout_seconds=settings.scrape_timeout_seconds,
            limit_bytes=settings.scrape_limit_bytes,
            concurrency=settings.scrape_concurrency,
        )
        closers.append(reader.close)
        routers = reader
    children = child_settings(settings)
    memo = ScalingMemoKeeper(client, clock)

    # The queue calls the controller, which tells the queue to forget.
    async def reconcile(key: Key) -> float | None:
        return await controller.reconcile(key)

    queue = WorkQueue(
        reconcile,
        rng=rng,
        workers=settings.workers,
        run_limit_seconds=_RUN_LIMIT_SECONDS,
        observer=QueueMetrics(metrics),
    )

    def wake(key: Key) -> None:
        queue.wake(key, urgent=False)

    pulse = RouterPulse(routers, wake=wake, lease_held=lease_held)
    controller = SlimInferenceController(
        client,
        clock,
        stages=InferenceStages(
            observer=InferenceObserver(client, clock, kinds=CHILD_KINDS, routers=routers),
            decide=decide,
            applier=ChildApplier(client, on_write=metrics.wrote),
            reporter=InferenceReporter(
                StatusWriter(
                    client,
                    plural=SLIMINFERENCE_PLURAL,
                    needs_write=inference_status_needs_write,
                ),
                EventWriter(client, reporter=settings.pod_name),
                InferenceMetrics(registry),
                clock,
            ),
        ),
        memo=memo,
        pulse=pulse,
        settings=children,
        lease_held=lease_held,
        interval_seconds=settings.scaling_interval_seconds,
        resync_seconds=settings.resync_seconds,
        forget_key=queue.forget,
        never_namespaces=settings.never_namespaces,
        stage_seconds=metrics.stage_seconds,
    )

    audit = WatchAudit(heartbeat, SLIMINFERENCE_PLURAL)
    resync = Resync(
        client,
        namespaces=settings.namespaces,
        wake=wake,
        audit=audit,
        heartbeat=heartbeat,
        rng=rng,
        interval_seconds=settings.resync_seconds,
        plural=SLIMINFERENCE_PLURAL,
    )
    watches = ChildWatches(
        client, namespaces=settings.namespaces, wake=wake, heartbeat=heartbeat, rng=rng
    )
    return InferencePart(queue, audit, resync, watches, memo, controller, children, pulse)


def child_settings(settings: OperatorSettings) -> ChildSettings:
    """Images, and who may read metrics: the operator itself always."""
    return ChildSettings(
        Images(
            dataplane=settings.dataplane_image,
            modelserver=settings.modelserver_image,
            pull_policy=settings.image_pull_policy,
        ),
        metrics_namespaces=tuple(
            dict.fromkeys((settings.own_namespace, *settings.metrics_namespaces))
        ),
    )
