"""A CPU control group of our own, with a quota as the kubelet sets it. Needs root.

Both formats: v1 (`cpu.cfs_quota_us`, and `cpuacct` for the use) and v2 (`cpu.max`).
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from slimscale.bench.native.errors import QuotaError
from slimscale.inpod.cgroup import CgroupCpu, parse_stat

__all__ = ["PERIOD_MICROSECONDS", "CpuGroup", "quota_microseconds"]

PERIOD_MICROSECONDS = 100_000
"""The kernel's and the kubelet's default."""

_LEAST_QUOTA_MICROSECONDS = 1000
_FAVOURED_SHARES, _FAVOURED_WEIGHT = 8192, 800
"""Eight times the usual 1024 and 100. Much more starves whoever reads the figures, and a cluster."""
_REMOVE_TRIES = 50


def quota_microseconds(quota_cores: float | None) -> int | None:
    """CPU time a period; None: no quota. The kernel takes 1 ms or more."""
    if quota_cores is None:
        return None
    if not quota_cores > 0:
        raise ValueError(f"quota_cores is {quota_cores}; give cores above 0, or None for no quota")
    return max(_LEAST_QUOTA_MICROSECONDS, round(quota_cores * PERIOD_MICROSECONDS))


class CpuGroup:
    """A context manager: the group is there inside, and gone afterwards with all in it ended."""

    def __init__(self, name: str, *, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._old_format = (root / "cpu").is_dir()
        self._cpu = root / "cpu" / name if self._old_format else root / name
        account = root / "cpuacct" / name
        self._account = account if self._old_format and (root / "cpuacct").is_dir() else self._cpu
        self.quota_cores: float | None = None

    def __enter__(self) -> Self:
        try:
            if not self._old_format:
                control = self._cpu.parent / "cgroup.subtree_control"
                if "cpu" not in control.read_text().split():
                    control.write_text("+cpu")
            self._cpu.mkdir()
            if self._account != self._cpu and not self._account.exists():
                self._account.mkdir()
        except OSError as error:
            raise QuotaError(
                f"cannot make the control group {self._cpu.name} ({error.strerror}); run as root"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for folder in {self._cpu, self._account}:
            _remove(folder)

    def set_quota(self, quota_cores: float | None) -> None:
        """Holds from the next period on. Raises QuotaError where the kernel refuses."""
        quota = quota_microseconds(quota_cores)
        try:
            if self._old_format:
                (self._cpu / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
                (self._cpu / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
            else:
                most = "max" if quota is None else str(quota)
                (self._cpu / "cpu.max").write_text(f"{most} {PERIOD_MICROSECONDS}")
        except OSError as error:
            raise QuotaError(f"cannot set a CPU quota ({error.strerror}); run as root") from error
        self.quota_cores = quota_cores

    def favour(self) -> None:
        """Let the group go before what else runs here, as on a node of its own. v1 and v2."""
        try:
            if self._old_format:
                (self._cpu / "cpu.shares").write_text(str(_FAVOURED_SHARES))
            else:
                (self._cpu / "cpu.weight").write_text(str(_FAVOURED_WEIGHT))
        except OSError as error:
            raise QuotaError(f"cannot favour a control group ({error.strerror})") from error

    def add(self, process: int) -> None:
        """Move a process with all its threads into the group."""
        try:
            for folder in {self._cpu, self._account}:
                (folder / "cgroup.procs").write_text(str(process))
        except OSError as error:
            raise QuotaError(
                f"cannot move process {process} into {self._cpu.name} ({error.strerror})"
            ) from error

    def figures(self) -> CgroupCpu:
        """What the kernel has counted since the group was made."""
        stat = parse_stat((self._cpu / "cpu.stat").read_text())
        if self._old_format:
            usage: float | None = int((self._account / "cpuacct.usage").read_text()) * 1e-9
            throttled = stat.get("throttled_time", 0) * 1e-9
        else:
            usage = stat["usage_usec"] * 1e-6 if "usage_usec" in stat else None
            throttled = stat.get("throttled_usec", 0) * 1e-6
        return CgroupCpu(
            quota_cores=self.quota_cores,
            usage_seconds=usage,
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            throttled_seconds=throttled,
        )


def _remove(folder: Path) -> None:
    """A group can be removed a moment after its last process has ended."""
    for attempt in range(_REMOVE_TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if attempt == _REMOVE_TRIES - 1:
                raise
            time.sleep(0.02)
        else:
            return
