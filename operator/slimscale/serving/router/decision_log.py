"""The last decisions of a learned policy with their ends, in memory, bounded; `GET /decisions` reads them.

Kept as segments of `routing.decision_records`: a full one is written once, the oldest go first. Nothing
of a request's text, no ids and no names of pods are in it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from random import Random

from slimscale.routing.decision_records import (
    FORMAT,
    VERSION,
    Action,
    DecisionRecord,
    encode_segment,
)
from slimscale.routing.learned.layout import ACTION_CAPS
from slimscale.routing.policy import Route, Width
from slimscale.routing.shielded import DecisionTrace

__all__ = ["DecisionLog", "Kept"]

_SEGMENT_DECISIONS = 128
"""Writing one takes a millisecond or so, in which no request is routed."""
_LEAST_SEGMENTS = 4
"""The bound holds at least so many: fewer would throw away a large part of the log at once."""


@dataclass(slots=True, eq=False)
class Kept:
    """A decision that has not ended yet."""

    trace: DecisionTrace
    done: Action
    acted: bool
    at: float
    compute_seconds: float = nan
    batch_rows: int = 0


@dataclass(frozen=True, slots=True)
class _Sealed:
    number: int
    decisions: int
    data: bytes


class DecisionLog:
    """`share` of the decisions, in `max_bytes`. Times are the loop's."""

    def __init__(
        self, *, share: float, max_bytes: int, facts: Mapping[str, str], now: float
    ) -> None:
        """facts: go into every segment, see `routing.decision_records.Segment`."""
        self.share = share
        self.max_bytes = max_bytes
        self.facts = dict(facts)
        self._began = now
        self._open: list[DecisionRecord] = []
        self._sealed: deque[_Sealed] = deque()
        self._number = 0
        self._record_bytes = 0

    def wants(self, rng: Random) -> bool:
        return rng.random() < self.share

    @staticmethod
    def keep(
        trace: DecisionTrace | None,
        route: Route,
        widths: tuple[Width, ...],
        *,
        acted: bool,
        now: float,
    ) -> Kept | None:
        """None: the policy was not asked, or the route's pod was not among those that it saw."""
        if trace is None:
            return None
        if acted:
            done = trace.action
        else:
            try:
                pod, width = trace.pods.index(route.pod), widths.index(route.width)
            except ValueError:
                return None
            done = (pod, width, _cap_index(route.batch_cap), int(route.hold_seconds > 0.0))
        return Kept(trace, done, acted, now)

    def end(self, kept: Kept, *, latency: float, answered: bool, met: bool, sends: int) -> None:
        """The request has ended, whichever way."""
        trace = kept.trace
        self._open.append(
            DecisionRecord(
                trace.observation,
                trace.action,
                kept.done,
                kept.acted,
                trace.log_probability,
                kept.at - self._began,
                latency,
                answered,
                met,
                kept.compute_seconds,
                kept.batch_rows,
                sends,
            )
        )
        if len(self._open) >= self._segment_decisions():
            self._seal()

    # ---- to read

    @property
    def decisions(self) -> int:
        return len(self._open) + sum(one.decisions for one in self._sealed)

    @property
    def stored_bytes(self) -> int:
        return sum(len(one.data) for one in self._sealed) + len(self._open) * self._record_bytes

    def index(self) -> dict[str, object]:
        """What there is: JSON of `GET /decisions`. The open segment has the next number."""
        segments = [
            {"segment": one.number, "decisions": one.decisions, "bytes": len(one.data)}
            for one in self._sealed
        ]
        if self._open:
            segments.append({"segment": self._number, "decisions": len(self._open), "bytes": 0})
        return {"format": FORMAT, "version": VERSION, **self.facts, "segments": segments}

    def segment(self, number: int) -> bytes | None:
        """One of the index; None: it is gone or never was."""
        if number == self._number and self._open:
            return encode_segment(self._open, self.facts)
        return next((one.data for one in self._sealed if one.number == number), None)

    def replace_facts(self, facts: Mapping[str, str]) -> None:
        """Another policy, or other widths: what was kept before belongs to the old ones."""
        if dict(facts) != self.facts:
            self._seal()
            self.facts = dict(facts)

    # ---- inside

    def _segment_decisions(self) -> int:
        if not self._record_bytes:
            return 1  # the first one shows how long they are
        fitting = self.max_bytes // (_LEAST_SEGMENTS * self._record_bytes)
        return max(1, min(_SEGMENT_DECISIONS, fitting))

    def _seal(self) -> None:
        if not self._open:
            return
        data = encode_segment(self._open, self.facts)
        self._record_bytes = max(1, len(data) // len(self._open))
        self._sealed.append(_Sealed(self._number, len(self._open), data))
        self._number += 1
        self._open = []
        stored = sum(len(one.data) for one in self._sealed)
        while stored > self.max_bytes and self._sealed:
            stored -= len(self._sealed.popleft().data)


def _cap_index(rows: int) -> int:
    """The largest cap that is not above `rows`."""
    return max(index for index, cap in enumerate(ACTION_CAPS) if index == 0 or cap <= rows)
