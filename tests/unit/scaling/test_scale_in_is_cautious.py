"""Pods are saved by what the window has shown at worst: the highest need, the slowest pods."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from slimscale.scaling.memo import load_memo
from slimscale.scaling.sizing import BatchServer, pod_capacity
from tests.support.scaling_cases import (
    SPEC,
    TIMES,
    ask,
    make_demand,
    make_telemetry,
    of_pool,
    ready_pool,
    watched,
)

WINDOW = SPEC.down_stabilisation_seconds
FAST = (TIMES[0] / 2, TIMES[1] / 2)
POD = pod_capacity(BatchServer(*TIMES, 32), slo_seconds=SPEC.slo_seconds, percentile=0.95)
EIGHT_NEED = 7.5 * POD / (1.0 + SPEC.headroom)
"""Rows a second that eight pods take, and seven do not."""


def looked_at(
    memo: Mapping[str, object], times: tuple[float, float], *, since: float, until: float
) -> tuple[Mapping[str, object], int]:
    """(memo, fewest replicas) of looks every ten seconds at eight pods of such times."""
    replicas, at = 8, since
    while at <= until:
        pool = ready_pool(8, telemetry=make_telemetry(times=times))
        decision = ask(make_demand(EIGHT_NEED, at=at), pool, memo=memo, at=at)
        memo, replicas = decision.memo, min(replicas, of_pool(decision).replicas)
        at += 10.0
    return memo, replicas


def test_pods_that_look_faster_for_a_moment_are_kept() -> None:
    memo = watched(make_demand(EIGHT_NEED), ready_pool(8))
    _, replicas = looked_at(memo, FAST, since=1000.0, until=1000.0 + WINDOW / 2)
    assert replicas == 8


def test_pods_that_stay_faster_are_saved_after_two_windows_at_most() -> None:
    memo = watched(make_demand(EIGHT_NEED), ready_pool(8))
    _, replicas = looked_at(memo, FAST, since=1000.0, until=1000.0 + 2 * WINDOW + 10.0)
    assert replicas < 8


def test_pods_that_become_slower_count_as_slow_at_once() -> None:
    memo = watched(make_demand(EIGHT_NEED), ready_pool(8, telemetry=make_telemetry(times=FAST)))
    _, replicas = looked_at(memo, TIMES, since=1000.0, until=1000.0)
    assert replicas == 8
    slow = make_telemetry(times=(TIMES[0] * 1.5, TIMES[1] * 1.5))
    decision = ask(make_demand(EIGHT_NEED), ready_pool(8, telemetry=slow), memo=memo)
    assert of_pool(decision).replicas > 8


def test_a_burst_that_the_pods_could_take_keeps_as_many_as_it_would_have_asked_for() -> None:
    """Else the next burst like it grows what was saved after this one."""
    quiet = 0.5 * POD
    memo = watched(make_demand(quiet), ready_pool(12))
    burst = 9.0 * POD / (1.0 + SPEC.headroom)
    memo = ask(make_demand(quiet, burst, at=1000.0), ready_pool(12), memo=memo, at=1000.0).memo
    memo = ask(make_demand(quiet, at=1050.0), ready_pool(12), memo=memo, at=1050.0).memo
    decision = ask(make_demand(quiet, at=1100.0), ready_pool(12), memo=memo, at=1100.0)
    [mix] = [step for step in decision.steps if step.stage == "Mix"]
    assert f"{9.0 * POD * (1 + SPEC.tolerance / 2):.3g} rows/s" in mix.reason
    assert of_pool(decision).wanted == math.ceil(9.0 * (1 + SPEC.tolerance / 2))


def test_a_need_older_than_the_window_keeps_nothing() -> None:
    spec = replace(SPEC, burst_memory_seconds=0.0)
    memo = watched(make_demand(9.0 * POD / 1.2), ready_pool(12), spec=spec)
    late = 1000.0 + WINDOW + 60.0
    at, replicas = 1000.0, 12
    while at <= late:
        decision = ask(make_demand(POD / 1.2, at=at), ready_pool(12), spec=spec, memo=memo, at=at)
        memo, replicas, at = decision.memo, of_pool(decision).replicas, at + 10.0
    assert replicas < 12


@pytest.mark.parametrize(
    "rates", [[], {"cpu": [1.0, 2.0]}, {"cpu": [0.0, "x", 1.0]}, {f"p{i}": [0, 0, 0] for i in range(99)}]
)  # fmt: skip
def test_damaged_rates_of_pods_are_dropped_with_the_rest(rates: object) -> None:
    content = {**ask(make_demand(1.0), ready_pool(1)).memo, "lowest_rates": rates}
    memo, afresh = load_memo(content)
    assert afresh
    assert memo.lowest_rates == {}


def test_memory_of_a_release_that_kept_no_rates_is_understood() -> None:
    content = dict(ask(make_demand(1.0), ready_pool(1)).memo)
    del content["lowest_rates"]
    memo, afresh = load_memo(content)
    assert not afresh
    assert memo.lowest_rates == {}
