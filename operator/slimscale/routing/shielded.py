"""A learned policy behind its shield: what the router calls `PPO`.

The shield's arithmetic is the heuristics' own, never the network's: a policy that believes in a wrong
delay can neither pass the shield by it nor get a pod ejected for missing it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol, runtime_checkable

from slimscale.routing.expected_delay import Candidate
from slimscale.routing.heuristics import Heuristic, Reason
from slimscale.routing.learned.observation import Observation
from slimscale.routing.policy import Outcome, PodView, RequestView, Route, RoutingPolicy, Width
from slimscale.routing.shield import Objection, ShieldRules, bounded_hold, object_to, why_infeasible

__all__ = [
    "CandidateChooser",
    "DecisionTrace",
    "LearnedPolicy",
    "Pick",
    "ShieldedPolicy",
    "Slowdowns",
]


@dataclass(frozen=True, slots=True)
class DecisionTrace:
    """What a learned policy saw and how sure it was: copies, good after the next decision too."""

    observation: Observation
    pods: tuple[str, ...]
    """Names, in the order of the observation's first axis."""
    action: tuple[int, int, int, int]
    """Its own: indices of pod, width, cap and hold."""
    log_probability: float
    """Of that action, natural logarithm."""


Slowdowns = Callable[[], Mapping[str, float]]
"""By pod's name; 1 is as expected."""


class LearnedPolicy(RoutingPolicy, Protocol):
    """A routing policy made of a network."""

    def arrived(self, rows: int, *, now: float) -> None:
        """A request has come; before its `choose`. `now`: seconds of any one monotonic clock."""
        ...

    def follow(self, slowdowns: Slowdowns) -> None:
        """Where to read, at any time, how much slower than expected each pod has answered of late."""
        ...

    def trace(self) -> DecisionTrace | None:
        """Of the last `choose`. None: it saw nothing, or gave no route."""
        ...


class Pick(NamedTuple):
    candidate: Candidate
    batch_cap: int
    hold_seconds: float


@runtime_checkable
class CandidateChooser(Protocol):
    """A learned policy that takes what the shield has worked out, instead of doing so again."""

    def pick(
        self,
        candidates: Sequence[Candidate],
        delays: Sequence[float],
        request: RequestView,
        pods: Sequence[PodView],
        rng: Random,
    ) -> Pick | None:
        """`candidates`: all feasible ones of `pods`, at least one; `delays`: what they expect."""
        ...


_LEARNED = Reason.LEARNED
_NO_CHOICE = Objection.NO_CHOICE


class ShieldedPolicy:
    """`learned` (None: there is none) proposes, the shield judges, `base` decides where the proposal does not stand.

    Probes of ejected pods are the base's: without them no pod would ever come back. `overruled`
    counts by objection; `last_objection` is that of the last choice, None where the proposal stood.
    """

    def __init__(
        self, learned: LearnedPolicy | None, *, base: Heuristic, rules: ShieldRules | None = None
    ) -> None:
        self.name = "PPO"
        given: object = learned
        self._chooser = given if isinstance(given, CandidateChooser) else None
        self.learned = learned
        self.learns = learned is not None and not getattr(learned, "is_frozen", False)
        self.base = base
        self.rules = rules or ShieldRules()
        self.overruled: Counter[Objection] = Counter()
        self.stood = 0
        self.last_objection: Objection | None = None
        self.asked = False
        """Whether `learned` was asked for the last choice: not where a probe was due."""

    def choose(
        self, request: RequestView, pods: Sequence[PodView], widths: Sequence[Width], rng: Random
    ) -> Route | None:
        base = self.base
        candidates = base.delays.candidates(request, pods, widths)
        self.last_objection = None
        self.asked = False
        learned = self.learned
        if learned is None or not candidates or [pod for pod in pods if pod.probing]:
            return base.choose_among(candidates, request, rng)
        self.asked = True
        delays = [candidate.expected_seconds for candidate in candidates]
        objection: Objection | None
        try:
            pick = self._proposed(candidates, delays, request, pods, widths, rng=rng)
        except Exception:  # no fault of a network may cost a request
            pick = _NO_CHOICE
        if isinstance(pick, Pick):
            chosen = pick.candidate
            objection = object_to(chosen.expected_seconds, delays, request, self.rules)
            if objection is None:
                self.stood += 1
                return self._as_proposed(chosen, pick, request)
        else:
            objection = pick
        self.last_objection = objection
        self.overruled[objection] += 1
        return base.choose_among(candidates, request, rng)

    def learn(self, outcome: Outcome) -> None:
        if self.learned is not None:
            self.learned.learn(outcome)

    def trace(self) -> DecisionTrace | None:
        """Of the last choice; None: the learned policy was not asked, or gave no route."""
        return self.learned.trace() if self.asked and self.learned is not None else None

    def _proposed(
        self,
        candidates: Sequence[Candidate],
        delays: Sequence[float],
        request: RequestView,
        pods: Sequence[PodView],
        widths: Sequence[Width],
        *,
        rng: Random,
    ) -> Pick | Objection:
        if self._chooser is not None:
            return self._chooser.pick(candidates, delays, request, pods, rng) or _NO_CHOICE
        learned = self.learned
        proposal = None if learned is None else learned.choose(request, pods, widths, rng)
        if proposal is None:
            return _NO_CHOICE
        chosen = _among(candidates, proposal)
        if chosen is None:
            pod = next((one for one in pods if one.name == proposal.pod), None)
            return why_infeasible(pod, proposal.width.accuracy, request)
        return Pick(chosen, proposal.batch_cap, proposal.hold_seconds)

    def _as_proposed(self, chosen: Candidate, proposal: Pick, request: RequestView) -> Route:
        cap = min(proposal.batch_cap, self.base.delays.max_batch_rows)
        hold = proposal.hold_seconds
        if hold != 0.0:
            hold = bounded_hold(hold, chosen, request)
        return Route(
            pod=chosen.pod.name,
            width=chosen.width,
            batch_cap=max(cap, request.rows, 1),
            expected_seconds=chosen.expected_seconds + hold,
            reason=_LEARNED,
            hold_seconds=hold,
        )


def _among(candidates: Sequence[Candidate], proposal: Route) -> Candidate | None:
    pod, model = proposal.pod, proposal.width.model
    for candidate in candidates:
        if candidate.pod.name == pod and candidate.width.model == model:
            return candidate
    return None
