"""The instances of one model: each runs one batch at a time, in a thread of its own or on the loop."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slimscale.serving.modelserver.cpu_meter import CpuMeter
from slimscale.serving.modelserver.inline import Inline, ShortRuns
from slimscale.serving.modelserver.runtime import ModelFault, Opened, run_rows
from slimscale.serving.protocol.metadata import ModelMetadata
from slimscale.serving.protocol.tensors import Tensor

__all__ = ["Batch", "Instance", "Model"]

MOST_WAITING = 256
"""Batches of one model that wait for an instance; the batching sidecar keeps its own queue."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What came out, and the time that computing took."""

    outputs: list[Tensor]
    seconds: float


class Instance:
    """A session and its thread."""

    def __init__(self, opened: Opened, *, threads: int) -> None:
        self.opened = opened
        self.threads = threads
        self.retired = False
        """True: not used again after the batch that it may be running."""
        self.runs = ShortRuns()
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=opened.metadata.name)

    def run(self, inputs: Sequence[Tensor]) -> Batch:
        """In this instance's thread, or on the loop; never both at a time."""
        began = time.perf_counter()
        outputs = run_rows(self.opened, inputs)
        seconds = time.perf_counter() - began
        self.runs.took(inputs[0].array.shape[0], seconds)
        return Batch(outputs, seconds)

    def close(self) -> None:
        self.retired = True
        self.executor.shutdown(wait=False)


class Model:
    """Instances of one model, idle and busy. Used from the event loop alone."""

    def __init__(self, name: str, inline: Inline, meter: CpuMeter) -> None:
        self.name = name
        self._inline = inline
        self._meter = meter
        self.metadata: ModelMetadata | None = None
        self.instances: list[Instance] = []
        """Loaded and warm; retired ones are not among them."""
        self.state = "UNAVAILABLE"
        self.reason = "not loaded"
        self._idle: deque[Instance] = deque()
        self._waiting: deque[asyncio.Future[Instance]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def replace(self, instances: Sequence[Instance]) -> None:
        """Put `instances` in the place of all there are: busy old ones finish what they run.

        With none, whoever waits is told that the model is not loaded.
        """
        old, self.instances = self.instances, list(instances)
        kept = set(map(id, self.instances))
        for instance in old:
            if id(instance) not in kept:
                instance.retired = True
        fresh = [instance for instance in self.instances if instance not in old]
        for instance in self._idle:
            if instance.retired:
                instance.close()
        self._idle = deque(instance for instance in self._idle if not instance.retired)
        if self.instances:
            self.metadata = self.instances[0].opened.metadata
            self.state, self.reason = "READY", ""
        else:
            self.state, self.reason = "UNAVAILABLE", "unloaded"
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_exception(self.not_loaded())
        for instance in fresh:
            self._free(instance)

    async def infer(self, inputs: Sequence[Tensor]) -> Batch:
        """Run a batch on an idle instance, or on the next one that is.

        When the caller is cancelled a running batch ends by itself, and its instance is free then.

        Raises:
            ModelFault: not loaded (503), too many wait (503), or the run failed (500).
        """
        self._inline.enter(now=time.monotonic())
        try:
            instance = await self._acquire()
        except BaseException:
            self._inline.leave()
            raise
        self._meter.began()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(instance.executor, instance.run, inputs)
        work.add_done_callback(lambda _: self._ended(instance))
        return await asyncio.shield(work)

    def infer_at_once(self, inputs: Sequence[Tensor]) -> Batch | None:
        """Run a short batch here and now, on the event loop; None: it needs `infer`.

        Not on a GPU: a driver that hangs must not take the probes with it.

        Raises:
            ModelFault: the run failed (500).
        """
        if not self._idle or len(self.instances) > 1:
            return None
        instance = self._idle[0]
        expected = instance.runs.expected(inputs[0].array.shape[0])
        if instance.opened.on_gpu or not self._inline.allows(expected, now=time.monotonic()):
            return None
        self._meter.began()
        before = time.thread_time()
        try:
            return instance.run(inputs)
        finally:
            self._meter.ended(own_seconds=time.thread_time() - before)

    def _ended(self, instance: Instance) -> None:
        self._meter.ended()
        self._inline.leave()
        self._free(instance)

    def not_loaded(self) -> ModelFault:
        return ModelFault(
            f"model {self.name} is not loaded ({self.reason}); POST"
            f" /v2/repository/models/{self.name}/load",
            503,
        )

    async def _acquire(self) -> Instance:
        if not self.instances:
            raise self.not_loaded()
        if self._idle:
            return self._idle.popleft()
        if len(self._waiting) >= MOST_WAITING:
            raise ModelFault(f"model {self.name}: {MOST_WAITING} batches wait already", 503)
        turn: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._free(turn.result())
            raise

    def _free(self, instance: Instance) -> None:
        """Give the instance to whoever waits longest."""
        if instance.retired:
            instance.close()
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(instance)
                return
        self._idle.append(instance)
