"""The compiled observation and the router's own builder give the same arrays for the same pods."""

import numpy as np
import pytest

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.learned.arrivals import ArrivalRates
from slimscale.routing.learned.observation import Observation, ObservationBuilder
from slimscale.routing.policy import PodView, RequestView
from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.scene import REGIMES, Scene, six
from slimscale.simulate.routing.state import SNAPSHOTS, WIDTHS, Plane
from slimscale.simulate.routing.traces import draw_trace
from slimscale.simulate.routing.view import fill_observation

pytestmark = pytest.mark.timeout(300)  # the first one waits for the compiler

NAMES = ("cells", "pods", "widths", "request", "service", "mask")


def views(plane: Plane, scene: Scene) -> list[PodView]:
    """What a router would have of the pods, from the telemetry that has reached it."""
    s, each = plane.state[0], plane.requests.each
    found = []
    for pod, device in enumerate(scene.devices):
        place = int(s["known"][pod]) % SNAPSHOTS
        told = {
            name: s[name][pod, place * WIDTHS : place * WIDTHS + len(scene.widths)]
            for name in ("told_queued", "told_received", "told_scale", "told_load")
        }
        widths = tuple(
            WidthTelemetry(
                kind.model, int(told["told_load"][w] == 0.0), False, int(told["told_queued"][w]), 0,
                device.base_seconds * told["told_scale"][w],
                device.row_seconds * kind.flops_ratio * told["told_scale"][w],
                float(told["told_load"][w]),
            )
            for w, kind in enumerate(scene.widths)
        )  # fmt: skip
        on_pod = (each["device"] == pod) & (each["done"] == 0) & (each["sent_at"] < s["now"])
        late = s["now"] - each["expected_at"][on_pod]
        oldest = np.argmin(each["sent_at"][on_pod]) if on_pod.any() else -1
        found.append(
            PodView(
                name=device.name,
                pool=device.name,
                telemetry=PodTelemetry(widths, float(s["told_backlog"][pod, place])),
                telemetry_age_seconds=float(s["now"] - s["told_at"][pod, place]),
                in_flight_rows={
                    kind.model: int(max(0.0, s["sent"][pod, w] - told["told_received"][w]))
                    for w, kind in enumerate(scene.widths)
                },
                power_watts=device.dynamic_watts,
                overdue_seconds=max(0.0, float(late[oldest])) if on_pod.any() else 0.0,
            )
        )
    return found


@pytest.mark.parametrize("regime", ["base", "stale", "cold", "fault"])
def test_the_simulator_shows_a_policy_what_the_router_would(regime: str) -> None:
    scene = Scene(six(), regime=REGIMES[regime])
    trace = draw_trace(scene, 1000.0, 0.6, seed=3)
    plane = new_plane(scene, trace.arrival, trace.klass, seed=3)
    s, q, look = plane.state[0], plane.requests, plane.look
    builder = ObservationBuilder(widths=scene.widths, max_batch_rows=scene.max_batch_rows)
    rates, rng = ArrivalRates(), np.random.default_rng(5)
    for number in range(len(trace.arrival)):
        request = advance_to_next_arrival(s, q)
        assert request == number
        now = float(s["now"])
        rates.arrived(1, now=now)
        fill_observation(s, q, request, look)
        if number % 10 == 0:
            slo = scene.classes[int(q.each["klass"][request])].slo_seconds
            wanted = builder.build(
                RequestView(rows=1, deadline_seconds=scene.drop_ratio * slo, slo_seconds=slo),
                views(plane, scene),
                arrivals=rates.per_second(now=now),
                slowdowns={d.name: float(s["slowdown"][i]) for i, d in enumerate(scene.devices)},
            )
            _same(wanted, plane)
        pod, width = int(rng.integers(6)), int(rng.integers(4))
        expected = look.pods[pod, 0] + look.cells[pod, width, 0]
        apply_action(s, q, request, pod, width, 32, 0, expected)


def _same(wanted: Observation, plane: Plane) -> None:
    for name in NAMES:
        got = getattr(plane.look, name)
        np.testing.assert_allclose(got, getattr(wanted, name), rtol=1e-9, atol=1e-9, err_msg=name)
