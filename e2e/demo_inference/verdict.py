"""What was seen, by slices of time, and whether it is what was promised. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.load.tally import RIGHT, Ended, Tally, percentile

__all__ = ["Look", "Slice", "Story", "attainment", "busy_moment", "failures", "slices"]


@dataclass(frozen=True, slots=True)
class Look:
    """One instant. Pods by pool: wanted (the Deployment's replicas) and ready."""

    seconds: float
    wanted: dict[str, int]
    ready: dict[str, int]


@dataclass(frozen=True, slots=True)
class Slice:
    """Requests that were due in [start, end), in seconds from the start of the load.

    Latencies are in milliseconds, of right answers, NaN where there is none. `share` of each width
    is of those too. `ready` pods by pool at the end of the slice.
    """

    start: float
    end: float
    requests: int
    p50: float
    p99: float
    share: dict[str, float]
    ready: dict[str, int]
    not_right: int

    @property
    def per_second(self) -> float:
        return self.requests / (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that is judged and shown."""

    tally: Tally
    slices: tuple[Slice, ...]
    looks: tuple[Look, ...]
    killed: str
    """Name of the pod; empty where none was there to kill."""
    killed_at_seconds: float
    slo_milliseconds: float
    attainment: float
    """Share of all requests that were answered rightly within the SLO."""
    decisions: tuple[str, ...] = ()
    """What the operator says about its last steps."""


def slices(
    ended: Sequence[Ended], looks: Sequence[Look], *, seconds: float, slice_seconds: float
) -> tuple[Slice, ...]:
    """`seconds` of load cut into slices; the last one may be shorter."""
    found = []
    for number in range(math.ceil(seconds / slice_seconds)):
        start, end = number * slice_seconds, min(seconds, (number + 1) * slice_seconds)
        due = [one for one in ended if start <= one.due_seconds < end]
        right = [one for one in due if one.outcome == RIGHT]
        latencies = [one.milliseconds for one in right]
        widths = Counter(one.model for one in right)
        seen = [look for look in looks if look.seconds <= end]
        found.append(
            Slice(
                start=start,
                end=end,
                requests=len(due),
                p50=percentile(latencies, 50),
                p99=percentile(latencies, 99),
                share={model: count / len(right) for model, count in sorted(widths.items())},
                ready=dict(seen[-1].ready) if seen else {},
                not_right=len(due) - len(right),
            )
        )
    return tuple(found)


def attainment(ended: Sequence[Ended], slo_milliseconds: float) -> float:
    """Of all requests; 0 of none."""
    met = sum(one.outcome == RIGHT and one.milliseconds <= slo_milliseconds for one in ended)
    return met / len(ended) if ended else 0.0


def busy_moment(arrivals: Sequence[float], after_seconds: float) -> float:
    """The first second from then on with as many arrivals as the mean second; `after` where none is.

    A pod that is killed while nobody asks would show nothing.
    """
    mean = len(arrivals) / max(arrivals[-1], 1.0)
    counts = Counter(int(at) for at in arrivals)
    busy = (second for second in sorted(counts) if second >= after_seconds)
    return float(next((second for second in busy if counts[second] >= mean), after_seconds))


def failures(story: Story) -> list[str]:
    """What does not hold, in words; empty when the whole story does."""
    counted = story.tally
    problems = [
        f"{count} of {counted.planned} requests {word}, 0 promised"
        for count, word in (
            (counted.lost, "lost"),
            (counted.doubled, "doubled"),
            (counted.wrong, "answered wrongly"),
            (counted.refused, "refused"),
        )
        if count
    ]
    if not counted.planned or not counted.right:
        problems.append("no request was answered")
    if not story.killed:
        problems.append("no pod was there to be killed")
    totals = {sum(look.wanted.values()) for look in story.looks}
    if len(totals) < 2:
        problems.append("the number of replicas never changed")
    return problems
