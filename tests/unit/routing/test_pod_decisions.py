"""Batch times that are learned, holding for a fuller batch, and which instance comes or goes."""

from random import Random

import pytest

from slimscale.routing.batch_times import BatchTimes
from slimscale.routing.holding import ArrivalRate, fire_at
from slimscale.routing.instances import (
    Change,
    DeviceView,
    InstanceLimits,
    ModelView,
    next_step,
)
from slimscale.routing.promises import Promises

GIGABYTE = 2**30


def learn(times: BatchTimes, rng: Random, count: int, *, factor: float = 1.0) -> None:
    for _ in range(count):
        rows = rng.choice((1, 2, 4, 8, 16, 32))
        seconds = factor * (0.003 + 0.0007 * rows) * (1.0 + 0.1 * rng.gauss(0, 1))
        times.observe(rows, 0.5 if rng.random() < 0.02 else max(seconds, 1e-4))


def test_batch_times_are_learned_through_noise_and_stalls() -> None:
    times = BatchTimes()
    assert times.seconds(1) is times.base_seconds is times.row_seconds is None
    learn(times, Random(1), 300)
    assert times.seconds(1) == pytest.approx(0.0037, rel=0.15)
    assert times.seconds(32) == pytest.approx(0.0254, rel=0.15)
    assert times.safe_seconds(32) > times.seconds(32)  # type: ignore[operator]


def test_a_machine_that_becomes_three_times_slower_is_noticed_within_twenty_batches() -> None:
    times = BatchTimes()
    learn(times, Random(2), 500)
    learn(times, Random(3), 20, factor=3.0)
    assert times.seconds(32) == pytest.approx(3 * 0.0254, rel=0.3)


def test_batches_of_one_size_say_nothing_wrong_about_that_size() -> None:
    times = BatchTimes()
    for _ in range(1000):
        times.observe(1, 0.004)
    assert times.seconds(1) == pytest.approx(0.004, rel=0.02)
    learn(times, Random(4), 40)
    assert times.seconds(32) == pytest.approx(0.0254, rel=0.25)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_times_that_cannot_be_are_not_learned(seconds: float) -> None:
    times = BatchTimes()
    times.observe(1, seconds)
    times.observe(0, 1.0)
    assert times.count == 0


def test_promises_learn_how_much_longer_answers_take_and_forget_it_again() -> None:
    promises, rng = Promises(), Random(5)
    for _ in range(3000):
        promises.kept(0.1, 0.1 * rng.uniform(1.0, 2.0))
    assert 1.8 < promises.factor < 2.3
    for _ in range(20_000):
        promises.kept(0.1, 0.1)
    assert promises.factor == 1.0


def test_answers_given_up_late_and_short_waits_count_as_what_they_are() -> None:
    promises = Promises()
    first = promises.factor
    promises.kept(0.001, 1.0)  # noise of the clock
    promises.kept(0.0, 1.0)  # nothing was promised
    assert promises.factor == first
    promises.kept(0.1, float("inf"))
    assert promises.factor > first
    for _ in range(1000):
        promises.kept(0.1, float("inf"))
    assert promises.factor == 4.0


def hold(**changes: float | None) -> float:
    case: dict[str, float | None] = {
        "now": 10.0, "rows": 2, "full_rows": 8, "oldest_arrival": 9.99, "first_deadline": 20.0,
        "hold_seconds": 0.05, "full_seconds": 0.02, "arrivals_per_second": 1000.0,
    }  # fmt: skip
    return fire_at(**(case | changes))  # type: ignore[arg-type]


def test_an_instance_waits_until_the_oldest_request_has_waited_long_enough() -> None:
    assert hold() == pytest.approx(10.04)


@pytest.mark.parametrize(
    "changes",
    [
        {"hold_seconds": 0.0},
        {"rows": 8},
        {"full_seconds": None},
        {"oldest_arrival": 9.0},
        {"first_deadline": 10.01},
        {"arrivals_per_second": 5.0},
    ],
    ids=["never asked to", "full", "not measured", "waited enough", "deadline", "nobody comes"],
)
def test_it_fires_at_once_where_waiting_is_not_allowed_or_buys_nothing(
    changes: dict[str, float | None],
) -> None:
    assert hold(**changes) == 10.0


def test_a_wait_ends_while_a_full_batch_still_meets_the_first_deadline() -> None:
    assert hold(first_deadline=10.05) == pytest.approx(10.03)


def test_the_arrival_rate_falls_while_nobody_comes() -> None:
    rate = ArrivalRate()
    assert rate.per_second(0.0) is None
    for number in range(50):
        rate.arrived(number * 0.01)
    assert rate.per_second(0.5) == pytest.approx(100, rel=0.1)
    assert rate.per_second(100.0) < 1.0  # type: ignore[operator]


def model(name: str, **changes: object) -> ModelView:
    case: dict[str, object] = {
        "instances": 1, "loading": False, "running": 0, "queued_rows": 0, "idle_seconds": 0.0,
        "memory_bytes": GIGABYTE,
    }  # fmt: skip
    return ModelView(name, **(case | changes))  # type: ignore[arg-type]


ROOM = DeviceView(utilisation=0.3, memory_free_bytes=10 * GIGABYTE)
LIMITS = InstanceLimits(
    max_instances=2, unload_after_seconds=300, memory_reserve_bytes=GIGABYTE,
    max_utilisation=0.9, full_rows=32,
)  # fmt: skip
COLD = model("cold", instances=0, queued_rows=3)
BUSY = model("busy", running=1, queued_rows=64)


def test_a_cold_model_that_requests_wait_for_is_loaded_first() -> None:
    assert next_step([BUSY, COLD], ROOM, LIMITS).model == "cold"
    unknown = DeviceView(None, None)
    assert next_step([COLD], unknown, LIMITS).change is Change.LOAD


def test_for_a_cold_model_the_longest_idle_other_one_makes_room() -> None:
    tight = DeviceView(0.3, GIGABYTE)
    idle = [model("a", idle_seconds=10.0), model("b", idle_seconds=50.0), COLD]
    step = next_step(idle, tight, LIMITS)
    assert (step.change, step.model) == (Change.UNLOAD, "b")
    fresh = [model("a", idle_seconds=1.0), model("b", running=1), COLD]
    assert next_step(fresh, tight, LIMITS).change is Change.NONE


def test_a_busy_model_gets_another_instance_where_there_is_room() -> None:
    step = next_step([BUSY], ROOM, LIMITS)
    assert (step.change, step.model) == (Change.LOAD, "busy")


@pytest.mark.parametrize(
    "device",
    [
        DeviceView(None, 10 * GIGABYTE),
        DeviceView(0.3, None),
        DeviceView(0.95, 10 * GIGABYTE),
        DeviceView(0.3, int(1.5 * GIGABYTE)),
        DeviceView(float("nan"), 10 * GIGABYTE),
    ],
    ids=["utilisation unknown", "memory unknown", "busy device", "no memory", "nonsense"],
)
def test_unknown_never_counts_as_idle_and_limits_hold(device: DeviceView) -> None:
    assert next_step([BUSY], device, LIMITS).change is Change.NONE


@pytest.mark.parametrize(
    "busy",
    [
        model("m", running=1, queued_rows=3),
        model("m", running=0, queued_rows=64),
        model("m", instances=2, running=2, queued_rows=64),
        model("m", running=1, queued_rows=64, memory_bytes=None),
    ],
    ids=["less than a batch waits", "an instance is free", "at the most", "size unknown"],
)
def test_another_instance_comes_only_where_it_pays(busy: ModelView) -> None:
    assert next_step([busy], ROOM, LIMITS).change is Change.NONE


def test_what_has_been_idle_for_long_goes_but_one_width_stays_warm() -> None:
    both = [model("a", idle_seconds=400.0), model("b", idle_seconds=500.0)]
    step = next_step(both, ROOM, LIMITS)
    assert (step.change, step.model) == (Change.UNLOAD, "b")
    assert next_step([both[0], model("b", instances=0)], ROOM, LIMITS).change is Change.NONE
    kept = [model("a", idle_seconds=400.0, warm=True), model("b")]
    assert next_step(kept, ROOM, LIMITS).change is Change.NONE


def test_nothing_is_begun_while_something_loads() -> None:
    assert next_step([model("a", loading=True), COLD], ROOM, LIMITS).change is Change.NONE
