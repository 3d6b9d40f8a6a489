"""What the other policy would have done is asked often enough to tell, and not more often."""

from random import Random
from typing import Any

import pytest

from slimscale.api.serving_config import RouterConfig
from slimscale.routing.policy import RequestView, Route
from slimscale.serving.http import Request
from slimscale.serving.router.asked import Asked
from slimscale.serving.router.live import Live, make_live
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.second_opinion import SecondOpinion
from slimscale.serving.router.trip import Trip
from tests.support.routers import router_config
from tests.support.routing_cases import WIDTHS, pod, telemetry

VIEWS = [pod("a", telemetry()), pod("b", telemetry(backlog=0.01))]
WANTED = RequestView(1, 10.0, 0.25)
ROUTE = Route("a", WIDTHS[0], 8, 0.01, "")


def live(**fields: Any) -> Live:
    return make_live(RouterConfig.model_validate(router_config(policy="Random", **fields)))


def trip(service: Live) -> Trip:
    request = Request(b"POST", "/", {}, b"", received_at=0.0)
    asked = Asked(1, 10.0, 0.25, "default", 0.0, b"")
    return Trip(request, asked, service, b"id", 10.0, service.policy)


@pytest.mark.parametrize(("rate", "least", "most"), [(50, 500, 500), (4000, 2000, 2300)])
def test_in_shadow_every_decision_is_compared_up_to_a_rate(
    rate: int, least: int, most: int
) -> None:
    metrics, service = RouterMetrics(), live(mode="Shadow")
    opinion = SecondOpinion(metrics, Random(1))
    for number in range(10 * rate):
        opinion.note(trip(service), ROUTE, WANTED, VIEWS, now=100.0 + number / rate)
    assert least <= metrics.shadow.total() <= most
    assert service.rollout is not None
    assert service.rollout.shadowed == metrics.shadow.total()


def test_a_canary_is_compared_now_and_then() -> None:
    metrics, service = RouterMetrics(), live(mode="Canary")
    opinion = SecondOpinion(metrics, Random(1))
    for number in range(640):
        opinion.note(trip(service), ROUTE, WANTED, VIEWS, now=float(number))
    assert metrics.shadow.total() == 10
    assert metrics.compared["acting"].requests == metrics.compared["shadow"].requests == 10
    assert metrics.compared["acting"].accuracy == pytest.approx(10 * WIDTHS[0].accuracy)
