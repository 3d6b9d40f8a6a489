"""Outliers among the pods: out after failures or answers far too late, back after a probe.

A pod is ejected when it fails several times in a row, fails in more than half of its recent answers,
or takes many times what was expected of it while its peers do not. Never more than half of the pods
are out: when most look ill, the cause is elsewhere. Refusals of a full queue are no failures.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["EjectionReason", "EjectionRules", "Health", "OutlierEjection"]

_MEMORY = 0.9
"""Of the moving averages: the last 10 answers count."""
_LONGEST_FACTOR = 16


class Health(StrEnum):
    WELL = "well"
    EJECTED = "ejected"
    PROBING = "probing"
    """The time is over; the next request shows whether the pod is well again."""


_WELL, _EJECTED, _PROBING = Health
"""Looked up once: an enumeration's member costs a microsecond each time in Python 3.11."""


class EjectionReason(StrEnum):
    FAILURES = "ConsecutiveFailures"
    ERROR_RATE = "ErrorRate"
    SLOW = "FarSlowerThanExpected"
    PROBE_FAILED = "ProbeFailed"


@dataclass(frozen=True, slots=True)
class EjectionRules:
    failures: int = 3
    seconds: float = 5.0
    """Of the first ejection; doubled each time up to 16 times, reset by a successful probe."""
    error_rate: float = 0.5
    slow_ratio: float = 5.0
    """Latency over expectation, and over the median pod's ratio."""
    slow_seconds: float = 0.05
    """Shorter excesses eject nobody: they are jitter."""
    answers: int = 10
    """Answers before a rate or a ratio counts."""


@dataclass(slots=True)
class _Record:
    failures_in_row: int = 0
    answers: int = 0
    error_rate: float = 0.0
    ratio: float = 1.0
    excess_seconds: float = 0.0
    ejected_at: float | None = None
    ejections: int = 0


class OutlierEjection:
    """State of all pods of a service. `now` is any monotonic time in seconds."""

    def __init__(self, rules: EjectionRules | None = None) -> None:
        self.rules = rules or EjectionRules()
        self._pods: dict[str, _Record] = {}

    def keep(self, present: Iterable[str]) -> None:
        """Forget pods that are gone; frees the longest ejected where more than half would be out."""
        names = set(present)
        self._pods = {name: self._pods.get(name, _Record()) for name in sorted(names)}
        out = sorted(
            (record.ejected_at, name)
            for name, record in self._pods.items()
            if record.ejected_at is not None
        )
        for _, name in out[: max(0, len(out) - self._most_out())]:
            self._pods[name] = _Record()

    def health(self, pod: str, *, now: float) -> Health:
        record = self._pods.get(pod)
        if record is None or record.ejected_at is None:
            return _WELL
        factor = min(_LONGEST_FACTOR, 2 ** max(0, record.ejections - 1))
        over = now - record.ejected_at >= self.rules.seconds * factor
        return _PROBING if over else _EJECTED

    def succeeded(
        self, pod: str, *, latency_seconds: float, expected_seconds: float, now: float
    ) -> EjectionReason | None:
        """An answer came. Returns why the pod is ejected by it, if it is."""
        record = self._pods.setdefault(pod, _Record())
        self._count(record, failed=False)
        record.failures_in_row = 0
        ratio = max(0.1, latency_seconds / max(expected_seconds, 1e-3))
        slow = ratio > self.rules.slow_ratio and self._excess(latency_seconds, expected_seconds)
        if record.ejected_at is not None:
            if self.health(pod, now=now) is not _PROBING:
                return None  # sent before the ejection: says nothing about a recovery
            if slow:
                return self._eject(record, EjectionReason.PROBE_FAILED, now)
            self._pods[pod] = _Record()
            return None
        record.ratio = _MEMORY * record.ratio + (1 - _MEMORY) * min(ratio, 100.0)
        record.excess_seconds = _MEMORY * record.excess_seconds + (1 - _MEMORY) * (
            latency_seconds - expected_seconds
        )
        if record.answers >= self.rules.answers and self._is_slow_outlier(record):
            return self._eject(record, EjectionReason.SLOW, now)
        return None

    def failed(self, pod: str, *, now: float) -> EjectionReason | None:
        """The connection broke, or the pod answered that it is at fault."""
        record = self._pods.setdefault(pod, _Record())
        self._count(record, failed=True)
        record.failures_in_row += 1
        if record.ejected_at is not None:
            if self.health(pod, now=now) is _PROBING:
                return self._eject(record, EjectionReason.PROBE_FAILED, now)
            return None
        if record.failures_in_row >= self.rules.failures:
            return self._eject(record, EjectionReason.FAILURES, now)
        if record.answers >= self.rules.answers and record.error_rate > self.rules.error_rate:
            return self._eject(record, EjectionReason.ERROR_RATE, now)
        return None

    def slowdowns(self) -> dict[str, float]:
        """By pod: latency over expectation of its recent answers; 1 where there were none."""
        return {name: record.ratio for name, record in self._pods.items()}

    def ejected(self) -> int:
        return sum(record.ejected_at is not None for record in self._pods.values())

    def _most_out(self) -> int:
        return len(self._pods) // 2

    def _count(self, record: _Record, *, failed: bool) -> None:
        record.answers += 1
        record.error_rate = _MEMORY * record.error_rate + (1 - _MEMORY) * failed

    def _excess(self, latency_seconds: float, expected_seconds: float) -> bool:
        return latency_seconds - expected_seconds > self.rules.slow_seconds

    def _is_slow_outlier(self, record: _Record) -> bool:
        if (
            record.ratio <= self.rules.slow_ratio
            or record.excess_seconds <= self.rules.slow_seconds
        ):
            return False
        peers = sorted(
            other.ratio
            for other in self._pods.values()
            if other is not record
            and other.ejected_at is None
            and other.answers >= self.rules.answers
            and not other.failures_in_row
        )
        if not peers:  # a pod that answers late is better than those that do not answer
            return False
        return record.ratio > self.rules.slow_ratio * max(1.0, peers[(len(peers) - 1) // 2])

    def _eject(self, record: _Record, reason: EjectionReason, now: float) -> EjectionReason | None:
        already_out = record.ejected_at is not None
        if not already_out and self.ejected() >= self._most_out():
            return None
        record.ejected_at = now
        record.ejections += 1
        record.answers = 0
        record.error_rate = 0.0
        record.ratio = 1.0
        record.excess_seconds = 0.0
        return reason
