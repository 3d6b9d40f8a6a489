"""Puts the model server together, starts it, follows configuration and threads, and ends it."""

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from slimscale.api.serving_config import ModelServerConfig
from slimscale.devices.nvml import Nvml, wanted_devices
from slimscale.inpod.recorder import Recorder
from slimscale.serving.config_file import ConfigFile
from slimscale.serving.http.messages import Limits
from slimscale.serving.http.server import HttpServer
from slimscale.serving.http.status import StatusServer
from slimscale.serving.modelserver.cpu_device import CPU, CpuDevice
from slimscale.serving.modelserver.device import LOOK_SECONDS, DeviceWatch, document
from slimscale.serving.modelserver.front import Front
from slimscale.serving.modelserver.metrics import ModelServerMetrics
from slimscale.serving.modelserver.repository import Repository
from slimscale.serving.modelserver.runtime import CUDA, ModelFault, providers
from slimscale.serving.modelserver.settings import ModelServerSettings
from slimscale.serving.modelserver.threads import ThreadSource
from slimscale.serving.process_tuning import calm_collector
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.supervise import Supervised

__all__ = ["ModelServerProcess", "serve"]

_log = logging.getLogger(__name__)

THREADS_SECONDS = 0.2
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.5, 30.0
_DRAIN_SECONDS = 30.0


class ModelServerProcess:
    """`start`, then `close`. Ready once every model of `preload` is loaded and warm."""

    def __init__(self, settings: ModelServerSettings, *, device: DeviceWatch | None = None) -> None:
        self._settings = settings
        self._file = ConfigFile(settings.config, ModelServerConfig)
        self._config = self._file.load()
        self.device = device or DeviceWatch(
            Nvml(
                wanted=wanted_devices(
                    settings.nvidia_devices,
                    os.environ.get("CUDA_VISIBLE_DEVICES"),
                    os.environ.get("NVIDIA_VISIBLE_DEVICES"),
                ),
                now=time.monotonic,
            ),
            CpuDevice(now=time.monotonic),
            now=time.monotonic,
        )
        self._recorder = Recorder()
        self.metrics = ModelServerMetrics(self._recorder, lambda: self.device.readings)
        self._source = ThreadSource(self._recorder)
        self._source.fixed = self._config.threads
        self.repository = Repository(self.metrics, threads=self._source.wanted())
        self._front = Front(
            self.repository,
            self.metrics,
            live=lambda: self.device.restart,
            ready=self.ready,
            device=lambda: document(self.device.readings),
        )
        self._recorder.threads_applied = lambda: self.repository.threads
        self._recorder.outstanding = self._front.occupancy.outstanding
        self._missing: dict[str, str] = {}
        """Models of `preload` that are not loaded yet, with the reason."""
        self._was_ready = False
        self._configured = asyncio.Event()
        self._draining = False
        self.server = HttpServer(self._front.handle, name="model server", refusal=error_response)
        self.status = StatusServer(
            self.metrics.registry, live=lambda: self.device.restart, ready=self.ready
        )
        self._loops = (
            Supervised("preload", self._preload),
            Supervised("threads", self._follow_threads),
            Supervised("config", self._follow_config),
            Supervised("device", self._watch_device),
        )
        self._take_up(self._config)

    async def start(self) -> None:
        settings = self._settings
        await self.device.look()
        if self.device.readings[0].kind != CPU and CUDA not in providers():
            _log.warning(
                "there is a GPU, but this onnxruntime can't use it: install onnxruntime-gpu"
            )
        await self.server.start(settings.modelserver_host, settings.modelserver_port)
        await self.status.start(settings.host, settings.metrics_port)
        for loop in self._loops:
            loop.start()

    def ready(self) -> str | None:
        """None, or why no inference should be sent here.

        Once ready, a further model that loads, or fails to, changes nothing: the others serve.
        """
        if self._draining:
            return "draining"
        if self.device.lost is not None:
            return self.device.lost
        if not self._was_ready:
            for name, reason in self._missing.items():
                return f"{name}: {reason}"
        self._was_ready = True
        return None

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Finish what runs, up to `grace_seconds`."""
        self._draining = True
        self.server.drain()
        for loop in self._loops:
            await loop.stop()
        await self.server.close(grace_seconds)
        await self.status.close()
        await self.repository.close()
        self.device.close()

    # ---- loops

    def _take_up(self, config: ModelServerConfig) -> None:
        self._config = config
        self._source.fixed = config.threads
        self.server.limits = Limits(body_bytes=config.max_body_bytes)
        names = [width.model for width in config.widths]
        self.repository.configure(
            directory=Path(config.directory), names=names, warm_rows=config.warm_rows or [1]
        )
        for name in set(config.preload) - set(names):
            _log.error("preload names %s, which is no model of widths; left out", name)
        self._missing = {
            name: "not loaded yet"
            for name in config.preload
            if name in names and not self.repository.models[name].instances
        }
        self._configured.set()

    async def _preload(self) -> None:
        """Load what is to be there before the pod is ready; one that fails is tried again."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            for name in tuple(self._missing):
                model = self.repository.models.get(name)
                if model is not None and not model.instances:
                    try:
                        await self.repository.load(name, 1)
                    except ModelFault as error:
                        if self._missing.get(name, str(error)) != str(error):
                            _log.error("%s", error)
                            self._missing[name] = str(error)
                        continue
                self._missing.pop(name, None)
            self._loops[0].alive()
            try:
                async with asyncio.timeout(pause if self._missing else None):
                    await self._configured.wait()
                pause = _FIRST_RETRY_SECONDS
            except TimeoutError:
                pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
            self._configured.clear()

    async def _follow_threads(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while True:
            wanted = self._source.wanted()
            if wanted == self.repository.threads:
                await asyncio.sleep(THREADS_SECONDS)
                continue
            try:
                await self.repository.set_threads(wanted)
            except ModelFault as error:
                self.metrics.rebuilds.labels("failed").inc()
                _log.warning("%d threads not applied, tried again: %s", wanted, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
                continue
            pause = _FIRST_RETRY_SECONDS
            self.metrics.rebuilds.labels("done").inc()
            self._loops[1].alive()
            _log.info("sessions have %d threads now", wanted)

    async def _follow_config(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            config = self._file.poll()
            if config is not None:
                self._take_up(config)
            self.metrics.config_failures.set(self._file.error is not None)
            self._loops[2].alive()

    async def _watch_device(self) -> None:
        while True:
            await self.device.look()
            self._loops[3].alive()
            await asyncio.sleep(LOOK_SECONDS)


async def serve(settings: ModelServerSettings) -> None:
    """Until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    process = ModelServerProcess(settings)
    await process.start()
    calm_collector()
    _log.info(
        "listening on %s port %d with %s, %d threads",
        settings.modelserver_host,
        process.server.port,
        " and ".join(providers()),
        process.repository.threads,
    )
    await stop.wait()
    await process.close(_DRAIN_SECONDS)
