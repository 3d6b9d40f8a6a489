"""The native pool behind the interface of a simulated pod, so that all policies drive it unchanged.

Its time is the wall clock: `advance` sleeps, and whatever a policy computes costs real time.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from slimscale.bench.native.cgroups import CpuGroup
from slimscale.bench.native.program import NativePool
from slimscale.domain.contract import ContractSample
from slimscale.simulate.plant import Plant
from slimscale.simulate.workload import Host, Workload

__all__ = ["NativePlant"]

_MOST_THREADS = 256
"""Of the program (images/nativepool/pool.h)."""


class NativePlant:
    """A context manager; one process in one control group. Everything as in `simulate.plant`."""

    def __init__(self, program: Path, workload: Workload, host: Host, *, seed: int) -> None:
        self.pod_uid = f"native-{seed}"
        self.host = host
        self._workload = workload
        self._threads = 1
        self._group = CpuGroup(f"nativepool-live-{seed}")
        self._program, self._seed = program, seed
        self._pool: NativePool | None = None
        self.start_seconds = time.time()

    def __enter__(self) -> Self:
        self._group.__enter__()
        try:
            self._group.set_quota(self.host.quota_cores)
            self._group.favour()
            self._pool = NativePool(
                self._program, self._workload, threads=1, seed=self._seed, group=self._group
            )
        except BaseException:
            self._group.__exit__(None, None, None)
            raise
        self.start_seconds = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()
        self._group.__exit__(kind, error, trace)

    def as_plant(self) -> Plant:
        """For the runner and the policies, which ask for the simulated one."""
        return cast(Plant, self)

    @property
    def pool(self) -> NativePool:
        if self._pool is None:
            raise RuntimeError("enter the plant before it is used")
        return self._pool

    @property
    def now_seconds(self) -> float:
        return time.time()

    @property
    def threads(self) -> int:
        """As asked for; the program follows within 0.2 s and says so in its samples."""
        return self._threads

    @property
    def quota_cores(self) -> float | None:
        return self._group.quota_cores

    @property
    def workload(self) -> Workload:
        return self._workload

    @property
    def tasks_done(self) -> int:
        return int(self.pool.raw()["tasks_total"])

    def set_workload(self, workload: Workload) -> None:
        self._workload = workload
        self.pool.set_workload(workload)

    def set_threads(self, threads: int) -> None:
        """Writes the thread file, as the kubelet does. Raises ValueError outside 1 to 256."""
        if not 1 <= threads <= _MOST_THREADS:
            raise ValueError(f"{threads} threads; the native pool has 1 to {_MOST_THREADS}")
        self._threads = threads
        self.pool.want(threads)

    def set_quota(self, cores: float | None) -> None:
        self._group.set_quota(cores)

    def advance(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def sample(self) -> ContractSample:
        return self.pool.sample(pod_uid=self.pod_uid)
