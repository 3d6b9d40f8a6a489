"""What the learned router sees is what the pods say, in the places that `layout` names."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.expected_delay import DelayModel
from slimscale.routing.learned import layout
from slimscale.routing.learned.arrivals import ArrivalRates
from slimscale.routing.learned.objective import Objective
from slimscale.routing.learned.observation import ObservationBuilder
from slimscale.routing.policy import PodView, RequestView, Width

NARROW = Width(0.25, "m-025", 0.70, 0.07)
WIDE = Width(1.0, "m-100", 0.77, 1.0)
WIDTHS = (NARROW, WIDE)
REQUEST = RequestView(rows=1, deadline_seconds=0.4, slo_seconds=0.3)


def told(
    *, backlog: float = 0.0, queued: int = 0, warm: bool = True, wide: bool = True
) -> PodTelemetry:
    widths = [
        WidthTelemetry("m-025", 1, False, queued, 0, 0.004, 0.001, 0.0),
        WidthTelemetry("m-100", int(warm), False, 0, 0, 0.004, 0.010, None if warm else 0.8),
    ]
    return PodTelemetry(tuple(widths if wide else widths[:1]), backlog)


def pod(name: str = "a", telemetry: PodTelemetry | None = None, **changes: object) -> PodView:
    view = PodView(name, "pool", telemetry or told(), 0.0, {})
    return replace(view, **changes)  # type: ignore[arg-type]


def build(pods: list[PodView], request: RequestView = REQUEST, **more: object):  # type: ignore[no-untyped-def]
    builder = ObservationBuilder(widths=WIDTHS, max_batch_rows=32)
    return builder.build(request, pods, arrivals=(8.0, 4.0), **more)  # type: ignore[arg-type]


def test_times_queues_and_cold_widths_stand_in_their_places() -> None:
    seen = build([pod(telemetry=told(queued=7, warm=False))])
    narrow, wide = seen.cells[0]
    assert narrow == pytest.approx([0.005, 0.001, 7.0, 1.0, 0.0])
    assert wide == pytest.approx([0.014, 0.010, 0.0, 0.0, 0.8])
    assert seen.widths.tolist() == [[0.70, 0.07], [0.77, 1.0]]
    assert seen.service[layout.SERVICE_BURSTINESS] == 2.0
    assert seen.service[layout.SERVICE_ENERGY_WEIGHT] == Objective().energy


@given(
    backlog=st.floats(0.0, 5.0),
    age=st.floats(0.0, 5.0),
    overdue=st.floats(0.0, 5.0),
    narrow=st.integers(0, 100),
    wide=st.integers(0, 100),
)
def test_drain_is_that_of_the_heuristics(
    backlog: float, age: float, overdue: float, narrow: int, wide: int
) -> None:
    one = pod(
        telemetry=told(backlog=backlog),
        telemetry_age_seconds=age,
        overdue_seconds=overdue,
        in_flight_rows={"m-025": narrow, "m-100": wide},
    )
    expected = DelayModel(max_batch_rows=32).candidates(REQUEST, [one], WIDTHS)[0].drain_seconds
    seen = build([one])
    assert seen.pods[0, layout.POD_DRAIN_SECONDS] == pytest.approx(expected)
    assert seen.pods[0, layout.POD_IN_FLIGHT_ROWS] == narrow + wide
    assert seen.cells[0, 0, layout.CELL_QUEUED_ROWS] == narrow


def test_the_mask_leaves_out_what_may_not_or_cannot_take_the_request() -> None:
    pods = [
        pod("well"),
        pod("ejected", ejected=True),
        pod("probing", ejected=True, probing=True),
        pod("full", refusing=True),
        pod("without-wide", telemetry=told(wide=False)),
    ]
    seen = build(pods)
    assert seen.mask.tolist() == [
        [True, True], [False, False], [True, True], [False, False], [True, False],
    ]  # fmt: skip
    accurate = build(pods, replace(REQUEST, min_accuracy=0.75))
    assert not accurate.mask[:, 0].any()
    assert accurate.mask[0, 1]


def test_an_observation_holds_nothing_of_the_ones_before() -> None:
    builder = ObservationBuilder(widths=WIDTHS, max_batch_rows=32)

    def look(pods: list[PodView]):  # type: ignore[no-untyped-def]
        return builder.build(REQUEST, pods, arrivals=(1.0, 1.0))

    busy = pod("a", told(backlog=1.0, queued=9), in_flight_rows={"m-100": 3}, overdue_seconds=0.5)
    look([busy, pod("b", ejected=True)])
    look([busy])
    look([pod("a"), pod("c")])
    again = look([pod("c"), pod("a")])
    fresh = build([pod("c"), pod("a")])
    for name in ("cells", "pods", "mask"):
        assert np.array_equal(getattr(again, name), getattr(fresh, name)), name


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0])
def test_odd_telemetry_leaves_every_place_finite(odd: float) -> None:
    telemetry = PodTelemetry(
        (WidthTelemetry("m-025", 1, False, 0, 0, odd, odd, odd),), odd, power_watts=odd
    )
    view = pod(telemetry=telemetry, telemetry_age_seconds=odd, overdue_seconds=odd)
    seen = build([view, PodView("new", "pool", None, math.inf, {})], slowdowns={"a": 2.0})
    for array in (seen.cells, seen.pods, seen.request, seen.service):
        assert np.isfinite(array).all()
    assert seen.pods[0, layout.POD_SLOWDOWN] == 2.0


@given(st.floats(5.0, 500.0))
def test_arrival_rates_come_to_the_true_rate_and_fall_in_silence(rate: float) -> None:
    rates = ArrivalRates()
    end = 20.0
    for number in range(int(rate * end)):
        rates.arrived(2, now=number / rate)
    fast, slow = rates.per_second(now=end)
    assert slow == pytest.approx(2.0 * rate, rel=0.1 + 1.0 / rate)
    later_fast, later_slow = rates.per_second(now=end + 1.0)
    assert later_fast < 0.05 * fast
    assert slow * 0.7 < later_slow < slow


def test_a_service_that_has_just_begun_does_not_look_idle() -> None:
    rates = ArrivalRates()
    for number in range(100):
        rates.arrived(1, now=number / 100.0)
    fast, slow = rates.per_second(now=1.0)
    assert slow == pytest.approx(100.0, rel=0.15)
    assert fast == pytest.approx(100.0, rel=0.15)
