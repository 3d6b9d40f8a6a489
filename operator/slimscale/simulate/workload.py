"""What a simulated pod does, and what it runs on.

Plain values without behaviour, so that data sets, benchmarks and tests can make and compare them
without the compiled simulator.
"""

from dataclasses import dataclass
from enum import StrEnum

from slimscale.threads.checks import require_count, require_in_range

__all__ = ["MOST_THREADS", "Family", "Host", "TimeDistribution", "Waiting", "Workload"]

MOST_THREADS = 4096
"""Threads of one pod, and tasks in circulation."""

_LONGEST_SECONDS = 1e6
_MOST_VARIATION = 1e3
_MOST_CONTENTION = 1e6


class Family(StrEnum):
    """Shape of a time. EXPONENTIAL and DETERMINISTIC have a variation of their own."""

    DETERMINISTIC = "deterministic"
    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"
    BIMODAL = "bimodal"
    """Two values: half the mean, and one as long and as rare as mean and variation ask for."""
    PARETO = "pareto"
    """Exponent 1.5, truncated where the variation asks for it."""


@dataclass(frozen=True, slots=True)
class TimeDistribution:
    """A time in seconds. `squared_variation` is variance over squared mean (CV²).

    A mean of 0 is no time at all. A variation of 0 makes every family deterministic.

    Raises
    ------
    ValueError
        The mean is outside 0 to 1e6 s, or the variation outside 0 to 1e3.
    """

    family: Family
    mean_seconds: float
    squared_variation: float = 1.0

    def __post_init__(self) -> None:
        require_in_range(
            "mean_seconds", self.mean_seconds, 0.0, _LONGEST_SECONDS, remedy="give seconds"
        )
        require_in_range(
            "squared_variation",
            self.squared_variation,
            0.0,
            _MOST_VARIATION,
            remedy="give variance over squared mean",
        )

    @property
    def effective_variation(self) -> float:
        """CV² of the times drawn: 0 and 1 for the families whose shape fixes it."""
        fixed = {Family.DETERMINISTIC: 0.0, Family.EXPONENTIAL: 1.0}
        return fixed.get(self.family, self.squared_variation)


class Waiting(StrEnum):
    """How threads wait for the dispatcher: asleep, or burning CPU in a loop."""

    PARK = "park"
    SPIN = "spin"


@dataclass(frozen=True, slots=True)
class Workload:
    """One task's parts and what it competes for.

    Each thread goes round: pass the dispatcher (first come, first served, its holding time times
    1 + h*(q>1) + a1*(q-1) + b1*q*(q-1) with q threads there), compute, block.

    Raises
    ------
    ValueError
        A task that neither computes nor blocks, a negative contention, or fewer than one task.
    """

    cpu: TimeDistribution
    """Seconds of a CPU of its own that a task computes."""
    blocking: TimeDistribution
    """Seconds that a task waits for something outside, without a CPU."""
    dispatch: TimeDistribution
    """Seconds of CPU that handing over a task holds the dispatcher, with nobody else there."""
    contention_linear: float = 0.0
    """a1, as in `slimscale.threads.closed_network`."""
    contention_quadratic: float = 0.0
    """b1."""
    contention_handover: float = 0.0
    """h."""
    waiting: Waiting = Waiting.PARK
    outstanding: int | None = None
    """N: tasks in circulation. None: always more than there are threads."""

    def __post_init__(self) -> None:
        if self.cpu.mean_seconds + self.blocking.mean_seconds <= 0:
            raise ValueError("a task must compute or block: cpu and blocking both have mean 0")
        for name in ("contention_linear", "contention_quadratic", "contention_handover"):
            require_in_range(
                name, getattr(self, name), 0.0, _MOST_CONTENTION, remedy="give 0 for none"
            )
        if self.outstanding is not None:
            require_count(
                "outstanding", self.outstanding, 1, MOST_THREADS, remedy="give None for no bound"
            )

    @property
    def ratio(self) -> float:
        """r = Z/S: task time over dispatch time; infinite without a dispatcher."""
        outside = self.cpu.mean_seconds + self.blocking.mean_seconds
        held = self.dispatch.mean_seconds
        return outside / held if held > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Host:
    """The CPUs of a pod: the node's cores and the quota of its control group.

    Raises
    ------
    ValueError
        Cores outside 1 to 4096, a quota below a millicore, a period outside 1 ms to 1 s.
    """

    cores: int
    quota_cores: float | None = None
    """CPU quota over its period, in cores; None: no quota."""
    period_seconds: float = 0.1

    def __post_init__(self) -> None:
        require_count("cores", self.cores, 1, 4096, remedy="give the node's cores")
        if self.quota_cores is not None:
            require_in_range(
                "quota_cores", self.quota_cores, 1e-3, 1e6, remedy="give None for no quota"
            )
        # The bounds of cpu.max's period in the kernel.
        require_in_range(
            "period_seconds", self.period_seconds, 1e-3, 1.0, remedy="give 0.1, the usual period"
        )
