"""A workload of hundreds of pods: deadlines are kept for each, and the memory still fits."""

import json
from dataclasses import replace

from slimscale.act.memo_store import MAX_BYTES
from slimscale.act.plan import plan
from slimscale.act.plan_memo import CpuAsk, PlanMemo, PodEntry, Refusal, load_plan_memo
from slimscale.domain.decision import PodTarget
from slimscale.domain.plan import PodState
from tests.support.decisions import make_decision, pod_with
from tests.support.observations import make_node, make_observation, make_spec

PODS = 300


def test_a_pod_that_never_acknowledges_is_told_so_whatever_its_place_in_the_list() -> None:
    pods = tuple(replace(pod_with(threads=4, index=i), desired_threads=8) for i in range(PODS))
    memo: dict[str, object] = {}
    states: set[PodState] = set()
    for at in (1000.0, 1030.0, 2000.0):
        made = plan(
            observation=make_observation(
                pods, at, nodes={"node-0": make_node(cores=4000.0, requested=300.0)}
            ),
            decision=make_decision(PodTarget(8)),
            spec=make_spec(),
            memo=memo,
            now_seconds=at,
        )
        memo = made.memo if made.memo is not None else memo
        states = {progress.state for progress in made.progress}
    assert states == {PodState.NOT_ACKNOWLEDGED}


def test_the_memory_of_the_most_pods_fits_although_each_was_refused() -> None:
    refusal = Refusal(
        CpuAsk(13000, 14000), 1.7e9 + 0.123456, "ResizeInfeasible", "x" * 300, 5000, 3
    )
    entry = PodEntry(14, 1.7e9 + 0.123456, CpuAsk(11000, 12000), 1.7e9 + 0.123456, refusal)
    memo = PlanMemo({f"{i:036d}": entry for i in range(1000)})
    text = json.dumps(memo.to_json(), separators=(",", ":"))
    assert len(text) < 0.95 * MAX_BYTES
    assert len(load_plan_memo(json.loads(text)).pods) >= PODS


def test_of_too_many_pods_those_with_something_pending_are_remembered() -> None:
    quiet = {f"quiet-{i}": PodEntry(threads_asked=4) for i in range(1000)}
    late = PodEntry(cpu_asked=CpuAsk(1000, 2000), pending_since_seconds=1000.0)
    assert "late" in load_plan_memo(PlanMemo({**quiet, "late": late}).to_json()).pods
