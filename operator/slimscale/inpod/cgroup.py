"""CPU quota, throttling and use of this container, from cgroup v2, v1 or both mounted at once.

Which directory is ours is found from the mounts: a container may see its own group as `/`, or the
host's full path, of which only the end lies below the mount.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CgroupCpu",
    "CgroupMount",
    "affinity_count",
    "cpu_count_available",
    "group_directories",
    "parse_cgroup_paths",
    "parse_mounts",
    "parse_stat",
    "parse_v2_quota",
    "quota_cores_v1",
    "read_cgroup",
]

_MICROSECONDS = 1_000_000
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CgroupCpu:
    """None: no quota, or the kernel does not say. Counters are cumulative, in seconds or counts."""

    quota_cores: float | None = None
    usage_seconds: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """root: which group the mount point shows. controllers: empty for v2."""

    root: str
    point: str
    version: int
    controllers: frozenset[str] = frozenset()


def parse_mounts(mountinfo: str) -> list[CgroupMount]:
    """The cgroup mounts of /proc/self/mountinfo (proc_pid_mountinfo(5))."""
    mounts = []
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if not separator or len(fields) < 5 or len(tail) < 1:
            continue
        root, point = _unescape(fields[3]), _unescape(fields[4])
        if tail[0] == "cgroup2":
            mounts.append(CgroupMount(root, point, 2))
        elif tail[0] == "cgroup" and len(tail) >= 3:
            mounts.append(CgroupMount(root, point, 1, frozenset(tail[2].split(","))))
    return mounts


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def parse_cgroup_paths(text: str) -> dict[str, str]:
    """/proc/self/cgroup: path by controller; the key of the v2 hierarchy is empty."""
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator or not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            paths[""] = path
        for controller in filter(None, controllers.split(",")):
            paths[controller] = path
    return paths


def parse_v2_quota(text: str) -> float | None:
    """`cpu.max`: quota and period in microseconds -> cores; None: `max` or unreadable."""
    fields = text.split()
    if not fields or fields[0] == "max":
        return None
    return quota_cores_v1(fields[0], fields[1] if len(fields) > 1 else "100000")


def quota_cores_v1(quota_us: str, period_us: str) -> float | None:
    """`cpu.cfs_quota_us` over `cpu.cfs_period_us`, in cores; None: -1, no quota, or unreadable."""
    try:
        quota, period = int(quota_us), int(period_us)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def parse_stat(text: str) -> dict[str, int]:
    """`cpu.stat`: one name and whole number a line."""
    figures = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            figures[name] = int(value)
    return figures


def read_cgroup(root: Path = Path("/")) -> CgroupCpu:
    """Read what the kernel says of our group. `root` is where /proc and /sys are, for tests."""
    mounts = parse_mounts(_read(root / "proc/self/mountinfo") or "")
    paths = parse_cgroup_paths(_read(root / "proc/self/cgroup") or "")
    cpu_v1 = _find(mounts, "cpu")
    if cpu_v1 is not None:
        # Both versions can be mounted; the cpu controller is then v1's.
        account = _find(mounts, "cpuacct") or cpu_v1
        return _read_v1(
            list(_directories(root, cpu_v1, paths.get("cpu", "/"))),
            next(_directories(root, account, paths.get("cpuacct", "/"))),
        )
    v2 = next((mount for mount in mounts if mount.version == 2), None)
    if v2 is None:
        return CgroupCpu()
    return _read_v2(list(_directories(root, v2, paths.get("", "/"))))


def group_directories(controller: str, root: Path = Path("/")) -> tuple[int, list[Path]]:
    """(version, our group's directory and its ancestors) of a controller; version 0: none is there."""
    mounts = parse_mounts(_read(root / "proc/self/mountinfo") or "")
    paths = parse_cgroup_paths(_read(root / "proc/self/cgroup") or "")
    v1 = _find(mounts, controller)
    if v1 is not None:
        return 1, list(_directories(root, v1, paths.get(controller, "/")))
    v2 = next((mount for mount in mounts if mount.version == 2), None)
    if v2 is None:
        return 0, []
    return 2, list(_directories(root, v2, paths.get("", "/")))


def _find(mounts: list[CgroupMount], controller: str) -> CgroupMount | None:
    return next((mount for mount in mounts if controller in mount.controllers), None)


def _directories(root: Path, mount: CgroupMount, path: str) -> Iterator[Path]:
    """Our group's directory, then its ancestors up to the mount point."""
    top = root / mount.point.lstrip("/")
    inside = path.removeprefix(mount.root.rstrip("/")) if _below(path, mount.root) else path
    parts = [part for part in inside.split("/") if part and part != ".."]
    while parts:
        directory = top.joinpath(*parts)
        if directory.is_dir():
            yield directory
        parts.pop()
    yield top


def _below(path: str, ancestor: str) -> bool:
    start = ancestor.rstrip("/")
    return path == start or path.startswith(start + "/")


def _read_v2(directories: list[Path]) -> CgroupCpu:
    quotas = [parse_v2_quota(_read(directory / "cpu.max") or "") for directory in directories]
    stat = parse_stat(_read(directories[0] / "cpu.stat") or "")
    return CgroupCpu(
        quota_cores=_least(quotas),
        usage_seconds=_seconds(stat.get("usage_usec"), _MICROSECONDS),
        periods=stat.get("nr_periods"),
        throttled_periods=stat.get("nr_throttled"),
        throttled_seconds=_seconds(stat.get("throttled_usec"), _MICROSECONDS),
    )


def _read_v1(directories: list[Path], account: Path) -> CgroupCpu:
    quotas = [
        quota_cores_v1(
            _read(directory / "cpu.cfs_quota_us") or "",
            _read(directory / "cpu.cfs_period_us") or "",
        )
        for directory in directories
    ]
    stat = parse_stat(_read(directories[0] / "cpu.stat") or "")
    usage = (_read(account / "cpuacct.usage") or "").strip()
    return CgroupCpu(
        quota_cores=_least(quotas),
        usage_seconds=_seconds(int(usage), _NANOSECONDS) if usage.isdigit() else None,
        periods=stat.get("nr_periods"),
        throttled_periods=stat.get("nr_throttled"),
        throttled_seconds=_seconds(stat.get("throttled_time"), _NANOSECONDS),
    )


def _least(quotas: list[float | None]) -> float | None:
    """An ancestor's quota binds too."""
    return min((quota for quota in quotas if quota is not None), default=None)


def _seconds(value: int | None, units_per_second: int) -> float | None:
    return None if value is None else value / units_per_second


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def affinity_count() -> int:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def cpu_count_available(root: Path = Path("/")) -> float:
    """Cores that quota and affinity leave, in fractions of a core."""
    quota = read_cgroup(root).quota_cores
    allowed = float(affinity_count())
    return allowed if quota is None else min(allowed, quota)
