"""The operator's process: `python -m slimscale.handlers`."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from random import Random
from signal import SIGINT, SIGTERM

import kopf

from slimscale.api.names import SLIMINFERENCE_PLURAL
from slimscale.controllers.context import AppContext, build_context
from slimscale.controllers.crd_check import report_missing_fields
from slimscale.controllers.json_log import set_up_logging
from slimscale.controllers.resync import WATCH_NAME, key_of
from slimscale.controllers.wiring import make_stages
from slimscale.exceptions import SlimError
from slimscale.handlers import resources, startup
from slimscale.handlers.admission_task import serve_admission
from slimscale.handlers.kopf_thread import run_kopf
from slimscale.handlers.probes import ProbeServer
from slimscale.kubeapi.ports import Json
from slimscale.settings import OperatorSettings

__all__ = ["run", "run_operator", "serve"]

_log = logging.getLogger(__name__)


def run() -> None:
    """Console entry: settings from the environment, then until SIGTERM."""
    settings = OperatorSettings()
    set_up_logging(settings.log_level)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run_operator(settings))
    except (SlimError, ValueError) as error:
        _log.error("cannot start", extra={"error": str(error)})
        sys.exit(1)


async def run_operator(settings: OperatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal in (SIGTERM, SIGINT):
        loop.add_signal_handler(signal, stop.set)
    context = await build_context(settings, make_stages=make_stages)
    try:
        await serve(context, stop)
    finally:
        await context.close()


async def serve(context: AppContext, stop: asyncio.Event) -> None:
    """Everything that listens or loops, until stop is set; the failure of a part ends all."""
    settings = context.settings
    probes = ProbeServer(health=context.heartbeat.health, metrics=context.registry)
    await probes.start(
        host=settings.bind_address,
        health_port=settings.health_port,
        metrics_port=settings.metrics_port,
    )
    tasks = [
        asyncio.create_task(stop.wait(), name="stop"),
        asyncio.create_task(context.run(), name="context"),
        asyncio.create_task(_watch(context), name="kopf"),
    ]
    if settings.webhook_enabled:
        tasks.append(asyncio.create_task(serve_admission(context), name="admission"))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await probes.stop()
    for task in done:
        task.result()


async def _watch(context: AppContext) -> None:
    await context.wait_for_api()
    loop = asyncio.get_running_loop()

    def heard(thing: Json, deleted: bool, matters: bool) -> None:
        context.audit.heard(thing, deleted=deleted)
        if matters:
            context.queue.wake(key_of(thing))

    def heard_inference(thing: Json, deleted: bool, matters: bool) -> None:
        context.inference.audit.heard(thing, deleted=deleted)
        if matters:
            context.inference.queue.wake(key_of(thing))

    def make_registry() -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        startup.register(registry, context.configuration)
        resources.register(registry, lambda *event: loop.call_soon_threadsafe(heard, *event))
        resources.register(
            registry,
            lambda *event: loop.call_soon_threadsafe(heard_inference, *event),
            plural=SLIMINFERENCE_PLURAL,
        )
        return registry

    async with asyncio.TaskGroup() as group:
        # Beside kopf: no event waits for what is only a warning.
        group.create_task(
            report_missing_fields(context.client, context.metrics.crd_missing_fields.set)
        )
        await run_kopf(
            make_registry,
            namespaces=context.settings.namespaces,
            rng=Random(),  # noqa: S311 - jitter
            on_failure=lambda: _outage(context),
        )


def _outage(context: AppContext) -> None:
    """Known and retried, so no silent death of either watch."""
    context.heartbeat.outage(WATCH_NAME)
    context.heartbeat.outage(SLIMINFERENCE_PLURAL)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
    except ImportError:
        return None
    return factory
