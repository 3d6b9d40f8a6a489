"""Looks at the device once a second, off the event loop, and keeps what it saw for `/device`."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slimscale.devices.nvml import Nvml
from slimscale.devices.reading import DeviceReading
from slimscale.serving.modelserver.cpu_device import CpuDevice

__all__ = ["DeviceWatch", "document"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
HANG_SECONDS = 5.0
"""A driver that does not answer for so long: what it said last counts no more."""
LOST_SECONDS = 30.0
"""After a GPU has been lost for so long the process asks to be restarted: its CUDA context is dead,
and a new container may get the device back."""


class DeviceWatch:
    """`readings` are the latest ones; the first is the device that models run on."""

    def __init__(self, nvml: Nvml, cpu: CpuDevice, *, now: Callable[[], float]) -> None:
        self.readings: tuple[DeviceReading, ...] = ()
        self._nvml = nvml
        self._cpu = cpu
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._lost_since: float | None = None
        self._hung = False

    async def look(self) -> None:
        """One reading; a hanging driver leaves the figures unknown until it answers."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self.read)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await asyncio.shield(work)
        except TimeoutError:
            if not self._hung:
                _log.error("the device driver has not answered for %g s", HANG_SECONDS)
            self._hung = True
            self.take(tuple(_unknown(reading) for reading in self.readings))
            await work
        self._hung = False
        self.take(work.result())

    def read(self) -> tuple[DeviceReading, ...]:
        """GPUs where there are any, else the container's CPU."""
        return self._nvml.read() or (self._cpu.read(),)

    def take(self, readings: tuple[DeviceReading, ...]) -> None:
        self.readings = readings
        lost = bool(readings) and readings[0].lost
        if not lost:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = self._now()

    @property
    def lost(self) -> str | None:
        """Why no inference can run: the device that models run on is lost. None: all is well."""
        if not self.readings or not self.readings[0].lost:
            return None
        return f"the GPU {self.readings[0].device} is lost"

    @property
    def restart(self) -> str | None:
        """Why the process should be restarted, or None."""
        if self._lost_since is None or self._now() - self._lost_since < LOST_SECONDS:
            return None
        return f"{self.lost}, for more than {LOST_SECONDS:g} s"

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if not self._hung:
            self._nvml.close()


def document(readings: tuple[DeviceReading, ...]) -> dict[str, Any]:
    """The body of `GET /device`: the first device's figures, and all devices. Unknown is left out."""
    if not readings:
        return {}
    return {**_known(readings[0]), "devices": [_known(reading) for reading in readings]}


def _known(reading: DeviceReading) -> dict[str, Any]:
    figures = {
        "device": reading.device,
        "kind": reading.kind,
        "utilisation": reading.utilisation,
        "memory_total_bytes": reading.memory_total_bytes,
        "memory_free_bytes": reading.memory_free_bytes,
        "power_watts": reading.power_watts,
        "lost": reading.lost or None,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _unknown(reading: DeviceReading) -> DeviceReading:
    return DeviceReading(device=reading.device, kind=reading.kind, lost=reading.kind != "cpu")
