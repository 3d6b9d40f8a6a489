"""All models: loads, unloads and rebuilds them without dropping a batch."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from slimscale.serving.modelserver.cpu_meter import CpuMeter, cpu_beside_this_thread
from slimscale.serving.modelserver.inline import Inline
from slimscale.serving.modelserver.instances import Instance, Model
from slimscale.serving.modelserver.metrics import ModelServerMetrics
from slimscale.serving.modelserver.runtime import ModelFault, open_model, warm

__all__ = ["MODEL_FILE", "MOST_INSTANCES", "Repository"]

_log = logging.getLogger(__name__)

MODEL_FILE = "model.onnx"
MOST_INSTANCES = 16


class Repository:
    """Models by name, in `directory`/<model>/model.onnx.

    Loading happens in a thread of its own, one model after another: sessions of several models at
    once would make each other slow and blur what memory each takes. Made in the event loop's thread.
    """

    def __init__(self, metrics: ModelServerMetrics, *, threads: int) -> None:
        self.models: dict[str, Model] = {}
        self.threads = threads
        """Of each session, as last applied."""
        self._inline = Inline()
        self._meter = CpuMeter(cpu_beside_this_thread(), metrics.used_cpu)
        self._metrics = metrics
        self._names: frozenset[str] = frozenset()
        self._directory = Path("/models")
        self._warm_rows: Sequence[int] = (1,)
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._changing = asyncio.Lock()

    def configure(self, *, directory: Path, names: Sequence[str], warm_rows: Sequence[int]) -> None:
        """Which models there are. One that has gone stays while it is loaded, and is not loaded again."""
        self._directory = directory
        self._warm_rows = sorted(set(warm_rows))
        self._names = frozenset(names)
        for name in names:
            self.models.setdefault(name, Model(name, self._inline, self._meter))
        for name in set(self.models) - self._names:
            if not self.models[name].instances:
                del self.models[name]

    def model(self, name: str) -> Model:
        """ModelFault (404) for a name that is not in the configuration."""
        model = self.models.get(name)
        if model is None:
            raise self._unknown(name)
        return model

    def _unknown(self, name: str) -> ModelFault:
        known = ", ".join(sorted(self._names)) or "none"
        return ModelFault(f"model {name[:64]!r} is unknown; known: {known}", 404)

    async def load(self, name: str, instances: int) -> None:
        """Have exactly `instances` of a model loaded and warm: more or fewer than now, or the same.

        Raises:
            ModelFault: unknown or missing (404), or not loadable (400); what was there stays.
        """
        async with self._changing:
            model = self.model(name)
            if name not in self._names:
                raise self._unknown(name)
            have = model.instances
            if len(have) >= instances:
                model.replace(have[:instances])
            else:
                if not have:
                    model.state, model.reason = "LOADING", "loading"
                began = monotonic()
                try:
                    made = await self._build(name, instances - len(have))
                except ModelFault as error:
                    self._metrics.loads.labels(name, "failed").inc()
                    if not have:
                        model.state, model.reason = "UNAVAILABLE", str(error)
                    raise
                model.replace([*have, *made])
                self._metrics.loads.labels(name, "done").inc()
                self._metrics.load_seconds.labels(name).set(monotonic() - began)
                _log.info("%s: %d instances loaded and warm", name, instances)
            self._metrics.instances.labels(name).set(len(model.instances))

    async def unload(self, name: str) -> None:
        """What runs ends in peace. ModelFault (404) for an unknown name."""
        async with self._changing:
            model = self.model(name)
            model.replace([])
            if name not in self._names:
                del self.models[name]
            self._metrics.instances.labels(name).set(0)
            _log.info("%s unloaded", name)

    async def set_threads(self, threads: int) -> None:
        """Rebuild every session with another thread count; batches go on meanwhile.

        Raises:
            ModelFault: a session could not be made; the others keep what they got, and this may be
                called again.
        """
        async with self._changing:
            for model in tuple(self.models.values()):
                stale = [i for i in model.instances if i.threads != threads]
                if stale:
                    model.replace(await self._build(model.name, len(model.instances), threads))
            self.threads = threads

    async def close(self) -> None:
        for model in self.models.values():
            model.replace([])
        self._loader.shutdown(wait=False, cancel_futures=True)

    async def _build(self, name: str, count: int, threads: int | None = None) -> list[Instance]:
        path = self._directory / name / MODEL_FILE
        threads = threads or self.threads
        rows = tuple(self._warm_rows)

        def build() -> list[Instance]:
            made = []
            for _ in range(count):
                opened = open_model(name, path, threads=threads)
                warm(opened, rows)
                made.append(Instance(opened, threads=threads))
            return made

        return await asyncio.get_running_loop().run_in_executor(self._loader, build)
