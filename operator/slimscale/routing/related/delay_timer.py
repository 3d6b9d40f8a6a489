"""Delay timers: how long a request waits for a warm pod before it goes to a cold or a farther one.

Delay scheduling with an auto-tuner (science brief 3, after Dally, arXiv 2401.16492, and Zaharia 2010).
Going elsewhere costs Δ (the load, the link). Waiting pays while the chance that a warm slot frees in the
next moment is worth more than the moment: hazard h(t) >= 1/Δ. So the timer is where the measured hazard of
slot releases falls below 1/Δ; without measurements it is Δ, which costs at most twice what one would pay
who knew the wait (ski rental; Karlin et al. 1988).
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from random import Random

from slimscale.routing.expected_delay import Candidate, DelayModel
from slimscale.routing.heuristics import Heuristic, Reason, least, widest_within_slack
from slimscale.routing.policy import Outcome, RequestView

__all__ = ["DelayTimers", "SlotReleases", "rental_cost", "timer_seconds"]

_LEAST_RELEASES = 24
"""Fewer observed waits say nothing about a hazard."""


def timer_seconds(waits: Sequence[float], ended: Sequence[bool], move_seconds: float) -> float:
    """The timer of least mean cost for waits that were seen; `ended` False: given up, still waiting.

    Of a timer t the cost is the integral of S up to t plus S(t) Δ, S the Kaplan-Meier estimate of the
    chance to be still waiting. Its slope is S (1 - h Δ): the minimum lies where the hazard h falls below
    1/Δ, and where hazards fall and rise again the cost decides. `inf`: wait however long it takes.
    """
    releases = sum(ended)
    if releases < _LEAST_RELEASES:
        return move_seconds
    waiting, at_risk = 1.0, len(waits)
    area, before = 0.0, 0.0
    least_cost, timer = move_seconds, 0.0
    for wait, released in sorted(
        zip(waits, ended, strict=True), key=lambda one: (one[0], not one[1])
    ):
        area += waiting * (wait - before)
        before = wait
        if released:
            waiting *= 1.0 - 1.0 / at_risk
        at_risk -= 1
        cost = area + waiting * move_seconds
        if released and cost < least_cost:
            least_cost, timer = cost, inf if waiting <= 1e-9 else wait
    return timer


def rental_cost(wait: float, timer: float, move_seconds: float) -> float:
    """What one request pays: its wait, or the timer and then the move."""
    return wait if wait <= timer else timer + move_seconds


class SlotReleases:
    """The last waits for a warm slot of one (tier, width); the timer is worked out now and then."""

    def __init__(self, *, keep: int = 256) -> None:
        self._waits: deque[tuple[float, bool]] = deque(maxlen=keep)
        self._seen = 0
        self._timer: float | None = None

    def add(self, wait: float, *, released: bool) -> None:
        self._waits.append((max(0.0, wait), released))
        self._seen += 1
        if self._seen % 16 == 0:
            self._timer = None

    def timer(self, move_seconds: float) -> float:
        if self._timer is None:
            waits, ended = [w for w, _ in self._waits], [e for _, e in self._waits]
            self._timer = timer_seconds(waits, ended, move_seconds)
        return self._timer


class DelayTimers(Heuristic):
    """Warm in the best pool, then warm anywhere, then cold: each tier only while its timer allows.

    The width is the widest within slack. A tier's wait is what its best pod is expected to need before
    it begins; when that passes the tier's timer, the request goes to the next tier that has a pod.
    """

    name = "DelayTimers"

    def __init__(
        self, *, max_batch_rows: int, delays: DelayModel | None = None, tuned: bool = True
    ) -> None:
        super().__init__(max_batch_rows=max_batch_rows, delays=delays)
        self.tuned = tuned
        self._releases: dict[tuple[int, str], SlotReleases] = {}
        self._pending: dict[str, tuple[int, float]] = {}

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        chosen, reason = widest_within_slack(candidates, request, self._delay, rng)
        same = [one for one in candidates if one.width.model == chosen.width.model]
        warm = [one for one in same if one.time.load_seconds == 0.0]
        if not warm:
            return chosen, reason
        quickest = min(warm, key=lambda one: one.service_seconds)
        near = [one for one in warm if one.pod.pool == quickest.pod.pool]
        far = [one for one in warm if one.pod.pool != quickest.pod.pool]
        tiers = [near, far, [one for one in same if one.time.load_seconds > 0.0]]
        held = near
        for tier, beyond in enumerate(tiers[1:]):
            if not beyond:
                continue
            best = least(held, self._delay, rng)
            move = max(0.0, min(one.expected_seconds - one.drain_seconds for one in beyond))
            wait = best.drain_seconds
            if wait <= self._timer(tier, best.width.model, move):
                self._pending[best.pod.name] = (tier, best.service_seconds)
                return best, reason
            self._note(tier, best.width.model, wait, released=False)
            held = beyond
        return least(held, self._delay, rng), reason

    def learn(self, outcome: Outcome) -> None:
        """A request that waited for a warm pod tells how long that took."""
        found = self._pending.get(outcome.route.pod)
        if found is not None and outcome.succeeded:
            tier, service = found
            wait = outcome.latency_seconds - service
            self._note(tier, outcome.route.width.model, wait, released=True)

    def _timer(self, tier: int, model: str, move_seconds: float) -> float:
        releases = self._releases.get((tier, model))
        if releases is None or not self.tuned:
            return move_seconds
        return releases.timer(move_seconds)

    def _note(self, tier: int, model: str, wait: float, *, released: bool) -> None:
        self._releases.setdefault((tier, model), SlotReleases()).add(wait, released=released)
