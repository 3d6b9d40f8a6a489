"""Which pods may take a request at all. Scores never bring back what a mask has taken out."""

from collections.abc import Sequence

from slimscale.routing.policy import PodView, RequestView, Width

__all__ = ["accurate_widths", "may_take"]


def may_take(pod: PodView, request: RequestView) -> bool:
    """False: draining, tried already, ejected (unless it is being probed), or its queue is full."""
    if pod.refusing or pod.name in request.tried_pods:
        return False
    if pod.ejected and not pod.probing:
        return False
    return pod.telemetry is None or not pod.telemetry.draining


def accurate_widths(request: RequestView, widths: Sequence[Width]) -> list[Width]:
    """The widths that are accurate enough for the request, in their order."""
    return [width for width in widths if width.accuracy >= request.min_accuracy]
