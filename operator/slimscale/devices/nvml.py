"""GPUs by NVML: memory, utilisation, power; each figure may be unknown by itself.

No driver, an old driver, MIG, no permission and a GPU that fell off the bus are all everyday
states. None of them raises, and none of them reads as 0 or as idle. Processes are never asked for:
in a container they have the host's ids.
"""

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from slimscale.devices.reading import DeviceReading

__all__ = ["RETRY_SECONDS", "Nvml", "wanted_devices"]

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 180.0
"""Between two tries to start NVML where there has been no GPU so far."""
_LOST_RETRY_SECONDS: Final = 10.0
"""Between two tries to start it anew after a GPU was lost: some come back with a new start alone."""
_LOST: Final = (
    "NVMLError_GpuIsLost",
    "NVMLError_Unknown",
    "NVMLError_ResetRequired",
    "NVMLError_Uninitialized",
    "NVMLError_DriverNotLoaded",
)
"""The device can't be reached, whatever is asked. `Unknown` is what NVML says in a container that
has lost its devices while the host still has them."""


def wanted_devices(*settings: str | None) -> tuple[str, ...]:
    """UUIDs and indices of the first setting that says something; empty: all that are visible."""
    for setting in settings:
        names = tuple(name.strip() for name in (setting or "").split(",") if name.strip())
        if names and names[0] not in ("all", "void", "none", "NoDevFiles"):
            return names
    return ()


class Nvml:
    """Reads the GPUs that `wanted` names. Used from one thread at a time.

    `load` imports pynvml; an argument so that its absence can be tried.
    """

    def __init__(
        self,
        *,
        wanted: Sequence[str] = (),
        now: Callable[[], float],
        load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
    ) -> None:
        self._wanted = tuple(wanted)
        self._now = now
        self._load = load
        self._nvml: Any = None
        self._next_try = self._next_restart = float("-inf")
        self._said = ""
        self._seen: dict[str, str] = {}
        """Kind by UUID of every GPU that has been read well."""
        self._names: dict[str, str] = {}
        """UUID by what was asked for, so that a lost GPU keeps its name."""

    def read(self) -> tuple[DeviceReading, ...]:
        """Every wanted GPU, lost ones too; empty where there is none."""
        if not self._start():
            return tuple(self._lost(uuid) for uuid in self._seen)
        try:
            asked = self._wanted or tuple(map(str, range(int(self._nvml.nvmlDeviceGetCount()))))
        except self._nvml.NVMLError as error:
            self._say(f"NVML fails: {_words(error)}")
            self._restart()
            return tuple(self._lost(uuid) for uuid in self._seen)
        readings = [reading for name in asked if (reading := self._read(name)) is not None]
        if any(reading.lost for reading in readings):
            self._restart()
        elif readings:
            self._say("")
        return tuple(readings)

    def close(self) -> None:
        """Safe at any time, also where NVML never started."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                _log.debug("NVML was gone before it was shut down")

    # ---- starting

    def _start(self) -> bool:
        if self._nvml is not None:
            return True
        if self._now() < self._next_try:
            return False
        try:
            nvml = self._load()
        except ImportError:
            self._absent("pynvml is not installed")
            return False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._absent(_words(error))
            return False
        self._nvml = nvml
        return True

    def _absent(self, reason: str) -> None:
        seconds = _LOST_RETRY_SECONDS if self._seen else RETRY_SECONDS
        self._next_try = self._now() + seconds
        # Without a GPU this is how it should be.
        level = logging.WARNING if self._seen else logging.INFO
        self._say(f"no figures of a GPU: {reason}; tried again every {seconds:g} s", level)

    def _restart(self) -> None:
        """Have the next reading start NVML anew, but not at each reading."""
        if self._now() >= self._next_restart:
            self._next_restart = self._now() + _LOST_RETRY_SECONDS
            self.close()

    def _say(self, text: str, level: int = logging.WARNING) -> None:
        """Once for each new state."""
        if text != self._said:
            self._said = text
            if text:
                _log.log(level, "%s", text)
            else:
                _log.info("figures of the GPU are there again")

    # ---- one device

    def _lost(self, uuid: str) -> DeviceReading:
        return DeviceReading(device=uuid, kind=self._seen.get(uuid, "gpu"), lost=True)

    def _read(self, name: str) -> DeviceReading | None:
        """None: there is no such GPU here."""
        nvml = self._nvml
        try:
            handle = self._handle(name)
            uuid = str(nvml.nvmlDeviceGetUUID(handle))
            memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, lost=_LOST)
            rates = _or_none(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
            milliwatts = _or_none(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        except nvml.NVMLError as error:
            known = self._names.get(name)
            self._say(f"GPU {known or name} can't be read: {_words(error)}")
            if known is None:
                lost = type(error).__name__ in _LOST
                return DeviceReading(device=name, kind="gpu", lost=True) if lost else None
            return self._lost(known)
        kind = "mig" if uuid.startswith("MIG-") else "gpu"
        self._names[name], self._seen[uuid] = uuid, kind
        return DeviceReading(
            device=uuid,
            kind=kind,
            utilisation=None if rates is None else min(1.0, rates.gpu / 100),
            memory_total_bytes=None if memory is None else int(memory.total),
            memory_free_bytes=None if memory is None else int(memory.free),
            power_watts=None if milliwatts is None else milliwatts / 1000,
        )

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)


def _or_none(
    nvml: Any,
    ask: Callable[[Any], Any],
    handle: Any,
    *,
    lost: Sequence[str] = ("NVMLError_GpuIsLost", "NVMLError_ResetRequired"),
) -> Any:
    """One figure; None where this device, driver or user has none. Raises what says `lost`."""
    try:
        return ask(handle)
    except nvml.NVMLError as error:
        if type(error).__name__ in lost:
            raise
        return None


def _words(error: Exception) -> str:
    return f"{type(error).__name__.removeprefix('NVMLError_')} ({error})"
