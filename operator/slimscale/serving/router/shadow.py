"""What the other policy would have done: counted and compared, never acted on."""

import logging
from collections.abc import Sequence
from random import Random

from slimscale.routing.policy import PodView, RequestView, Route, RoutingPolicy
from slimscale.serving.router.live import Live
from slimscale.serving.router.metrics import RouterMetrics

__all__ = ["compare"]

_log = logging.getLogger(__name__)


def compare(
    route: Route,
    other: RoutingPolicy,
    request: RequestView,
    views: Sequence[PodView],
    *,
    live: Live,
    metrics: RouterMetrics,
    rng: Random,
) -> Route | None:
    """Ask the other policy, count how its route differs, and return it.

    Delays, accuracies and misses of both routes are summed for the same requests, so that their
    differences mean something; the delays come from the same arithmetic (cold-aware) for both,
    whatever the policies use themselves.
    """
    would = other.choose(request, views, live.widths, rng)
    difference = _difference(route, would)
    metrics.shadow[other.name, difference] += 1
    if would is not None:
        delays = {
            (candidate.pod.name, candidate.width.model): candidate.expected_seconds
            for candidate in live.delays.candidates(request, views, live.widths)
        }
        acting = delays.get((route.pod, route.width.model))
        shadow = delays.get((would.pod, would.width.model))
        if acting is not None and shadow is not None:
            slo = request.slo_seconds
            for name, one, delay in (
                ("acting", route, acting + route.hold_seconds),
                ("shadow", would, shadow + would.hold_seconds),
            ):
                sums = metrics.compared[name]
                sums.requests += 1
                sums.seconds += delay
                sums.accuracy += one.width.accuracy
                sums.misses += delay > slo
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("shadow %s: %s; acting: %s", other.name, would, route)
    return would


def _difference(route: Route, other: Route | None) -> str:
    if other is None:
        return "no_route"
    if other.pod != route.pod:
        return "pod" if other.width.model == route.width.model else "pod_and_width"
    if other.width.model != route.width.model:
        return "width"
    return "none" if other.batch_cap == route.batch_cap else "batch_cap"
