"""What a router tells is read as the router writes it; what is wrong counts as no answer."""

import json
from typing import Any

import pytest

from slimscale.domain.inference import RouterReport
from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.observe.inference import demand_of, newest_telemetry
from slimscale.observe.router_reports import read_report
from slimscale.serving.router.state import DemandState, PodState, RouterState


def state(**demand: Any) -> RouterState:
    width = WidthTelemetry("m", 1, False, 2, 1, base_seconds=0.01)
    figures: dict[str, Any] = {
        "stable_window_seconds": 60, "panic_window_seconds": 6, "observed_seconds": 60,
        "stable_requests_per_second": 10, "stable_rows_per_second": 20,
        "panic_rows_per_second": 30, "rejected_rows_per_second": 1, "idle_seconds": None,
        "age_seconds": 99, "buffered_rows": 4, "slo_attainment": 0.9,
        "latency_seconds": 0.21,
    }  # fmt: skip
    return RouterState(
        router="r-1", service="s", policy="SED", mode="Active", pods_known=True,
        demand=DemandState(**(figures | demand)),
        pods=(
            PodState(
                name="p-1", ready=True, telemetry_age_seconds=0.5,
                telemetry=PodTelemetry((width,), 0.2, memory_free_bytes=7),
            ),
            PodState(name="p-2", ready=False),
        ),
        width_mix={"m": 1.0},
    )  # fmt: skip


def report(**demand: Any) -> RouterReport:
    return read_report(state(**demand).model_dump_json(by_alias=True).encode(), "r-1")


def test_a_routers_state_is_read_as_the_router_writes_it() -> None:
    found = report()
    assert (found.stable_rows_per_second, found.panic_rows_per_second) == (20, 30)
    assert (found.buffered_rows, found.slo_attainment, found.latency_seconds) == (4, 0.9, 0.21)
    assert found.width_requests_per_second == {"m": 10.0}
    [heard] = found.pods
    assert (heard.pod, heard.age_seconds) == ("p-1", 0.5)
    assert heard.telemetry.widths[0].queued_rows == 2
    assert heard.telemetry.utilisation is None, "unknown is not 0"


def test_a_router_without_a_request_has_been_idle_since_its_start() -> None:
    assert report().idle_seconds == 99
    assert report(idle_seconds=3).idle_seconds == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"demand": {"stableRowsPerSecond": NaN}}',
     b'{"demand": {"stableRowsPerSecond": -1}}', b'{"demand": {"stableRowsPerSecond": "1e999"}}'],
)  # fmt: skip
def test_an_answer_that_is_none_is_no_report(body: bytes) -> None:
    """E1, E2: what cannot be read is missing, and missing is never 0."""
    with pytest.raises(ValueError, match="not as expected"):
        read_report(body, "r-1")


def test_fields_of_a_newer_router_are_skipped() -> None:
    body = json.loads(state().model_dump_json(by_alias=True))
    body |= {"new": 1}
    body["demand"]["alsoNew"] = 2
    assert read_report(json.dumps(body).encode(), "r-1") == report()


def test_routers_are_added_up_and_a_silent_one_is_counted() -> None:
    demand = demand_of((report(), report(slo_attainment=0.5)), routers=3, now_seconds=1.0)
    assert demand is not None
    assert (demand.stable_rows_per_second, demand.buffered_rows) == (40, 8)
    assert demand.rows_per_request == 2.0
    assert demand.slo_attainment == pytest.approx(0.7)
    assert (demand.routers, demand.routers_answering) == (3, 2)
    assert not demand.complete, "nothing may shrink on half the figures"


def test_idle_is_the_shortest_of_all_routers() -> None:
    demand = demand_of(
        (report(idle_seconds=5), report(idle_seconds=50)), routers=2, now_seconds=1.0
    )
    assert demand is not None
    assert demand.idle_seconds == 5


def test_no_router_is_no_demand_rather_than_none_at_all() -> None:
    assert demand_of((), routers=2, now_seconds=1.0) is None


def test_of_two_routers_the_fresher_word_on_a_pod_counts() -> None:
    old = report()
    [heard] = report().pods
    fresh = RouterReport("r-2", pods=(type(heard)("p-1", heard.telemetry, 0.1),))
    assert newest_telemetry((old, fresh))["p-1"].age_seconds == 0.1
