"""Where a candidate is tried: the other policy's opinion of a decision, and the log of decisions."""

from collections.abc import Sequence
from random import Random

from slimscale.routing.policy import PodView, RequestView, Route
from slimscale.routing.rollout import Stage
from slimscale.routing.shielded import ShieldedPolicy
from slimscale.serving.router.decision_log import DecisionLog, Kept
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.shadow import compare
from slimscale.serving.router.trip import Trip

__all__ = ["SecondOpinion"]

_SHADOW = Stage.SHADOW
_COMPARED_ONE_IN = 64
"""Of the decisions, where the candidate acts: each comparison costs a second decision."""
_SHADOW_A_SECOND = 200.0
"""In shadow every decision is compared, up to this rate: above it a sample tells as much."""


class SecondOpinion:
    """`note` each decision of a service that has a candidate."""

    def __init__(self, metrics: RouterMetrics, rng: Random) -> None:
        self._metrics = metrics
        self._rng = rng
        self._since_compared = _COMPARED_ONE_IN - 1
        self._left = _SHADOW_A_SECOND
        self._filled_at = 0.0

    def note(
        self,
        trip: Trip,
        route: Route,
        request: RequestView,
        views: Sequence[PodView],
        *,
        now: float,
    ) -> None:
        live, rollout = trip.live, trip.live.rollout
        if rollout is None:
            return
        log = live.log
        # before the other one is asked: its choice would take the place of this one's trace
        wanted = log is not None and log.wants(self._rng)
        if log is not None and wanted and trip.policy is live.candidate:
            trip.kept = _keep(log, trip, route, now)
        if rollout.stage is _SHADOW:
            if not self._may_shadow(now):
                return
            rollout.shadowed += 1
            self._compare(trip, route, request, views)
            if log is not None and wanted:
                trip.kept = _keep(log, trip, route, now)
        elif self._is_due():
            self._compare(trip, route, request, views)

    def _may_shadow(self, now: float) -> bool:
        earned = (now - self._filled_at) * _SHADOW_A_SECOND
        self._left = min(_SHADOW_A_SECOND, self._left + max(0.0, earned))
        self._filled_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _is_due(self) -> bool:
        self._since_compared += 1
        if self._since_compared < _COMPARED_ONE_IN:
            return False
        self._since_compared = 0
        return True

    def _compare(
        self, trip: Trip, route: Route, request: RequestView, views: Sequence[PodView]
    ) -> None:
        live = trip.live
        other = live.policy if trip.policy is live.candidate else live.candidate
        if other is not None:
            compare(route, other, request, views, live=live, metrics=self._metrics, rng=self._rng)


def _keep(log: DecisionLog, trip: Trip, route: Route, now: float) -> Kept | None:
    """Where the candidate was asked about this very request."""
    shielded = trip.live.candidate
    if not isinstance(shielded, ShieldedPolicy):
        return None
    acted = trip.policy is shielded and shielded.last_objection is None
    return log.keep(shielded.trace(), route, trip.live.widths, acted=acted, now=now)
