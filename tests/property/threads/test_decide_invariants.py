"""Whatever the pods report, a decision stays within its bounds and can be written to JSON."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.api.quantity import parse_millicores
from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import ContainerResources, Freshness, QosClass
from slimscale.threads.bounds import Standing
from slimscale.threads.decide import decide
from slimscale.threads.objective import request_for
from slimscale.threads.predictor import floor_of_quota
from tests.support.observations import (
    make_node,
    make_observation,
    make_pod,
    make_sample,
    make_spec,
)

NUMBERS = st.one_of(
    st.floats(min_value=0, max_value=1e9),
    st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 1e300]),
)


@st.composite
def samples(draw: st.DrawFn) -> tuple[ContractSample, ...]:
    """Two to four samples, sane or spoilt in one field."""
    rate = draw(st.floats(min_value=0.0, max_value=1e5))
    threads = draw(st.integers(min_value=1, max_value=256))
    made = [
        make_sample(
            1000.0 + 5 * i,
            tasks=rate * 5 * i,
            threads=threads,
            task_seconds=draw(st.floats(min_value=1e-7, max_value=100.0)),
            cpu_seconds=draw(st.floats(min_value=0.0, max_value=100.0)),
            dispatch_seconds=draw(st.floats(min_value=1e-8, max_value=1.0)),
            outstanding=draw(st.sampled_from([0.0, 1.0, 1000.0])),
            quota=draw(st.sampled_from([None, 0.1, 0.5, 2.0])),
        )
        for i in range(draw(st.integers(min_value=2, max_value=4)))
    ]
    field = draw(
        st.sampled_from(
            ["", "tasks_total", "task_cpu_seconds_total", "cpu_usage_seconds_total",
             "task_runqueue_seconds_total", "cpu_throttled_seconds_total"]
        )
    )  # fmt: skip
    if field:
        made[-1] = replace(made[-1], **{field: draw(st.one_of(st.none(), NUMBERS))})  # type: ignore[arg-type]
    return tuple(made)


@settings(max_examples=40, deadline=None)
@given(
    samples(),
    st.integers(min_value=1, max_value=8),
    st.integers(min_value=0, max_value=64),
    st.sampled_from(["EqualThreads", "Headroom", "Keep"]),
    st.sampled_from(["MaxThroughput", "Efficiency"]),
)
def test_targets_stay_in_bounds_and_memory_stays_json(
    observed: tuple[ContractSample, ...], least: int, more: int, policy: str, objective: str
) -> None:
    spec = make_spec(
        threads={"min": least, "max": least + more},
        cpu={"limitPolicy": policy, "min": "200m", "max": "3"},
        objective={"type": objective},
    )
    pod = make_pod(samples=observed, freshness=Freshness.FRESH)
    now = observed[-1].sampled_at_seconds
    observation = make_observation((pod,), now, nodes={"node-0": make_node(cores=8)})
    decision = decide(observation=observation, spec=spec, memo={}, now_seconds=now)
    json.dumps(decision.memo, allow_nan=False)
    for target in (decision.target, decision.lower, decision.upper):
        if target is None:
            continue
        assert spec.threads.min <= target.threads <= spec.threads.max
        if target.cpu_limit_millicores is not None:
            assert parse_millicores("200m") <= target.cpu_limit_millicores <= 3000
            assert policy != "Keep"
        if target.cpu_request_millicores is not None:
            assert target.cpu_limit_millicores is not None
            assert 1 <= target.cpu_request_millicores <= target.cpu_limit_millicores
    again = decide(observation=observation, spec=spec, memo=decision.memo, now_seconds=now)
    assert again.memo["version"] == 1


@given(st.floats(min_value=0.001, max_value=1024))
def test_floor_of_quota_is_at_least_one_and_never_above_the_quota(quota: float) -> None:
    threads = floor_of_quota(quota)
    assert threads >= 1
    assert threads <= max(1.0, quota + 1e-6)


@given(
    st.integers(min_value=1, max_value=64000),
    st.integers(min_value=1, max_value=64000),
    st.integers(min_value=1, max_value=64000),
)
def test_a_burstable_request_never_meets_its_limit_where_that_would_change_the_class(
    request: int, limit: int, wanted: int
) -> None:
    standing = Standing(
        ContainerResources(min(request, limit), limit, 1, 1), QosClass.BURSTABLE, True, 64.0
    )
    got = request_for(max(wanted, 2), make_spec(), standing)
    assert got is not None
    assert 1 <= got < max(wanted, 2)
