"""Bursts that come back keep what they need; a single one, or a steady load, keeps nothing."""

from dataclasses import replace

import pytest

from slimscale.scaling.bursts import recurring_floor
from tests.support.scaling_cases import SPEC, Cluster, ask, make_demand, make_pod, make_pool


def floor(needs: list[float], *, hold: int = 3, allowed: float = 0.05) -> float:
    return recurring_floor(needs, lead=2, hold=hold, apart=6, allowed=allowed)


def test_a_burst_that_came_once_is_chance() -> None:
    assert floor([1.0] * 40 + [50.0] * 3 + [1.0] * 40) <= 1.0


def test_bursts_that_come_back_keep_what_they_need() -> None:
    period = [0.0] * 12 + [50.0, 60.0, 50.0]
    assert floor(period * 5) == pytest.approx(60.0, rel=0.01)


def test_a_steady_load_keeps_nothing_beyond_itself() -> None:
    assert floor([20.0, 21.0, 19.5, 20.5] * 30) <= 21.0


def test_pods_that_stay_long_enough_by_themselves_need_no_floor() -> None:
    period = [0.0] * 12 + [50.0] * 3
    assert floor(period * 6, hold=30, allowed=0.2) == 0.0


def test_bursts_within_what_the_percentile_allows_are_not_paid_for() -> None:
    needs = ([10.0] * 30 + [14.0]) * 4
    assert floor(needs, allowed=0.05) == 0.0
    assert floor(needs, allowed=0.01) > 10.0


def test_after_a_few_bursts_the_next_one_finds_its_pods() -> None:
    def bursty(now: float):  # type: ignore[no-untyped-def]
        return make_demand(100.0 if now % 400.0 < 40.0 else 0.5, at=now)

    cluster = Cluster(SPEC, start_seconds=20.0)
    cluster.run(bursty, 395.0)
    assert cluster.total <= 2, "one burst alone is let go"
    cluster.run(bursty, 1595.0)
    assert cluster.total >= 4
    forgetful = Cluster(replace(SPEC, burst_memory_seconds=0.0), start_seconds=20.0)
    forgetful.run(bursty, 1595.0)
    assert forgetful.total <= 2


def test_what_bursts_keep_is_given_up_when_they_stop() -> None:
    cluster = Cluster(SPEC, start_seconds=20.0)
    cluster.run(lambda now: make_demand(100.0 if now % 300.0 < 40.0 else 0.5, at=now), 1500.0)
    assert cluster.total >= 4
    cluster.run(lambda now: make_demand(0.5, at=now), 1500.0 + 1200.0 + 600.0)
    assert cluster.total == 1


def test_a_pod_that_was_unready_for_a_while_does_not_pass_for_a_slow_starter() -> None:
    started = [make_pod(f"cpu-{i}", created=0.0, ready_since=12.0) for i in range(2)]
    back_again = [make_pod(f"old-{i}", created=0.0, ready_since=9000.0) for i in range(3)]
    pool = make_pool("cpu", *started, *back_again)
    decision = ask(make_demand(5.0, at=9100.0), pool, at=9100.0)
    assert decision.memo["start_seconds"] == 12.0
