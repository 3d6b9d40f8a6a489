"""Policies without learning: Random, RoundRobin, SED, ColdAwareSED, and the extremes a mixture uses.

Width rule "widest within slack": the most accurate width whose expected finish keeps the SLO (and the
deadline) with headroom; else the fastest there is.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import attrgetter
from random import Random

from slimscale.routing.expected_delay import Candidate, DelayModel, batch_cap
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, Width

__all__ = ["CheapestWithinSlack", "ColdAwareSED", "Fastest", "Heuristic", "RandomPolicy", "Reason"]
__all__ += ["RoundRobin", "ShortestExpectedDelay"]

HEADROOM = 0.8
"""Share of the SLO that an expected finish may use: estimates are means, the SLO is a tail."""

WIDER_SHARE = 0.005
"""Of the requests that go to a narrower width than the best: they try a wider one."""
NEAR_SHARE = 0.05
NEAR_SECONDS = 0.0002
"""Delays no further apart count as equal."""

Delay = Callable[[Candidate], float]


class Reason(StrEnum):
    """Why a route was taken: a bounded label."""

    WITHIN_SLACK = "WidestWithinSlack"
    FASTEST = "FastestNoneWithinSlack"
    ALWAYS_FASTEST = "Fastest"
    CHEAPEST = "CheapestWithinSlack"
    IN_TURN = "InTurn"
    BY_CHANCE = "ByChance"
    PROBE = "ProbeOfEjectedPod"
    TRIES_WIDER = "TriesWider"
    LEARNED = "Learned"


(
    _WITHIN_SLACK, _FASTEST, _ALWAYS_FASTEST, _CHEAPEST, _IN_TURN, _BY_CHANCE, _PROBE, _WIDER,
    _LEARNED,
) = Reason  # fmt: skip
"""Looked up once: an enumeration's member costs a microsecond each time in Python 3.11."""

_cold_aware: Delay = attrgetter("expected_seconds")
_serial: Delay = attrgetter("serial_seconds")


def slack_seconds(request: RequestView) -> float:
    return HEADROOM * min(request.slo_seconds, request.deadline_seconds)


def least(candidates: Sequence[Candidate], score: Delay, rng: Random) -> Candidate:
    """The argmin of the score; near ones by chance.

    A difference that is smaller than what measurements scatter would send everything to one of several
    equal pods, and all routers to the same one.
    """
    return _near_least(candidates, list(map(score, candidates)), rng)


def _near_least(candidates: Sequence[Candidate], scores: Sequence[float], rng: Random) -> Candidate:
    if len(candidates) == 1:
        return candidates[0]
    limit = min(scores) * (1.0 + NEAR_SHARE) + NEAR_SECONDS
    near = [index for index, value in enumerate(scores) if value <= limit]
    return candidates[near[0] if len(near) == 1 else near[int(rng.random() * len(near))]]


def _fastest(candidates: Sequence[Candidate], scores: Sequence[float], rng: Random) -> Candidate:
    """The least delay; by chance among near ones of the same width.

    With long queues every width of a pod looks near: drawn among them, requests would take several
    times the work that they need just when there is too much, and the queues would never end.
    """
    least_score = min(scores)
    width = candidates[scores.index(least_score)].width
    limit = least_score * (1.0 + NEAR_SHARE) + NEAR_SECONDS
    near = [
        candidate
        for candidate, value in zip(candidates, scores, strict=True)
        if value <= limit and candidate.width is width
    ]
    return near[0] if len(near) == 1 else near[int(rng.random() * len(near))]


def widest_within_slack(
    candidates: Sequence[Candidate], request: RequestView, score: Delay, rng: Random
) -> tuple[Candidate, Reason]:
    slack = slack_seconds(request)
    scores = list(map(score, candidates))
    accuracy = -1.0
    widest: list[Candidate] = []
    delays: list[float] = []
    for candidate, delay in zip(candidates, scores, strict=True):
        if delay > slack:
            continue
        own = candidate.width.accuracy
        if own > accuracy:
            accuracy, widest, delays = own, [candidate], [delay]
        elif own == accuracy:
            widest.append(candidate)
            delays.append(delay)
    if widest:
        chosen, reason = _near_least(widest, delays, rng), _WITHIN_SLACK
    else:
        chosen, reason = _fastest(candidates, scores, rng), _FASTEST
    if rng.random() < WIDER_SHARE:
        wider = _next_wider(candidates, chosen, slack)
        if wider is not None:
            return wider, _WIDER
    return chosen, reason


def _next_wider(
    candidates: Sequence[Candidate], chosen: Candidate, slack: float
) -> Candidate | None:
    """The next more accurate width where it would start soon, in spite of what it is said to take.

    A width that was measured while its machine was busy looks slow, so that nothing is sent there and
    nothing measures it again. Now and then one request does.
    """
    accuracy = chosen.width.accuracy
    soon = [
        candidate
        for candidate in candidates
        if candidate.width.accuracy > accuracy
        and candidate.time.load_seconds == 0.0
        and candidate.drain_seconds <= slack / 2.0
    ]
    if not soon:
        return None
    return min(soon, key=lambda one: (one.width.accuracy, one.expected_seconds))


class Heuristic:
    """What the policies share: candidates, the probe of an ejected pod, the batch cap."""

    name = ""
    _delay: Delay = staticmethod(_cold_aware)

    def __init__(self, *, max_batch_rows: int, delays: DelayModel | None = None) -> None:
        self.delays = delays or DelayModel(max_batch_rows=max_batch_rows)

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        return self.choose_among(self.delays.candidates(request, pods, widths), request, rng)

    def choose_among(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> Route | None:
        """Over candidates that are already worked out. None where there are none."""
        if not candidates:
            return None
        probes = [candidate for candidate in candidates if candidate.pod.probing]
        if probes and not request.tried_pods:
            chosen, reason = least(probes, self._delay, rng), _PROBE
        else:
            if probes:
                well = [candidate for candidate in candidates if not candidate.pod.probing]
                candidates = well or candidates
            chosen, reason = self._pick(candidates, request, rng)
        return Route(
            pod=chosen.pod.name,
            width=chosen.width,
            batch_cap=batch_cap(chosen, request, max_batch_rows=self.delays.max_batch_rows),
            expected_seconds=self._delay(chosen),
            reason=reason,
        )

    def learn(self, outcome: Outcome) -> None:
        """Nothing is learnt."""

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        return widest_within_slack(candidates, request, self._delay, rng)


class ColdAwareSED(Heuristic):
    """Shortest expected delay where loading overlaps the drain; widest within slack."""

    name = "ColdAwareSED"


class ShortestExpectedDelay(Heuristic):
    """SED that adds a load to the drain: the comparator of the cold-aware one."""

    name = "SED"
    _delay = staticmethod(_serial)


class Fastest(Heuristic):
    """The shortest expected delay over all widths, whatever the accuracy."""

    name = "Fastest"

    def _pick(
        self,
        candidates: Sequence[Candidate],
        request: RequestView,  # noqa: ARG002
        rng: Random,
    ) -> tuple[Candidate, Reason]:
        scores = list(map(self._delay, candidates))
        return _fastest(candidates, scores, rng), _ALWAYS_FASTEST


class CheapestWithinSlack(Heuristic):
    """Least energy, else cost, of those that keep the SLO: busy time by watts or price an hour."""

    name = "CheapestWithinSlack"

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        slack = slack_seconds(request)
        within = [candidate for candidate in candidates if candidate.expected_seconds <= slack]
        if not within:
            scores = list(map(self._delay, candidates))
            return _fastest(candidates, scores, rng), _FASTEST
        return least(within, _expense, rng), _CHEAPEST


def _expense(candidate: Candidate) -> float:
    pod = candidate.pod
    watts = pod.telemetry.power_watts if pod.telemetry is not None else None
    price = watts if watts is not None and watts > 0.0 else pod.power_watts or pod.cost_per_hour
    return candidate.service_seconds * (price if price is not None and price > 0.0 else 1.0)


class RandomPolicy(Heuristic):
    """Any feasible pod, any width that is accurate enough: the paper's baseline."""

    name = "Random"

    def _pick(
        self,
        candidates: Sequence[Candidate],
        request: RequestView,  # noqa: ARG002
        rng: Random,
    ) -> tuple[Candidate, Reason]:
        return candidates[int(rng.random() * len(candidates))], _BY_CHANCE


class RoundRobin(Heuristic):
    """The pods in turn by name; on the pod the widest width within slack."""

    name = "RoundRobin"

    def __init__(self, *, max_batch_rows: int, delays: DelayModel | None = None) -> None:
        super().__init__(max_batch_rows=max_batch_rows, delays=delays)
        self._last = ""

    def _pick(
        self, candidates: Sequence[Candidate], request: RequestView, rng: Random
    ) -> tuple[Candidate, Reason]:
        names = sorted({candidate.pod.name for candidate in candidates})
        self._last = next((name for name in names if name > self._last), names[0])
        own = [candidate for candidate in candidates if candidate.pod.name == self._last]
        return widest_within_slack(own, request, self._delay, rng)[0], _IN_TURN
