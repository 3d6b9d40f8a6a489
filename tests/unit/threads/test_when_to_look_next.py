"""Quick looks while something is being found out, at leisure otherwise, and never for ever."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.threads.looks import MOST_QUICK_SECONDS, next_look
from slimscale.threads.memo import Memo, Pending, Regime

NOW = 1_800_000_000.0
HELD = Memo(target=PodTarget(8), changed_at_seconds=NOW - 600.0)


def _spec(dwell: int = 20, **metrics: Any) -> SimWorkloadSpec:
    return SimWorkloadSpec.model_validate(
        {
            "targetRef": {"name": "a"},
            "metrics": metrics,
            "tuning": {"minDwellSeconds": dwell, "windowSeconds": 60},
        }
    )


def _changed(seconds_ago: float) -> Memo:
    since = NOW - seconds_ago
    pending = Pending(PodTarget(8), PodTarget(12), since, 100.0, 140.0, 3.0)
    return Memo(target=PodTarget(12), changed_at_seconds=since, pending=pending)


def _seconds(memo: Memo, spec: SimWorkloadSpec | None = None, **more: Any) -> float:
    return next_look(memo, spec=spec or _spec(), now_seconds=NOW, **more).seconds


def test_a_settled_load_is_looked_at_with_each_sample() -> None:
    assert _seconds(HELD) == 5.0
    assert _seconds(HELD, _spec(intervalSeconds=20)) == 20.0


def test_a_change_of_ours_is_looked_at_quickly_until_it_is_judged() -> None:
    assert _seconds(_changed(4.0)) == 2.0
    assert _seconds(_changed(4.0), _spec(quickIntervalSeconds=1)) == 1.0


def test_a_change_of_load_is_looked_at_quickly_from_the_first_sample_that_deviates() -> None:
    deviating = Memo(target=PodTarget(8), deviating_since_seconds=NOW - 1.0)
    assert _seconds(deviating) == 2.0
    alarmed = Memo(target=PodTarget(8), repredict=True, regime=Regime(started_at_seconds=NOW - 2))
    assert _seconds(alarmed) == 2.0


def test_quick_looks_end_though_what_they_wait_for_never_comes() -> None:
    assert _seconds(_changed(MOST_QUICK_SECONDS + 1.0)) == 5.0
    stuck = Memo(target=PodTarget(8), repredict=True, regime=Regime(started_at_seconds=NOW - 99))
    assert _seconds(stuck) == 5.0


def test_without_waiting_work_a_change_of_ours_cannot_be_judged_any_sooner() -> None:
    assert _seconds(_changed(4.0), idle=True) == 5.0


@pytest.mark.parametrize(
    "metrics", [{"quickIntervalSeconds": 0}, {"source": "Prometheus"}, {"intervalSeconds": 1}]
)
def test_switched_off_or_of_no_use_nothing_is_looked_at_quickly(metrics: dict[str, Any]) -> None:
    spec = _spec(**metrics)
    assert _seconds(_changed(4.0), spec) == spec.metrics.interval_seconds


def test_the_end_of_a_dwell_is_not_missed_by_a_whole_interval() -> None:
    waiting = Memo(target=PodTarget(8), changed_at_seconds=NOW - 17.0)
    assert _seconds(waiting) == pytest.approx(3.0)
    assert _seconds(Memo(target=PodTarget(8), changed_at_seconds=NOW - 19.9)) == 2.0


@given(
    ago=st.floats(0, 1e4),
    interval=st.integers(1, 30),
    quick=st.integers(0, 30),
    dwell=st.integers(0, 60),
    deviating=st.booleans(),
)
def test_a_look_never_comes_sooner_than_the_quick_interval_nor_later_than_the_metrics(
    ago: float, interval: int, quick: int, dwell: int, deviating: bool
) -> None:
    spec = _spec(dwell, intervalSeconds=interval, quickIntervalSeconds=quick)
    memo = _changed(ago) if not deviating else Memo(deviating_since_seconds=NOW - ago)
    seconds = _seconds(memo, spec)
    assert min(quick or interval, interval) <= seconds <= interval
