"""The pods as this router knows them: addresses, telemetry, what is in flight, health.

In-flight rows are counted when a request leaves and given back when its answer, or the knowledge that
none will come, is there; those that a pod's telemetry has counted already are not counted twice.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from slimscale.api.serving_config import PoolTraits
from slimscale.domain.serving import PodTelemetry
from slimscale.routing.ejection import EjectionReason, EjectionRules, Health, OutlierEjection
from slimscale.routing.policy import PodView
from slimscale.serving.router.endpoints import Endpoint
from slimscale.serving.telemetry import decode_telemetry

__all__ = ["Pod", "Pods", "Sent"]

_log = logging.getLogger(__name__)

_LINK_GROWTH = 1.02
"""A measurement, at which the least link time can rise."""
_LOOK_SECONDS = 0.005
_LEAST_REFUSAL_SECONDS = 0.02
_MOST_REFUSAL_SECONDS = 0.5
_TURNED_AWAY_SHARE, _TURNED_AWAY_SECONDS = 0.125, 0.1
"""For this share of the time that was too short, and so long at most, a pod's word holds: its queue is
as long as that time, and keeps it busy meanwhile."""
_FIRST_UNREACHABLE_SECONDS = 0.1
_MOST_UNREACHABLE_SECONDS = 2.0
_WELL, _PROBING = Health.WELL, Health.PROBING
"""Looked up once: an enumeration's member costs a microsecond each time in Python 3.11."""
_NO_TRAITS = PoolTraits(name="unknown")


class Sent:
    """One request on its way to a pod and back."""

    __slots__ = ("counted", "expected_at", "model", "open", "pod", "rows", "sent_at")

    def __init__(
        self, pod: "Pod", model: str, rows: int, *, sent_at: float, expected_at: float
    ) -> None:
        self.pod = pod
        self.model = model
        self.rows = rows
        self.sent_at = sent_at
        self.expected_at = expected_at
        self.counted = False
        """By telemetry."""
        self.open = True


class Pod:
    """One pod. Times are the loop's."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.host = endpoint.host
        self.port = endpoint.port
        self.pool = ""
        self.traits = _NO_TRAITS
        self.telemetry: PodTelemetry | None = None
        self.telemetry_at = 0.0
        self.link_seconds = 0.0
        self.refusing_until = 0.0
        self._turned_away: dict[str, tuple[int, float, float]] = {}
        self.unreachable_until = 0.0
        self.connect_failures = 0
        self.requests = 0
        self.probes_in_flight = 0
        self.open_requests: dict[Sent, None] = {}
        self._raw = b""
        self._unread = False
        self.heard_at = -math.inf
        self._looked_at = -1.0
        self._uncounted: deque[Sent] = deque()
        self._uncounted_rows: dict[str, int] = {}

    def sent(self, model: str, rows: int, *, now: float, expected_seconds: float) -> Sent:
        """A request leaves now. Give it back with `given_back`, once."""
        sent = Sent(self, model, rows, sent_at=now, expected_at=now + expected_seconds)
        self.requests += 1
        self.open_requests[sent] = None
        self._uncounted.append(sent)
        self._uncounted_rows[model] = self._uncounted_rows.get(model, 0) + rows
        return sent

    def given_back(self, sent: Sent) -> None:
        if sent.open:
            sent.open = False
            del self.open_requests[sent]
            self._count(sent)
            while self._uncounted and not self._uncounted[0].open:
                self._uncounted.popleft()

    @property
    def in_flight_rows(self) -> int:
        return sum(sent.rows for sent in self.open_requests)

    def told(self, raw: bytes, *, now: float) -> None:
        """Telemetry has come; it is read when somebody looks, so that a burst costs one reading."""
        self.heard_at = now
        if raw != self._raw:
            self._raw = raw
            self._unread = True
        elif not self._unread:  # the same as what was read before: only newer
            self._seen(now)

    def look(self, now: float) -> None:
        """Read telemetry that nobody has looked at yet, every few milliseconds at most.

        What this router sends in between is counted without it. What can't be read is skipped, once said.
        """
        if not self._unread or now - self._looked_at < _LOOK_SECONDS:
            return
        self._unread = False
        self._looked_at = now
        try:
            self.telemetry = decode_telemetry(self._raw)
        except ValueError as error:
            _log.warning("pod %s: telemetry %s", self.name, error)
            return
        self._seen(self.heard_at)

    def _seen(self, at: float) -> None:
        """Telemetry of this time is in use: it has counted what had arrived by then."""
        self.telemetry_at = at
        until = at - self.link_seconds
        while self._uncounted and self._uncounted[0].sent_at < until:
            self._count(self._uncounted.popleft())

    def measured_link(self, seconds: float) -> None:
        """Time of an exchange that neither queue nor model accounts for.

        The least of late, which the way takes; what is more is a busy machine at either end, and would
        keep a pod out of use that was measured at a bad time.
        """
        if seconds >= 0.0:
            longer = self.link_seconds * _LINK_GROWTH if self.link_seconds else seconds
            self.link_seconds = min(seconds, longer)

    def refused(self, *, now: float) -> None:
        """Its queue is full: nothing more until about half of its backlog is worked off."""
        self.look(now)
        backlog = self.telemetry.backlog_seconds if self.telemetry is not None else 0.0
        half = backlog / 2.0 if 0.0 <= backlog < 1e6 else 0.0
        pause = max(_LEAST_REFUSAL_SECONDS, min(_MOST_REFUSAL_SECONDS, half))
        self.refusing_until = now + pause

    def turned_away(self, model: str, *, rows: int, left_seconds: float, now: float) -> float:
        """It has refused a request for want of time, before any work. Until when its word holds."""
        until = now + min(_TURNED_AWAY_SECONDS, _TURNED_AWAY_SHARE * left_seconds)
        self._turned_away[model] = (rows, left_seconds, until)
        return until

    def would_turn_away(self, model: str, *, rows: int, left_seconds: float, now: float) -> bool:
        """Whether it has just refused a request that was no larger and had as much time left."""
        rows_then, left_then, until = self._turned_away.get(model, (0, 0.0, 0.0))
        return now < until and rows >= rows_then and left_seconds <= left_then

    def unreachable(self, *, now: float) -> None:
        """No connection: left alone for a while that doubles, so that it isn't hammered."""
        pause = _FIRST_UNREACHABLE_SECONDS * 2 ** min(self.connect_failures, 10)
        self.unreachable_until = now + min(_MOST_UNREACHABLE_SECONDS, pause)
        self.connect_failures += 1

    def reached(self) -> None:
        self.connect_failures = 0
        self.unreachable_until = 0.0

    def view(self, health: Health, *, now: float) -> PodView:
        self.look(now)
        overdue = 0.0
        if self.open_requests:
            oldest = next(iter(self.open_requests))
            overdue = max(0.0, now - oldest.expected_at)
        unreachable = self.unreachable_until > now
        probing = health is _PROBING and not unreachable and not self.probes_in_flight
        return PodView(
            self.name,
            self.pool,
            self.telemetry,
            now - self.telemetry_at,
            self._uncounted_rows,
            self.link_seconds,
            self.traits.cost_per_hour,
            self.traits.power_watts,
            probing,
            health is not _WELL or unreachable,
            self.refusing_until > now,
            overdue,
        )

    def _count(self, sent: Sent) -> None:
        """Telemetry has it, or it is over: it no longer comes on top."""
        if sent.counted:
            return
        sent.counted = True
        left = self._uncounted_rows[sent.model] - sent.rows
        if left:
            self._uncounted_rows[sent.model] = left
        else:
            del self._uncounted_rows[sent.model]


class Pods:
    """All pods. `changed` is called after each change of the list, with the pods that went."""

    def __init__(self, rules: EjectionRules, *, changed: Callable[[list[Pod]], None]) -> None:
        self.ejection = OutlierEjection(rules)
        self.ejected_now: Callable[[Pod, EjectionReason], None] = lambda _pod, _reason: None
        self._by_name: dict[str, Pod] = {}
        self._traits: Mapping[str, PoolTraits] = {}
        self._changed = changed

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Pod | None:
        return self._by_name.get(name)

    def set_traits(self, traits: Iterable[PoolTraits]) -> None:
        self._traits = {one.name: one for one in traits}
        for pod in self._by_name.values():
            pod.traits = self._traits.get(pod.pool, _NO_TRAITS)

    def set_rules(self, rules: EjectionRules) -> None:
        self.ejection.rules = rules

    def update(self, endpoints: Mapping[str, Endpoint]) -> None:
        """The list has changed. A pod of the same name at another address is another pod."""
        gone = []
        for name, pod in list(self._by_name.items()):
            now_there = endpoints.get(name)
            if now_there is None or (now_there.host, now_there.port) != (pod.host, pod.port):
                gone.append(self._by_name.pop(name))
        for name, endpoint in endpoints.items():
            pod = self._by_name.get(name) or Pod(endpoint)
            if endpoint.ready and not pod.endpoint.ready:
                pod.reached()
                pod.heard_at = -math.inf  # what it said before it was ready is old: ask at once
            pod.endpoint = endpoint
            self._by_name[name] = pod
        self.ejection.keep(name for name, pod in self._by_name.items() if pod.endpoint.ready)
        self._changed(gone)

    def belongs_to(self, pod: Pod, pool: bytes) -> None:
        """The pod has named its pool."""
        name = pool.decode("latin-1")
        if name != pod.pool:
            pod.pool = name[:63]
            pod.traits = self._traits.get(pod.pool, _NO_TRAITS)

    def views(self, *, now: float) -> list[PodView]:
        """Of the pods that may get requests."""
        health = self.ejection.health
        return [
            pod.view(health(name, now=now), now=now)
            for name, pod in self._by_name.items()
            if pod.endpoint.ready
        ]

    def succeeded(self, sent: Sent, *, now: float) -> None:
        pod = sent.pod
        reason = self.ejection.succeeded(
            pod.name,
            latency_seconds=now - sent.sent_at,
            expected_seconds=sent.expected_at - sent.sent_at,
            now=now,
        )
        self._say(pod, reason)

    def failed(self, pod: Pod, *, now: float) -> None:
        if self._by_name.get(pod.name) is pod:
            self._say(pod, self.ejection.failed(pod.name, now=now))

    def _say(self, pod: Pod, reason: EjectionReason | None) -> None:
        if reason is not None:
            _log.warning("pod %s is left alone for a while: %s", pod.name, reason)
            self.ejected_now(pod, reason)
