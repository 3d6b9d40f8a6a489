"""A CPU quota round this process, set as the kubelet sets it: for `simserver sweep`. Needs root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PERIOD_MICROSECONDS", "QuotaError", "cpu_quota"]

PERIOD_MICROSECONDS = 100_000
"""The kernel's and the kubelet's default."""


class QuotaError(Exception):
    """No cgroup can be made here; the message says what is needed."""


@contextmanager
def cpu_quota(cores: float, *, root: Path = Path("/sys/fs/cgroup")) -> Iterator[None]:
    """Run this process in a cgroup of its own with `cores` CPUs; afterwards back where it was.

    Both formats: cgroup v1 (`cpu.cfs_quota_us`) and v2 (`cpu.max`). Raises QuotaError.
    """
    old_format = (root / "cpu").is_dir()
    base = root / "cpu" if old_format else root
    group = base / f"simserver-sweep-{os.getpid()}"
    home = base / _own_path(old_format).lstrip("/") / "cgroup.procs"
    quota = max(1000, round(cores * PERIOD_MICROSECONDS))
    try:
        group.mkdir()
    except OSError as error:
        raise QuotaError(f"cannot make a cgroup ({error.strerror}); run as root") from error
    try:
        try:
            if old_format:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise QuotaError(f"cannot set a CPU quota ({error.strerror}); run as root") from error
        try:
            yield
        finally:
            home.write_text(str(os.getpid()))
    finally:
        group.rmdir()


def _own_path(old_format: bool) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if (old_format and "cpu" in controllers.split(",")) or (not old_format and number == "0"):
            return path
    return "/"
