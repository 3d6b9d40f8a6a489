"""What a second policy would have done: counted and compared, never acted on."""

import logging
from collections.abc import Sequence
from random import Random

from slimscale.routing.policy import PodView, RequestView, Route
from slimscale.serving.router.live import Live
from slimscale.serving.router.metrics import RouterMetrics

__all__ = ["compare"]

_log = logging.getLogger(__name__)


def compare(
    route: Route,
    request: RequestView,
    views: Sequence[PodView],
    *,
    live: Live,
    metrics: RouterMetrics,
    rng: Random,
) -> None:
    """Ask the shadow and count how its route differs, and both routes' expected delays.

    Both delays come from the same arithmetic (cold-aware), whatever the policies use themselves. They
    are summed for the same requests, so that their difference means something.
    """
    if live.shadow is None:
        return
    other = live.shadow.choose(request, views, live.widths, rng)
    difference = _difference(route, other)
    metrics.shadow[live.shadow.name, difference] += 1
    delays = {
        (candidate.pod.name, candidate.width.model): candidate.expected_seconds
        for candidate in live.delays.candidates(request, views, live.widths)
    }
    done = delays.get((route.pod, route.width.model))
    would = None if other is None else delays.get((other.pod, other.width.model))
    if done is not None and would is not None:
        metrics.shadow_seconds["acting"] += done
        metrics.shadow_seconds["shadow"] += would
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("shadow %s: %s; acting: %s", live.shadow.name, other, route)


def _difference(route: Route, other: Route | None) -> str:
    if other is None:
        return "no_route"
    if other.pod != route.pod:
        return "pod" if other.width.model == route.width.model else "pod_and_width"
    if other.width.model != route.width.model:
        return "width"
    return "none" if other.batch_cap == route.batch_cap else "batch_cap"
