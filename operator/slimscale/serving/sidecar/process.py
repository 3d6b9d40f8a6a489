"""Puts the sidecar together, starts it, and takes it down without losing a request."""

import asyncio
import logging
import signal

from slimscale.api.serving_config import SidecarConfig
from slimscale.serving.config_file import ConfigFile
from slimscale.serving.http.messages import Limits
from slimscale.serving.http.server import HttpServer
from slimscale.serving.http.status import StatusServer
from slimscale.serving.process_tuning import calm_collector
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.sidecar.answers import Answers
from slimscale.serving.sidecar.backend import ModelServer
from slimscale.serving.sidecar.batcher import Batcher
from slimscale.serving.sidecar.front import Front
from slimscale.serving.sidecar.keeper import Keeper
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import ModelState
from slimscale.serving.sidecar.settings import SidecarSettings
from slimscale.serving.supervise import Supervised

__all__ = ["Sidecar", "serve"]

_log = logging.getLogger(__name__)


class Sidecar:
    """One sidecar. `start`, then `drain` once it shall end; `close` at any time."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._file = ConfigFile(settings.config, SidecarConfig)
        self._config = self._file.load()
        self.metrics = SidecarMetrics()
        self._model_server = ModelServer(settings.modelserver_host, settings.modelserver_port)
        self.batcher = Batcher(
            self._model_server,
            self._config.batching,
            self.metrics,
            Answers(self.metrics, settings.pod_name, settings.pool),
            wake=self._wake,
        )
        self.keeper = Keeper(
            self._model_server, self.batcher, self.metrics, first=_widest(self._config)
        )
        self._front = Front(self.batcher, self._config, self.metrics, ready=self.ready)
        self.server = HttpServer(
            self._front.handle,
            name="sidecar",
            refusal=error_response,
            refused=self._refused,
        )
        self.status = StatusServer(
            self.metrics.registry,
            live=lambda: None,
            ready=self.ready,
            refresh=self.batcher.refresh_gauges,
        )
        failed = self.metrics.loop_restarts
        self._loops = (
            Supervised("keeper", self._keep, failed=lambda name: failed.labels(name).inc()),
            Supervised("config", self._follow, failed=lambda name: failed.labels(name).inc()),
        )
        self._take_up(self._config)

    async def start(self) -> None:
        settings = self._settings
        await self.status.start(settings.host, settings.status_port)
        await self.server.start(settings.host, settings.port)
        for loop in self._loops:
            loop.start()

    def ready(self) -> str | None:
        """None, or why the pod takes no traffic now."""
        if self.batcher.draining:
            return "draining"
        for loop in self._loops:
            if not loop.well:
                return f"the loop {loop.name} has failed and starts anew"
        if self.keeper.problem is not None:
            return self.keeper.problem
        return None if self.batcher.up else "the model server is gone"

    async def drain(self) -> None:
        """Not ready first, but still taking requests while endpoints lag behind; then what is
        queued is finished; then close. What is left after `drainSeconds` gets a 503."""
        _log.info("draining")
        self.batcher.draining = True
        self.server.drain()
        self.batcher.pump()  # nothing is held back for a fuller batch any more
        await asyncio.sleep(self._settings.drain_grace_seconds)
        try:
            async with asyncio.timeout(self._config.drain_seconds):
                await self.server.close(self._config.drain_seconds)
                await self.batcher.wait_idle()
        except TimeoutError:
            _log.warning("%d requests are given up", self.batcher.pending)
        await self.close()
        _log.info("drained")

    async def close(self) -> None:
        for loop in self._loops:
            await loop.stop()
        await self.keeper.close()
        await self.batcher.close()
        await self.server.close()
        await self.status.close()
        await self._model_server.close()

    # ---- loops

    async def _keep(self) -> None:
        while True:
            await self.keeper.run_once()
            self._loops[0].alive()

    async def _follow(self) -> None:
        faults = self._file.failures
        while True:
            await asyncio.sleep(1.0)
            config = self._file.poll()
            if config is not None:
                self._take_up(config)
            self.metrics.config_faults.inc(self._file.failures - faults)
            faults = self._file.failures
            self._loops[1].alive()

    def _take_up(self, config: SidecarConfig) -> None:
        self._config = config
        now = asyncio.get_running_loop().time()
        models = self.batcher.models
        for width in config.widths:
            models.setdefault(width.model, ModelState(width.model, now))
        # A width that has gone is not offered any more; what is queued for it still runs.
        self._front.configure(config)
        self.keeper.first = _widest(config)
        # What arrives is bounded like what is queued: both are bodies of clients in our memory.
        receiving = max(config.batching.queue_bytes, config.max_body_bytes)
        self.server.limits = Limits(body_bytes=config.max_body_bytes, receiving_bytes=receiving)
        self.batcher.configure(config.batching)
        for setting, value in config.batching.model_dump(by_alias=True).items():
            self.metrics.config_value.labels(setting).set(value)

    def _wake(self) -> None:
        self.keeper.wake()

    def _refused(self, status: int) -> None:
        self.metrics.refused("Http")
        self.metrics.answered(status)


def _widest(config: SidecarConfig) -> str:
    return max(config.widths, key=lambda width: width.ratio).model


async def serve(settings: SidecarSettings) -> None:
    """Until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sidecar = Sidecar(settings)
    await sidecar.start()
    calm_collector()
    _log.info("listening on port %d", sidecar.server.port)
    await stop.wait()
    await sidecar.drain()
