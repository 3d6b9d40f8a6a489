"""How fast misses use up what an SLO allows: burn rates over pairs of windows.

    burn = (missed / ended) / (1 - percentile)

1 uses the allowance up exactly. An alarm needs a long window, so that a hiccup raises none, and a short
one, so that it ends soon after the misses do (multi-window, multi-burn-rate alerting as in Beyer et
al., The Site Reliability Workbook, 2018, chapter 5; windows here are a router's, minutes for hours).
"""

from collections import deque
from dataclasses import dataclass

__all__ = ["BURN_RULES", "BurnRule", "Ended", "EndedWindows", "burn_rate", "burning"]

_MOST_MISSED = 0.9
"""An SLO that allows many misses burns slowly even when all are missed: that much is always an alarm."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests that have ended, and those of them that missed their SLO."""

    ended: int = 0
    missed: int = 0

    @property
    def share(self) -> float:
        """Missed of all; 0 where nothing ended."""
        return self.missed / self.ended if self.ended else 0.0

    def __add__(self, other: "Ended") -> "Ended":
        return Ended(self.ended + other.ended, self.missed + other.missed)


@dataclass(frozen=True, slots=True)
class BurnRule:
    """An alarm while both windows burn at `rate` or more."""

    long_seconds: int
    short_seconds: int
    rate: float
    least_requests: int = 50
    """In the long window: of fewer no share says anything."""


BURN_RULES = (BurnRule(60, 5, 6.0), BurnRule(600, 60, 2.0))
"""At 95 %: 30 % missed over a minute, or 10 % over ten minutes."""


def burn_rate(counted: Ended, *, allowed: float) -> float:
    """`allowed`: share of misses that the SLO allows, above 0."""
    return counted.share / allowed


def burning(windows: "EndedWindows", rule: BurnRule, *, allowed: float, now: float) -> bool:
    """Whether both windows of the rule burn too fast.

    Of a window that is not full yet the rest counts as kept: a second of misses right after the start
    is no ten minutes of them.
    """
    limit = min(rule.rate * allowed, _MOST_MISSED)
    long = windows.total(rule.long_seconds, now=now)
    full = min(1.0, (now - windows.since) / rule.long_seconds)
    if long.ended < rule.least_requests or long.share * full < limit:
        return False
    short = windows.total(rule.short_seconds, now=now)
    return short.ended > 0 and short.share >= limit


class EndedWindows:
    """Sums over any window up to the longest rule's, from running totals that are told now and then."""

    def __init__(self, *, since: float = 0.0, kept_seconds: float = 600.0) -> None:
        self.since = since
        """When it was empty last."""
        self._kept_seconds = kept_seconds
        self._steps: deque[tuple[float, Ended]] = deque()

    def add(self, counted: Ended, *, now: float) -> None:
        """What ended since the last call."""
        if counted.ended:
            self._steps.append((now, counted))
        while self._steps and self._steps[0][0] <= now - self._kept_seconds:
            self._steps.popleft()

    def total(self, seconds: float, *, now: float) -> Ended:
        """What was added within the last `seconds`."""
        ended = missed = 0
        for at, counted in reversed(self._steps):
            if at <= now - seconds:
                break
            ended += counted.ended
            missed += counted.missed
        return Ended(ended, missed)

    def clear(self, *, now: float) -> None:
        self._steps.clear()
        self.since = now
