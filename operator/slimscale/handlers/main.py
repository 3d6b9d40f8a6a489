"""The operator's process: `python -m slimscale.handlers`."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from contextlib import suppress

import kopf

from slimscale.controllers.context import AppContext, build_context
from slimscale.controllers.json_log import set_up_logging
from slimscale.controllers.wiring import make_stages
from slimscale.exceptions import SlimError
from slimscale.handlers import simworkload, startup
from slimscale.handlers.admission_task import serve_admission
from slimscale.handlers.probes import ProbeServer
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
    context = await build_context(settings, make_stages=make_stages)
    try:
        await serve(context)
    finally:
        await context.close()


async def serve(context: AppContext, stop: asyncio.Event | None = None) -> None:
    """Everything that listens or loops; ends when kopf ends (SIGTERM, stop) or any part fails."""
    settings = context.settings
    registry = kopf.OperatorRegistry()
    startup.register(registry, context.configuration)
    simworkload.register(registry, wake=context.queue.wake, audit=context.audit)
    probes = ProbeServer(health=context.heartbeat.health, metrics=context.registry)
    await probes.start(
        host=settings.bind_address,
        health_port=settings.health_port,
        metrics_port=settings.metrics_port,
    )
    tasks = [
        asyncio.create_task(context.run(), name="context"),
        asyncio.create_task(_watch(context, registry, stop), name="kopf"),
    ]
    if settings.webhook_enabled:
        tasks.append(asyncio.create_task(serve_admission(context), name="admission"))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await probes.stop()
    for task in done:
        task.result()


async def _watch(
    context: AppContext, registry: kopf.OperatorRegistry, stop: asyncio.Event | None
) -> None:
    await context.wait_for_api()
    await kopf.operator(
        registry=registry,
        settings=startup.kopf_settings(),
        standalone=True,
        clusterwide=not context.settings.namespaces,
        namespaces=context.settings.namespaces,
        stop_flag=stop,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
    except ImportError:
        return None
    return factory
