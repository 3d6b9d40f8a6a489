"""Arrivals, rejections, answers, latency and SLO attainment of the last hour, by the second."""

import math
from collections import Counter, deque
from dataclasses import dataclass, field

__all__ = ["Demand", "Totals"]

_KEPT_SECONDS = 3600
_LEAST_SECONDS = 1e-4
_STEPS = 8.0
"""Of the latency histogram, for each doubling: a percentile is right to 9 %."""
_MOST_STEP = 192
"""0.1 ms * 2^(192 / 8): over 1600 s, which no request takes."""


@dataclass(slots=True)
class Totals:
    requests: int = 0
    rows: int = 0
    rejected_rows: int = 0
    within_slo: int = 0
    ended: int = 0
    answers_by_model: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)
    """Answers by step of the histogram."""

    def latency_seconds(self, percentile: float) -> float | None:
        """Upper bound of the step that holds this percentile of the answers; None: none came."""
        left = math.ceil(self.latencies.total() * percentile / 100.0)
        for step in sorted(self.latencies):
            left -= self.latencies[step]
            if left <= 0:
                return float(_LEAST_SECONDS * 2.0 ** (step / _STEPS))
        return None


class Demand:
    """Counts by the second, for any window up to an hour. `now`: seconds of a monotonic clock."""

    def __init__(self, *, now: float) -> None:
        self._started = now
        self._seconds: deque[tuple[int, Totals]] = deque()
        self.last_arrival: float | None = None

    def arrived(self, rows: int, *, now: float) -> None:
        second = self._second(now)
        second.requests += 1
        second.rows += rows
        self.last_arrival = now

    def rejected(self, rows: int, *, now: float) -> None:
        """Answered 429 or 503. It ended outside its SLO too."""
        second = self._second(now)
        second.rejected_rows += rows
        second.ended += 1

    def failed(self, *, now: float) -> None:
        self._second(now).ended += 1

    def answered(self, model: str, *, within_slo: bool, seconds: float, now: float) -> None:
        """`seconds`: from the request's arrival to its answer. Kept as a count by step of a histogram."""
        second = self._second(now)
        second.ended += 1
        second.within_slo += within_slo
        second.answers_by_model[model] += 1
        second.latencies[_step(seconds)] += 1

    def age_seconds(self, now: float) -> float:
        return max(0.0, now - self._started)

    def observed_seconds(self, window_seconds: float, *, now: float) -> float:
        """How much of the window has passed since the start; at least one second, to divide by."""
        return max(1.0, min(window_seconds, self.age_seconds(now)))

    def totals(self, window_seconds: float, *, now: float) -> Totals:
        """Sums of the seconds that began within the window, the present one included."""
        oldest = now - window_seconds
        total = Totals()
        for begun, second in reversed(self._seconds):
            if begun <= oldest:
                break
            total.requests += second.requests
            total.rows += second.rows
            total.rejected_rows += second.rejected_rows
            total.within_slo += second.within_slo
            total.ended += second.ended
            total.answers_by_model.update(second.answers_by_model)
            total.latencies.update(second.latencies)
        return total

    def _second(self, now: float) -> Totals:
        begun = int(now)
        if not self._seconds or self._seconds[-1][0] != begun:
            self._seconds.append((begun, Totals()))
            while self._seconds[0][0] < begun - _KEPT_SECONDS:
                self._seconds.popleft()
        return self._seconds[-1][1]


def _step(seconds: float) -> int:
    """The least step whose bound is not below `seconds`."""
    if not seconds > _LEAST_SECONDS:
        return 0
    return math.ceil(min(_MOST_STEP, _STEPS * math.log2(seconds / _LEAST_SECONDS)))
