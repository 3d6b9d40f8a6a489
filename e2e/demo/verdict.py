"""What was measured, and whether it is what was promised. Pure.

Rates are environment steps a second of one arm in one turn. Turns of the three arms alternate, so
a noisy neighbour hits them alike; the comparison is of turns of the same round.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Arm", "PhaseResult", "TimelinePoint", "failures", "seconds_to_reach"]

NOISE = 0.10
"""What two runs of the very same setting differ by on a shared machine, as a share."""
CLEARLY_BETTER = 1.2


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the simulation. `rates` has one entry a round, steps a second."""

    threads: int
    cpu_limit: str
    rates: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rates) if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase: guessed count, floor(quota), and what the operator chose."""

    phase: str
    must_be_clearly_better: bool
    guessed: Arm
    floor: Arm
    operator: Arm
    seconds_to_follow: float
    restarts: int

    @property
    def against_guessed(self) -> float:
        return _median_ratio(self.operator.rates, self.guessed.rates)

    @property
    def against_floor(self) -> float:
        return _median_ratio(self.operator.rates, self.floor.rates)


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """The operator's pod at one instant of the live part."""

    seconds: float
    phase: str
    threads: int | None
    cpu_limit_cores: float | None
    steps_per_second: float | None


def seconds_to_reach(timeline: Sequence[TimelinePoint], since_seconds: float) -> float:
    """From `since` until the acknowledged threads stayed near where they settled in the end.

    Near is a factor of two: the throughput of a pool is flat around its best count, and the last
    small steps towards it are not what a load change costs. Infinite when nothing was acknowledged.
    """
    if not timeline or timeline[-1].threads is None:
        return math.inf
    settled = timeline[-1].threads
    reached = math.inf
    for point in reversed(timeline):
        if point.threads is None or not settled / 2 <= point.threads <= settled * 2:
            break
        reached = point.seconds
    return max(0.0, reached - since_seconds)


def failures(results: Sequence[PhaseResult], *, follow_within_seconds: float) -> list[str]:
    """What does not hold, in words; empty when the whole story does."""
    problems = []
    for result in results:
        phase = result.phase
        if result.restarts:
            problems.append(f"{phase}: {result.restarts} restarts, 0 promised")
        if result.against_floor < 1 - NOISE:
            problems.append(
                f"{phase}: {result.against_floor:.2f} of floor(quota), at least {1 - NOISE:.2f}"
                " promised"
            )
        if result.must_be_clearly_better and result.against_floor < CLEARLY_BETTER:
            problems.append(
                f"{phase}: {result.against_floor:.2f} times floor(quota), at least"
                f" {CLEARLY_BETTER} promised"
            )
        if result.against_guessed < 1 - NOISE:
            problems.append(f"{phase}: {result.against_guessed:.2f} of the guessed count")
        if result.seconds_to_follow > follow_within_seconds:
            problems.append(
                f"{phase}: followed after {result.seconds_to_follow:.0f} s,"
                f" {follow_within_seconds:.0f} s promised"
            )
    if not results:
        problems.append("nothing was measured")
    return problems


def _median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over rounds of our rate over theirs in the same round; 0 when nothing can be said."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b > 0]
    return statistics.median(ratios) if ratios else 0.0
