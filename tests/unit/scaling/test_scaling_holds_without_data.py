"""Missing, stale and odd figures never shrink anything; what is left of them may still grow."""

import json
import math
from dataclasses import replace

import pytest

from slimscale.domain.decision import Action
from slimscale.domain.observation import Freshness
from slimscale.domain.scaling import DemandObservation
from tests.support.scaling_cases import (
    SPEC,
    Cluster,
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


def test_a_long_quiet_time_shrinks_a_pool_when_all_figures_are_there() -> None:
    decision = ask(QUIET, ready_pool(8), memo=watched(QUIET, ready_pool(8)))
    assert decision.action is Action.SCALE_DOWN
    assert of_pool(decision).replicas < 8


@pytest.mark.parametrize(
    "demand",
    [
        None,
        replace(QUIET, freshness=Freshness.STALE),
        replace(QUIET, freshness=Freshness.MISSING),
        replace(QUIET, freshness=Freshness.INVALID),
        replace(QUIET, sampled_at_seconds=900.0),
        replace(QUIET, sampled_at_seconds=1100.0),
        make_demand(None),
        make_demand(1.0, math.nan),
        make_demand(math.nan, 1.0),
        make_demand(math.inf, math.inf),
        make_demand(-9223372036854776.0),
        make_demand(1.0, routers=2, answering=1),
        make_demand(0.0, routers=1, answering=0),
    ],
    ids=lambda demand: "none" if demand is None else "",
)
def test_without_whole_figures_nothing_shrinks(demand: DemandObservation | None) -> None:
    decision = ask(demand, ready_pool(8), memo=watched(QUIET, ready_pool(8)))
    assert decision.replicas() == {"cpu": 8}
    assert not decision.metrics_available
    assert decision.action is Action.HOLD


def test_odd_figures_reach_neither_the_decision_nor_the_memory() -> None:
    for odd in (math.nan, math.inf, -math.inf, 1e400):
        for demand in (make_demand(odd), make_demand(5.0, odd), make_demand(odd, 5.0)):
            decision = ask(demand, ready_pool(3))
            json.dumps(decision.memo, allow_nan=False)
            need = decision.demand_rows_per_second
            assert need is None or math.isfinite(need)
            assert decision.replicas() == {"cpu": 3}


def test_half_the_routers_are_enough_to_grow_by() -> None:
    decision = ask(make_demand(200.0, routers=2, answering=1), ready_pool(2))
    assert of_pool(decision).replicas > 2
    assert not decision.metrics_available


def test_rows_that_wait_in_pods_make_a_pool_grow_while_no_router_answers() -> None:
    waiting = make_telemetry(queued=2000, backlog=60.0)
    decision = ask(None, ready_pool(2, telemetry=waiting))
    assert of_pool(decision).replicas > 2


def test_pods_that_mostly_say_nothing_keep_their_number() -> None:
    silent = ready_pool(8, silent=True)
    memo = watched(QUIET, ready_pool(8))
    assert ask(QUIET, silent, memo=memo).replicas() == {"cpu": 8}
    stale = ready_pool(8, age=300.0)
    assert ask(QUIET, stale, memo=memo).replicas() == {"cpu": 8}


def test_one_silent_pod_of_many_holds_nothing_up() -> None:
    pods = [make_pod(f"cpu-{i}", silent=i == 0) for i in range(8)]
    decision = ask(QUIET, make_pool("cpu", *pods), memo=watched(QUIET, ready_pool(8)))
    assert of_pool(decision).replicas < 8


def test_a_restart_without_memory_changes_no_replicas_in_a_peak() -> None:
    cluster = Cluster(SPEC)
    cluster.run(lambda now: make_demand(200.0, at=now), 600.0)
    peak = cluster.total
    assert peak > 8
    cluster.memo = {}
    cluster.run(lambda now: make_demand(200.0, at=now), 1200.0)
    assert cluster.total == peak
    # Nor in the lull right after it: what was needed before is not known any more.
    cluster.memo = {}
    cluster.run(lambda now: make_demand(2.0, at=now), cluster.now + 170.0)
    assert cluster.total == peak


def test_memory_after_a_long_gap_is_not_trusted_with_savings() -> None:
    memo = watched(QUIET, ready_pool(8), until=995.0)
    late = replace(QUIET, sampled_at_seconds=3000.0)
    assert ask(late, ready_pool(8), memo=memo, at=3000.0).replicas() == {"cpu": 8}


def test_a_single_failed_look_does_not_start_the_wait_anew() -> None:
    memo = watched(QUIET, ready_pool(8), until=990.0)
    memo = ask(None, ready_pool(8), memo=memo, at=995.0).memo
    assert of_pool(ask(QUIET, ready_pool(8), memo=memo)).replicas < 8


@pytest.mark.parametrize(
    "damaged",
    [
        {"version": 0},
        {"version": 1},
        {"version": 1, "needs": [[1, math.nan]], "blocked_until": {}, "service_times": {}},
        {"version": 1, "needs": "all", "blocked_until": {}, "service_times": {}},
    ],
)
def test_damaged_memory_begins_afresh_and_says_so(damaged: dict[str, object]) -> None:
    decision = ask(make_demand(50.0), ready_pool(2), memo=damaged)
    assert ("Memo", "Fresh") in outcomes(decision)
    assert of_pool(decision).replicas > 2


def test_memory_survives_its_own_json_and_stays_small() -> None:
    cluster = Cluster(SPEC)
    cluster.run(lambda now: make_demand(100.0 + now % 50, at=now), 900.0)
    text = json.dumps(cluster.memo, allow_nan=False)
    assert len(text) < 4096
    seen = make_demand(100.0, at=cluster.now)
    same = ask(seen, ready_pool(3), memo=json.loads(text), at=cluster.now)
    assert same == ask(seen, ready_pool(3), memo=cluster.memo, at=cluster.now)
