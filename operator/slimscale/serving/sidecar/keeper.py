"""Keeps in touch with the model server: is it there, what is loaded, what to load or unload.

A model server is used once one real inference has gone through it; that is asked again of each one
that comes after it has been gone. What is decided stands in `routing.instances`.
"""

import asyncio
import logging
from collections.abc import Sequence

import numpy as np

from slimscale.routing.instances import Change, DeviceView, InstanceLimits, ModelView, next_step
from slimscale.serving.protocol.backend import encode_request
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import DATATYPES, Tensor
from slimscale.serving.sidecar.backend import (
    ModelNotLoaded,
    ModelRefused,
    ModelServer,
    ModelServerGone,
)
from slimscale.serving.sidecar.batcher import Batcher
from slimscale.serving.sidecar.device import read_device
from slimscale.serving.sidecar.metrics import SidecarMetrics
from slimscale.serving.sidecar.pending import ModelState
from slimscale.serving.sidecar.shares import in_order

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_RECONNECT_SECONDS = 0.1
_PROBE_SECONDS = 60.0
_REFUSED_SECONDS = 5.0
"""After a failed load its requests are refused at once for so long."""


class Keeper:
    """`first`: the model to load where the model server has none of ours loaded."""

    def __init__(
        self, server: ModelServer, batcher: Batcher, metrics: SidecarMetrics, *, first: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._batcher = batcher
        self._metrics = metrics
        self.first = first
        self.problem: str | None = "no inference has gone through the model server yet"
        """Why the model server can't be used; None: it can."""
        self._woken = asyncio.Event()
        self._change: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Something has changed: look now."""
        self._woken.set()

    async def run_once(self) -> None:
        """One look, then wait for the next reason to look."""
        seconds = _LOOK_SECONDS
        try:
            if self._batcher.up:
                await self._look()
            else:
                await self._connect()
        except ModelServerGone as error:
            self._gone(error)
        except (ModelNotLoaded, ModelRefused, ValueError) as error:
            self._problem(f"the model server can't be used: {error}")
        if not self._batcher.up:
            seconds = _RECONNECT_SECONDS
        await self._wait(seconds)

    async def close(self) -> None:
        if self._change is not None:
            self._change.cancel()
            await asyncio.gather(self._change, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _problem(self, text: str) -> None:
        if text != self.problem:
            _log.warning("%s", text)
        self.problem = text

    def _gone(self, error: ModelServerGone) -> None:
        self._batcher.up = False
        self._batcher.device = None
        self._problem(f"the model server is gone: {error}")

    # ---- coming back

    async def _connect(self) -> None:
        if not await self._server.ready():
            await self._why_not_ready()
            return
        await self._read_loaded(anew=True)
        models = self._batcher.models
        loaded = [model for model in models.values() if model.instances]
        if not loaded:
            first = models[self.first]
            await self._load(first, 1)
            loaded = [first]
        metadata = await self._server.metadata(loaded[0].name)
        await self._probe(loaded[0].name, metadata)
        self._batcher.metadata = metadata
        self.problem = None
        _log.info("the model server answers; loaded: %s", ", ".join(m.name for m in loaded))
        self._batcher.up = True
        self._batcher.pump()

    async def _why_not_ready(self) -> None:
        """Starting, mostly. A lost GPU is told on, since the pod is to be replaced then."""
        told = read_device(await self._server.device())
        if told.device_lost:
            self._batcher.device = told
            self._problem(f"the device {told.device or 'of the model server'} is lost")
        else:
            self._batcher.device = None
            self._problem("the model server is not ready")

    async def _read_loaded(self, *, anew: bool = False) -> None:
        """`anew`: it may be another process than before, with one instance of what it has."""
        models = self._batcher.models
        asked = [model.name for model in models.values() if not model.loading]
        loaded = {name: await self._server.loaded(name) for name in asked}
        for name, is_loaded in loaded.items():
            model = models[name]
            if not model.loading:  # else it began meanwhile, and what was said is old
                model.instances = (1 if anew else max(model.instances, 1)) if is_loaded else 0

    async def _probe(self, model: str, metadata: ModelMetadata) -> None:
        """One real inference of one row. Raises where it fails."""
        tensors = tuple(
            Tensor(
                spec.name,
                spec.datatype,
                np.zeros(
                    (1, *(max(length, 1) for length in spec.shape[1:])), DATATYPES[spec.datatype]
                ),
            )
            for spec in metadata.inputs
        )
        headers, parts = encode_request(tensors)
        outputs = await self._server.infer(model, headers, parts, _PROBE_SECONDS)
        in_order(outputs, metadata.outputs, 1)

    # ---- while it is there

    async def _look(self) -> None:
        batcher = self._batcher
        if not await self._server.ready():
            raise ModelServerGone("it says that it is not ready")
        batcher.device = read_device(await self._server.device())
        await self._read_loaded()
        if self._change is None or self._change.done():
            self._act()
        batcher.pump()

    def _act(self) -> None:
        batcher = self._batcher
        batching = batcher.batching
        device = batcher.device
        step = next_step(
            self._views(tuple(batcher.models.values())),
            DeviceView(
                utilisation=device.utilisation if device else None,
                memory_free_bytes=device.memory_free_bytes if device else None,
            ),
            InstanceLimits(
                max_instances=batching.max_instances,
                unload_after_seconds=batching.unload_after_seconds,
                memory_reserve_bytes=batching.memory_reserve_bytes,
                max_utilisation=batching.max_utilisation,
                full_rows=batching.max_rows,
            ),
        )
        if step.change is Change.NONE:
            return
        model = batcher.models[step.model]
        _log.info("%s %s: %s", step.change.value, step.model, step.reason)
        wanted = model.instances + (1 if step.change is Change.LOAD else -1)
        self._change = self._loop.create_task(self._set_instances(model, wanted))

    def _views(self, models: Sequence[ModelState]) -> list[ModelView]:
        now = self._loop.time()
        queues = self._batcher.queues
        return [
            ModelView(
                model=model.name,
                instances=model.instances,
                loading=model.loading,
                running=model.running,
                queued_rows=queues.rows_of(model.name),
                idle_seconds=(
                    0.0 if model.running or queues.rows_of(model.name) else now - model.idle_since
                ),
                memory_bytes=model.memory_bytes,
            )
            for model in models
            if model.refused_until <= now
        ]

    async def _set_instances(self, model: ModelState, wanted: int) -> None:
        change = "load" if wanted > model.instances else "unload"
        try:
            if wanted == 0:
                model.instances = 0  # nothing new is sent to it from here on
                await self._server.unload(model.name)
            else:
                await self._load(model, wanted)
        except ModelServerGone as error:
            self._gone(error)
            return
        except ModelRefused as error:
            self._metrics.instance_changes.labels(model.name, change, "refused").inc()
            _log.error("%s of %s: %s", change, model.name, error)
            if change == "load":
                self._batcher.refuse_model(model, f"{model.name}: {error}", _REFUSED_SECONDS)
            return
        finally:
            self.wake()
        self._metrics.instance_changes.labels(model.name, change, "done").inc()
        self._batcher.pump()

    async def _load(self, model: ModelState, wanted: int) -> None:
        before = self._free_bytes()
        started = self._loop.time()
        model.loading = True
        try:
            await self._server.load(model.name, wanted)
        finally:
            model.loading = False
        if not model.instances:
            model.load_seconds = self._loop.time() - started
        model.instances = wanted
        model.idle_since = self._loop.time()
        self._batcher.device = read_device(await self._server.device())
        after = self._free_bytes()
        if before is not None and after is not None and before > after:
            model.memory_bytes = before - after

    def _free_bytes(self) -> int | None:
        device = self._batcher.device
        return device.memory_free_bytes if device is not None else None
