"""The container's CPU and memory as a device, by its cgroup: for pods without a GPU."""

from collections.abc import Callable, Iterable
from pathlib import Path

from slimscale.devices.reading import DeviceReading
from slimscale.inpod.cgroup import affinity_count, group_directories, parse_stat, read_cgroup

__all__ = ["CPU", "CpuDevice"]

CPU = "cpu"
_LEAST_SECONDS = 0.5
"""Shorter stretches tell little: the CPU time of a quota comes in periods of 0.1 s."""
_NO_LIMIT = 1 << 60
"""cgroup v1 says so with a number near the largest."""

_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class CpuDevice:
    """Utilisation between two readings; memory that may still be taken."""

    def __init__(self, *, now: Callable[[], float], root: Path = Path("/")) -> None:
        self._now = now
        self._root = root
        self._before: tuple[float, float] | None = None
        self._utilisation: float | None = None

    def read(self) -> DeviceReading:
        """Utilisation is unknown at the first reading, and where the kernel counts no use."""
        total, free = self._memory()
        return DeviceReading(
            device=CPU,
            kind=CPU,
            utilisation=self._use(),
            memory_total_bytes=total,
            memory_free_bytes=free,
        )

    def _use(self) -> float | None:
        """CPU time over what quota or affinity allow, 0 to 1."""
        cgroup, now = read_cgroup(self._root), self._now()
        if cgroup.usage_seconds is None:
            self._before = None
            return None
        if self._before is None:
            self._before = (now, cgroup.usage_seconds)
            return None
        then, used = self._before
        if now - then >= _LEAST_SECONDS:
            cores = min(cgroup.quota_cores or float("inf"), float(affinity_count()))
            share = (cgroup.usage_seconds - used) / (now - then) / cores
            self._utilisation = min(1.0, max(0.0, share))
            self._before = (now, cgroup.usage_seconds)
        return self._utilisation

    def _memory(self) -> tuple[int | None, int | None]:
        """(total, free) bytes: the tightest limit of our group and its ancestors, else the node's.

        Page cache that the kernel can drop at once counts as free, as in the kubelet's working set.
        """
        node = _meminfo(self._root / "proc/meminfo")
        version, directories = group_directories("memory", self._root)
        limits = [
            found
            for directory in directories
            if (found := _limit_and_free(directory, _NAMES[version])) is not None
        ]
        total = _least([limit for limit, _ in limits] + node[:1])
        free = _least([free for _, free in limits] + node[1:])
        return total, free


def _limit_and_free(directory: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    """None: this group has no limit."""
    limit, used = _number(directory / names[0]), _number(directory / names[1])
    if limit is None or limit >= _NO_LIMIT or used is None:
        return None
    cache = parse_stat(_text(directory / "memory.stat")).get(names[2], 0)
    return limit, max(0, limit - max(0, used - cache))


def _meminfo(path: Path) -> list[int]:
    """[total, available] bytes of the node; empty where it is not said."""
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        number = value.strip().removesuffix(" kB")
        if number.isdigit():
            found[name] = int(number) * 1024
    if "MemTotal" not in found or "MemAvailable" not in found:
        return []
    return [found["MemTotal"], found["MemAvailable"]]


def _least(values: Iterable[int]) -> int | None:
    return min(values, default=None)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
