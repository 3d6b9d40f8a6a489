"""What ran here, and how quiet it was: written beside every measurement."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slimscale.bench.native.errors import MachineBusy

__all__ = ["Machine", "alone", "read_machine", "read_on_time", "steal_seconds", "wait_until_quiet"]

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Machine:
    cpu_model: str
    cores: int
    architecture: str
    kernel: str
    hypervisor: bool


def read_machine(root: Path = Path("/")) -> Machine:
    model, flags = "", ""
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor") and not model:
            model = value.strip()
        if name.strip() == "flags" and not flags:
            flags = value
    return Machine(
        cpu_model=model or "unknown",
        cores=len(os.sched_getaffinity(0)),
        architecture=platform.machine(),
        kernel=platform.release(),
        hypervisor="hypervisor" in flags.split(),
    )


def steal_seconds(root: Path = Path("/")) -> float:
    """CPU time that the hypervisor gave to others, all cores, since boot (proc_stat(5))."""
    fields = (root / "proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / _TICKS_PER_SECOND if len(fields) > 8 else 0.0


def wait_until_quiet(
    *, most_load: float, patience_seconds: float, pause_seconds: float = 2.0
) -> float:
    """Returns the load average of the last minute once it is low enough. Raises MachineBusy."""
    end = time.monotonic() + patience_seconds
    while (load := os.getloadavg()[0]) > most_load:
        if time.monotonic() >= end:
            raise MachineBusy(
                f"the load average is {load:.1f}, above {most_load:g}; wait until other work is"
                " done, or raise --most-load"
            )
        time.sleep(pause_seconds)
    return load


def read_on_time() -> None:
    """Put this process before the threads it measures: late readings are long windows."""
    with suppress(PermissionError):  # then it has to do without
        os.setpriority(os.PRIO_PROCESS, 0, -15)


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Hold a folder that says "somebody measures here". Raises MachineBusy when it is taken."""
    if lock is None:
        yield
        return
    try:
        lock.mkdir()
    except FileExistsError:
        raise MachineBusy(f"{lock} exists: somebody else measures; remove it if not") from None
    try:
        yield
    finally:
        lock.rmdir()
