"""A policy is tried on made-up pods before it gets a real request."""

from collections.abc import Sequence
from math import isfinite
from random import Random

from slimscale.api.serving_config import RouterConfig
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.policy import PodView, RequestView, Route, Width
from slimscale.serving.router.live import LoadedPolicy

__all__ = ["try_out"]

_PODS = (1, 3)
_ROWS = (1, 7)


def try_out(loaded: LoadedPolicy, config: RouterConfig, widths: Sequence[Width]) -> None:
    """ValueError where it does not route ordinary requests of this service to ordinary pods."""
    try:
        routes = _routes(loaded, config, widths)
    except Exception as error:
        what = str(error) if isinstance(error, ValueError) else type(error).__name__
    else:
        if all(map(_is_finite, routes)):
            return
        what = "it gives no finite route for an ordinary request"
    raise ValueError(
        f"policy {loaded.version} cannot be tried on this service's widths ({what}); train it for"
        " them, or use another one"
    )


def _routes(
    loaded: LoadedPolicy, config: RouterConfig, widths: Sequence[Width]
) -> list[Route | None]:
    policy = loaded.make(widths, config.max_batch_rows, config.objective)
    routes = []
    for number in _PODS:
        pods = [_pod(index, widths) for index in range(number)]
        for rows in _ROWS:
            policy.arrived(rows, now=0.1 * rows)
            request = RequestView(rows, 10.0, config.slo_milliseconds / 1000.0)
            routes.append(policy.choose(request, pods, widths, Random(rows)))  # noqa: S311
    return routes


def _is_finite(route: Route | None) -> bool:
    return route is not None and isfinite(route.expected_seconds + route.hold_seconds)


def _pod(index: int, widths: Sequence[Width]) -> PodView:
    told = tuple(
        WidthTelemetry(
            width.model,
            instances=1,
            loading=False,
            queued_rows=index,
            running_rows=0,
            base_seconds=0.002,
            row_seconds=0.002 * width.flops_ratio,
            load_seconds=1.0,
        )
        for width in widths
    )
    backlog = 0.004 * index
    return PodView(f"pod-{index}", "any", PodTelemetry(told, backlog), 0.05, {})
