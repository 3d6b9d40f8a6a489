"""GPUs that are shared, lost or cannot tell: none of it may look like load or like idleness."""

import pytest

from slimscale.scaling.capacity import device_utilisation
from tests.support.scaling_cases import (
    ask,
    make_demand,
    make_pod,
    make_pool,
    make_telemetry,
    of_pool,
    outcomes,
    ready_pool,
    watched,
)

QUIET = make_demand(1.0)


def test_a_shared_device_counts_once() -> None:
    shared = [
        make_pod(f"a-{i}", telemetry=make_telemetry(utilisation=0.9, device="GPU-1"))
        for i in range(3)
    ]
    own = make_pod("b", telemetry=make_telemetry(utilisation=0.1, device="GPU-2"))
    assert device_utilisation([*shared, own], 15.0) == pytest.approx(0.5)


def test_a_neighbour_on_the_same_device_makes_an_idle_service_neither_grow_nor_stay() -> None:
    busy = make_telemetry(utilisation=0.9, device="GPU-1")
    pool = ready_pool(3, telemetry=busy)
    assert ask(QUIET, pool).replicas() == {"cpu": 3}
    assert of_pool(ask(QUIET, pool, memo=watched(QUIET, pool))).replicas < 3
    assert ("Utilisation", "Shared") in outcomes(ask(QUIET, pool))


def test_pods_with_a_device_each_are_not_called_sharing() -> None:
    pods = [make_pod(f"a-{i}", telemetry=make_telemetry(device=f"GPU-{i}")) for i in range(3)]
    assert ("Utilisation", "Shared") not in outcomes(ask(QUIET, make_pool("cpu", *pods)))


def test_utilisation_that_no_device_tells_is_unknown_and_said_to_be() -> None:
    pool = ready_pool(3, telemetry=make_telemetry(utilisation=None, device="MIG-1", running=4))
    decision = ask(make_demand(50.0), pool)
    assert of_pool(decision).utilisation is None
    assert ("Utilisation", "Unknown") in outcomes(decision)
    assert decision.replicas() == {"cpu": 3}


def test_utilisation_that_is_no_number_is_unknown() -> None:
    pods = [make_pod("a", telemetry=make_telemetry(utilisation=float("nan")))]
    assert device_utilisation(pods, 15.0) is None


def test_pods_busy_with_our_own_rows_are_not_made_busier_than_they_can_be() -> None:
    # The service times look as if two pods were enough; the devices say otherwise.
    pods = [
        make_pod(
            f"cpu-{i}", telemetry=make_telemetry(utilisation=0.9, device=f"GPU-{i}", running=8)
        )
        for i in range(4)
    ]
    pool = make_pool("cpu", *pods)
    assert of_pool(ask(QUIET, pool, memo=watched(QUIET, pool))).replicas == 4


def test_a_lost_device_is_no_capacity_and_its_pod_is_replaced_one_at_a_time() -> None:
    lost = [make_pod(f"cpu-{i}", lost=True, silent=True) for i in range(2)]
    pool = make_pool("cpu", *lost, *(make_pod(f"cpu-{i}") for i in (2, 3)))
    decision = ask(make_demand(60.0), pool)
    assert of_pool(decision).replicas > 4, "what is lost takes no rows"
    assert decision.replace_pods == ("cpu-0",)
    next_look = ask(make_demand(60.0, at=1010.0), pool, memo=decision.memo, at=1010.0)
    assert next_look.replace_pods == ()
    later = ask(make_demand(60.0, at=1070.0), pool, memo=next_look.memo, at=1070.0)
    assert later.replace_pods == ("cpu-0",)


def test_a_lost_device_s_silence_is_not_idleness() -> None:
    pods = [
        make_pod(f"cpu-{i}", telemetry=make_telemetry(utilisation=0.9, running=8)) for i in range(3)
    ]
    lost = make_pod("cpu-9", lost=True, telemetry=make_telemetry(utilisation=0.0))
    assert device_utilisation([*pods, lost], 15.0) == pytest.approx(0.9)


def test_a_device_that_came_back_counts_again() -> None:
    pool = make_pool("cpu", *(make_pod(f"cpu-{i}") for i in range(4)))
    decision = ask(make_demand(60.0), pool)
    assert decision.replicas() == {"cpu": 4}
    assert decision.replace_pods == ()


def test_the_least_loaded_pods_leave_and_the_spared_lose_their_mark() -> None:
    loads = {"cpu-0": 9.0, "cpu-1": 0.0, "cpu-2": 3.0, "cpu-3": 1.0}
    pods = [make_pod(name, telemetry=make_telemetry(backlog=load)) for name, load in loads.items()]
    marked = make_pod("cpu-4", telemetry=make_telemetry(backlog=20.0), cost=-1000)
    pool = make_pool("cpu", *pods, marked)
    decision = ask(QUIET, pool, memo=watched(QUIET, pool))
    assert of_pool(decision).replicas == 3
    assert of_pool(decision).deletion_costs == {"cpu-1": -1000, "cpu-3": -999, "cpu-4": 0}


def test_a_silent_pod_is_not_taken_for_an_idle_one() -> None:
    pods = [make_pod("cpu-0", silent=True), *(make_pod(f"cpu-{i}") for i in (1, 2, 3))]
    decision = ask(QUIET, make_pool("cpu", *pods), memo=watched(QUIET, ready_pool(4)))
    assert "cpu-0" not in of_pool(decision).deletion_costs


def test_without_a_scale_in_no_pod_is_marked() -> None:
    assert of_pool(ask(make_demand(60.0), ready_pool(4))).deletion_costs == {}
