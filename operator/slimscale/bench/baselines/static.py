"""Thread counts that nobody looks at again: what programs and platforms set by themselves."""

import math
from dataclasses import dataclass

from slimscale.bench.policy import Choice, PolicyView, cores_in_reach, within
from slimscale.simulate.workload import Host
from slimscale.threads.predictor import floor_of_quota

__all__ = ["Fixed", "FloorOfQuota", "Static", "Unset"]


@dataclass(frozen=True, slots=True)
class Static:
    """Base of the rules that are set once: never asked, so nothing of them changes."""

    name: str
    step_seconds: float = math.inf
    apply_delay_seconds: float = 0.0

    def start(self, host: Host) -> int:
        raise NotImplementedError

    def choose(self, view: PolicyView) -> Choice:
        del view
        return Choice(None)


@dataclass(frozen=True, slots=True)
class Unset(Static):
    """One thread for each core of the host, quota or not: the default of most thread pools."""

    name: str = "unset"

    def start(self, host: Host) -> int:
        return within(host.cores)


@dataclass(frozen=True, slots=True)
class FloorOfQuota(Static):
    """max(1, floor(quota)), of the cores where there is no quota: what GOMAXPROCS tools set."""

    name: str = "floor-of-quota"

    def start(self, host: Host) -> int:
        return within(floor_of_quota(cores_in_reach(host.cores, host.quota_cores)))


@dataclass(frozen=True, slots=True)
class Fixed(Static):
    """A number that somebody wrote into a manifest once."""

    threads: int = 8

    def start(self, host: Host) -> int:
        del host
        return within(self.threads)
