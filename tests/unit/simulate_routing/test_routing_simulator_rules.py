"""What a device does to requests: batches, caps, holding, cold widths, faults, old telemetry."""

from dataclasses import replace

import numpy as np
import pytest

from slimscale.routing.learned import layout
from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.heuristics import Kind
from slimscale.simulate.routing.scene import WIDTHS, Device, Regime, RequestClass, Scene, six
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.view import fill_observation
from tests.support.routed import route

pytestmark = pytest.mark.timeout(300)  # the first one waits for the compiler

DEVICE = Device("one", 0.010, 0.005, 100.0, 10.0, load_seconds=0.2)
CALM = Scene((DEVICE,), classes=(RequestClass(0.1, 1.0),), noise=0.0)
WIDEST = 3


def play(
    scene: Scene,
    arrivals: list[float],
    *,
    width: int = WIDEST,
    cap: int = 32,
    hold: int = 0,
    device: int = 0,
    seed: int = 0,
) -> Plane:
    """All requests to one device and width."""
    plane = new_plane(scene, np.array(arrivals), np.zeros(len(arrivals), dtype=np.int64), seed=seed)
    s, q = plane.state[0], plane.requests
    while (request := advance_to_next_arrival(s, q)) >= 0:
        fill_observation(s, q, request, plane.look)
        apply_action(s, q, request, device, width, cap, hold, 0.015)
    return plane


def test_an_idle_device_starts_at_once_and_then_takes_what_has_come_meanwhile() -> None:
    latency = play(CALM, [0.0, 0.001, 0.002]).requests.of("latency")
    # 15 ms for the first alone, then 20 ms for the two together.
    assert latency == pytest.approx([0.015, 0.034, 0.033])


def test_a_batch_stays_within_the_smallest_cap_of_its_requests() -> None:
    latency = play(CALM, [0.0, 0.001, 0.002], cap=1).requests.of("latency")
    assert latency == pytest.approx([0.015, 0.029, 0.043])


def test_energy_is_shared_by_the_rows_of_a_batch() -> None:
    energy = play(CALM, [0.0, 0.001, 0.002]).requests.of("energy")
    assert energy == pytest.approx([1.5, 1.0, 1.0])


def test_a_held_request_waits_until_the_batch_is_full() -> None:
    plane = play(CALM, [0.0, 0.010, 0.020], cap=3, hold=1)
    assert plane.requests.of("latency") == pytest.approx([0.045, 0.035, 0.025])
    assert plane.state[0]["batches"] == 1


def test_a_held_request_starts_in_time_for_its_slo_when_nobody_comes() -> None:
    plane = play(CALM, [0.0], cap=4, hold=1)
    # 80 % of the SLO of 100 ms less the 30 ms of a batch of four, then 15 ms alone.
    assert plane.requests.of("latency") == pytest.approx([0.065])


def test_one_request_that_may_not_wait_makes_the_held_ones_start() -> None:
    plane = new_plane(CALM, np.array([0.0, 0.005]), np.zeros(2, dtype=np.int64), seed=0)
    s, q = plane.state[0], plane.requests
    for hold in (1, 0):
        request = advance_to_next_arrival(s, q)
        apply_action(s, q, request, 0, WIDEST, 8, hold, 0.015)
    assert advance_to_next_arrival(s, q) == -1
    assert q.of("latency") == pytest.approx([0.025, 0.020])


def test_the_earliest_deadline_goes_first_among_classes() -> None:
    scene = replace(CALM, classes=(RequestClass(0.1, 0.5), RequestClass(0.03, 0.5)))
    plane = new_plane(scene, np.array([0.0, 0.001, 0.002]), np.array([0, 0, 1]), seed=0)
    s, q = plane.state[0], plane.requests
    while (request := advance_to_next_arrival(s, q)) >= 0:
        apply_action(s, q, request, 0, WIDEST, 1, 0, 0.015)
    assert q.of("latency")[2] < q.of("latency")[1]


def test_what_cannot_be_answered_in_time_is_dropped_and_costs_most() -> None:
    scene = replace(CALM, classes=(RequestClass(0.02, 1.0),))
    plane = play(scene, [0.0, 0.0, 0.0, 0.0], cap=1)
    latency, value = plane.requests.of("latency"), plane.requests.of("value")
    assert np.isinf(latency[2:]).all()
    assert value[3] == pytest.approx(-3.0)
    assert value[:2].min() > -3.0


def test_a_cold_width_is_loaded_while_others_compute() -> None:
    scene = replace(CALM, regime=Regime("tight", memory=1.3))
    plane = play(scene, [1.0], width=WIDEST)
    # The slimmest two are there; the widest needs the memory of both, then its 200 ms of loading.
    s = plane.state[0]
    assert s["warm"][0, :4].tolist() == [0, 0, 0, 1]
    assert np.isinf(plane.requests.of("latency")[0])  # 215 ms are more than twice the SLO
    patient = replace(scene, classes=(RequestClass(1.0, 1.0),))
    assert play(patient, [1.0], width=WIDEST).requests.of("latency") == pytest.approx([0.215])


def test_a_slow_device_takes_that_many_times_longer() -> None:
    slow = Regime("slow", slow_factor=5.0, slow_seconds=1e9, slow_gap_seconds=1e-9)
    scene = replace(CALM, regime=slow, classes=(RequestClass(10.0, 1.0),))
    assert play(scene, [1.0]).requests.of("latency") == pytest.approx([0.075])


def test_requests_of_a_device_that_fails_are_routed_again() -> None:
    scene = Scene(
        six(), classes=(RequestClass(5.0, 1.0),),
        regime=Regime("down", down_gap_seconds=1.0, down_seconds=1.0),
    )  # fmt: skip
    plane = route(scene, rate=800.0, seconds=5.0, kind=Kind.SED)
    s, q = plane.state[0], plane.requests
    assert s["decisions"] > len(q.each)
    assert s["dropped"] == 0


def test_the_router_learns_what_a_device_told_only_after_the_delay() -> None:
    scene = replace(CALM, regime=Regime("stale", telemetry_seconds=0.05))
    plane = new_plane(scene, np.array([0.0, 0.03, 0.1]), np.zeros(3, dtype=np.int64), seed=0)
    s, q, look = plane.state[0], plane.requests, plane.look
    seen = []
    while (request := advance_to_next_arrival(s, q)) >= 0:
        fill_observation(s, q, request, look)
        seen.append(look.pods[0, layout.POD_IN_FLIGHT_ROWS])
        apply_action(s, q, request, 0, WIDEST, 32, 0, 0.015)
    # The first was answered after 15 ms, which is known at 65 ms.
    assert seen == [0.0, 1.0, 0.0]


def test_an_answer_that_does_not_come_makes_its_device_look_busy() -> None:
    slow = Regime("slow", slow_factor=50.0, slow_seconds=1e9, slow_gap_seconds=1e-9)
    scene = replace(CALM, regime=slow, classes=(RequestClass(10.0, 1.0),))
    plane = new_plane(scene, np.array([0.0, 0.3]), np.zeros(2, dtype=np.int64), seed=0)
    s, q = plane.state[0], plane.requests
    for _ in range(2):
        request = advance_to_next_arrival(s, q)
        fill_observation(s, q, request, plane.look)
        apply_action(s, q, request, 0, WIDEST, 32, 0, 0.015)
    assert plane.look.pods[0, layout.POD_OVERDUE_SECONDS] == pytest.approx(0.285)
    assert plane.look.pods[0, layout.POD_DRAIN_SECONDS] == pytest.approx(0.285 + 0.015)


def test_widths_below_a_class_least_accuracy_are_masked() -> None:
    scene = replace(CALM, classes=(RequestClass(0.1, 1.0, min_accuracy=0.75),))
    plane = play(scene, [0.0])
    assert plane.look.mask[0].tolist() == [width.accuracy >= 0.75 for width in WIDTHS]
