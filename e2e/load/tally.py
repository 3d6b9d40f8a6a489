"""Reads what a load pod wrote, and counts. Pure.

Lost: no 2xx answer within the deadline. Refused: an early 429 or 503, counted apart. Wrong: a 2xx
answer with another id, shape or other numbers than its width gives for its input. Doubled: a second
answer to an id, or an answer that nobody asked for.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Ended", "Tally", "percentile", "read", "tally"]

RIGHT, LOST, WRONG, REFUSED = "right", "lost", "wrong", "refused"


@dataclass(frozen=True, slots=True)
class Ended:
    """One request. `due_seconds` from the start of the load; latency counts from it."""

    number: int
    due_seconds: float
    milliseconds: float
    outcome: str
    model: str = ""
    pod: str = ""
    detail: str = ""
    resent: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """All that a load pod wrote. `totals` is None where it did not come to its end."""

    start_unix_seconds: float | None
    ended: tuple[Ended, ...]
    totals: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of requests; latencies in milliseconds, of right answers."""

    planned: int
    right: int
    lost: int
    doubled: int
    wrong: int
    refused: int
    resent: int
    p50: float
    p99: float
    longest: float
    details: tuple[str, ...]
    """The first few of what was not right."""

    @property
    def flawless(self) -> bool:
        return self.right == self.planned and not (self.lost or self.doubled or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.planned} planned, {self.right} right, {self.lost} lost, {self.doubled} doubled,"
            f" {self.wrong} wrong, {self.refused} refused, {self.resent} sent again; p50"
            f" {self.p50:.1f} ms, p99 {self.p99:.1f} ms, longest {self.longest:.0f} ms"
            + "".join(f"\n  {detail}" for detail in self.details)
        )


def read(lines: Iterable[str]) -> Run:
    """Lines that are not the driver's are passed over."""
    start: float | None = None
    totals: dict[str, Any] | None = None
    ended: list[Ended] = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, list):
            ended.append(Ended(*value))
        elif isinstance(value, dict) and "start" in value:
            start = float(value["start"])
        elif isinstance(value, dict) and "done" in value:
            totals = value["done"]
    return Run(start, tuple(ended), totals)


def tally(run: Run, planned: int) -> Tally:
    """What has no end counts as lost; a run that was cut off says so."""
    ended = run.ended
    counts = Counter(one.outcome for one in ended)
    numbers = Counter(one.number for one in ended)
    missing = planned - len(numbers)
    twice = sum(count - 1 for count in numbers.values())
    unasked = int((run.totals or {}).get("unasked", 0))
    latencies = [one.milliseconds for one in ended if one.outcome == RIGHT]
    faults = [
        f"request {one.number} at {one.due_seconds:.1f} s, after {one.milliseconds:.0f} ms:"
        f" {one.outcome}: {one.detail}"
        for one in ended
        if one.outcome != RIGHT
    ]
    if run.totals is None:
        faults.insert(0, "the load pod did not come to its end")
    return Tally(
        planned=planned,
        right=counts[RIGHT],
        lost=counts[LOST] + missing,
        doubled=twice + unasked,
        wrong=counts[WRONG],
        refused=counts[REFUSED],
        resent=sum(one.resent > 0 for one in ended),
        p50=percentile(latencies, 50),
        p99=percentile(latencies, 99),
        longest=max(latencies, default=float("nan")),
        details=tuple(faults[:12]),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """NaN of nothing."""
    return float(np.percentile(values, percent)) if values else float("nan")
