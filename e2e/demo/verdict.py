"""What was measured, and whether it is what was promised. Pure.

Rates are environment steps a second of one arm in one turn. Turns of the three arms alternate, so
a noisy neighbour hits them alike; the comparison is of turns of the same round.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Arm",
    "PhaseResult",
    "TimelinePoint",
    "failures",
    "seconds_to_acknowledge",
    "seconds_to_reach",
]

NOISE = 0.10
"""What two runs of the very same setting differ by on a shared machine, as a share."""
CLEARLY_BETTER = 1.2
SETTLED_SHARE = 0.8
SMOOTHED_LOOKS = 7
SETTLED_POINTS = 5


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
    """From `since` until the throughput stayed within 20 % of where it settled in the end.

    Medians of seven looks in a row, so that a few slow seconds do not count. Infinite when nothing
    was acknowledged or nothing ran.
    """
    points = [p for p in timeline if p.steps_per_second is not None]
    rates = [p.steps_per_second or 0.0 for p in points]
    if len(points) < SETTLED_POINTS or timeline[-1].threads is None:
        return math.inf
    settled = statistics.median(rates[-SETTLED_POINTS:])
    reached = math.inf
    for index in range(len(points) - 1, -1, -1):
        smoothed = statistics.median(rates[index : index + SMOOTHED_LOOKS])
        if smoothed < SETTLED_SHARE * settled:
            break
        reached = points[index].seconds
    return max(0.0, reached - since_seconds)


def seconds_to_acknowledge(timeline: Sequence[TimelinePoint], since_seconds: float) -> float:
    """From `since` until the pod itself reported the first change of its thread count."""
    first = next((p.threads for p in timeline if p.threads is not None), None)
    changed = (p.seconds for p in timeline if p.threads is not None and p.threads != first)
    return max(0.0, next(changed, math.inf) - since_seconds)


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
