"""The order of a pod's writes, and the answer to each way in which a resize can hang."""

from dataclasses import replace
from itertools import pairwise

import pytest

from slimscale.act.plan import plan
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import (
    ConflictKind,
    ContainerResources,
    LimitRangeBounds,
    NodeRoom,
    OtherOwner,
    QosClass,
    ResizeCondition,
    ResizeState,
)
from slimscale.domain.plan import PodState, ResizePod, SetThreads
from tests.support.decisions import FollowedPod, make_decision, pod_with
from tests.support.observations import make_node, make_observation, make_spec

SMALLER = PodTarget(2, 500, 1000)
LARGER = PodTarget(8, 2000, 4000)
ROOMY = {"nodes": {"node-0": make_node(cores=16.0)}}


def _followed(**changes: object) -> FollowedPod:
    pod = changes.pop("pod", None) or pod_with()
    spec = changes.pop("spec", None) or make_spec()
    return FollowedPod(pod, spec, changes=dict(ROOMY), **changes)  # type: ignore[arg-type]


def _kinds(writes: list[object]) -> list[str]:
    return [type(write).__name__ for write in writes]


def _state(pod: FollowedPod) -> PodState:
    return pod.last.progress[0].state


def test_cpu_is_lowered_only_after_the_pod_has_acknowledged_fewer_threads() -> None:
    pod = _followed(program=False)
    pod.run(SMALLER, 4)
    assert _kinds(pod.writes) == ["SetThreads"]
    assert _state(pod) is PodState.AWAITING_ACKNOWLEDGEMENT
    pod.program = True
    pod.run(SMALLER, 3)
    assert _kinds(pod.writes) == ["SetThreads", "ResizePod"]
    assert _state(pod) is PodState.UP_TO_DATE


def test_threads_are_raised_only_after_the_kubelet_has_applied_the_larger_cpu() -> None:
    pod = _followed(kubelet=False, state=ResizeState.IN_PROGRESS)
    pod.run(LARGER, 4)
    assert _kinds(pod.writes) == ["ResizePod"]
    pod.kubelet = True
    pod.run(LARGER, 3)
    assert _kinds(pod.writes) == ["ResizePod", "SetThreads"]
    assert _state(pod) is PodState.UP_TO_DATE


def test_a_pod_that_never_acknowledges_is_reported_and_keeps_its_cpu() -> None:
    pod = _followed(program=False)
    pod.run(SMALLER, 30, seconds=10.0)
    assert _state(pod) is PodState.NOT_ACKNOWLEDGED
    assert _kinds(pod.writes) == ["SetThreads"]


def test_only_an_acknowledged_count_counts_not_the_annotation() -> None:
    pod = pod_with(threads=4, desired_threads=2)
    made = plan(
        observation=make_observation((pod,), 1000.0),
        decision=make_decision(SMALLER),
        spec=make_spec(),
        memo={},
        now_seconds=1000.0,
    )
    assert made.operations == ()
    assert made.progress[0].state is PodState.AWAITING_ACKNOWLEDGEMENT


def test_nothing_is_written_and_nothing_remembered_anew_once_all_stands_as_decided() -> None:
    pod = _followed()
    pod.run(SMALLER, 4)
    written = len(pod.writes)
    for _ in range(24):
        made = pod.step(SMALLER)
        assert made.operations == ()
        assert made.memo is None
    assert len(pod.writes) == written


def test_an_infeasible_resize_is_reverted_at_once_and_not_asked_for_again() -> None:
    pod = _followed(kubelet=False, state=ResizeState.INFEASIBLE, state_message="Node has no room")
    pod.run(LARGER, 2)
    revert = pod.writes[-1]
    assert isinstance(revert, ResizePod)
    assert revert.reverts
    assert revert.cpu_limit_millicores == 2000
    assert "Node has no room" in pod.last.progress[0].message
    pod.run(LARGER, 200, seconds=60.0)
    assert _kinds(pod.writes) == ["ResizePod", "ResizePod"], "it alternates"
    assert _state(pod) is PodState.RESIZE_INFEASIBLE


def test_a_refused_size_is_asked_for_again_when_the_node_has_gained_room() -> None:
    pod = _followed(kubelet=False, state=ResizeState.INFEASIBLE)
    pod.run(LARGER, 3)
    pod.kubelet = True
    pod.changes = {"nodes": {"node-0": make_node(cores=32.0)}}
    pod.run(LARGER, 2)
    assert len(pod.writes) == 2, "asked again before the pause was over"
    pod.run(LARGER, 30)
    assert _state(pod) is PodState.UP_TO_DATE


def test_a_refused_size_does_not_hold_back_another_target() -> None:
    pod = _followed(kubelet=False, state=ResizeState.INFEASIBLE)
    pod.run(LARGER, 3)
    pod.kubelet = True
    pod.run(PodTarget(6, 1500, 3000), 4)
    assert _state(pod) is PodState.UP_TO_DATE
    assert pod.pod.acknowledged_threads == 6


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (ResizeState.DEFERRED, PodState.RESIZE_DEFERRED),
        (ResizeState.ERROR, PodState.RESIZE_ERROR),
        (ResizeState.IN_PROGRESS, PodState.RESIZE_IN_PROGRESS),
        (ResizeState.NONE, PodState.RESIZE_IN_PROGRESS),
    ],
)
def test_a_resize_that_waits_is_shown_and_reverted_at_its_deadline(
    state: ResizeState, shown: PodState
) -> None:
    pod = _followed(kubelet=False, state=state)
    pod.run(LARGER, 23)  # 110 s after the ask
    assert _kinds(pod.writes) == ["ResizePod"]
    assert _state(pod) is shown
    assert pod.last.wake_after_seconds is not None
    pod.run(LARGER, 3)
    assert _kinds(pod.writes) == ["ResizePod", "ResizePod"]
    assert pod.pod.spec_resources == pod.pod.applied_resources
    assert pod.pod.acknowledged_threads == 4, "threads were raised without their CPU"


def test_a_moving_target_does_not_put_off_the_deadline_of_a_deferred_resize() -> None:
    pod = _followed(kubelet=False, state=ResizeState.DEFERRED)
    for step in range(30):
        pod.step(PodTarget(8, 2000 + 10 * step, 4000 + 10 * step))
        if any(isinstance(write, ResizePod) and write.reverts for write in pod.writes):
            break
    assert pod.now_seconds - 1000.0 <= 135.0


def test_an_error_of_the_kubelet_is_tried_again_after_growing_pauses() -> None:
    pod = _followed(kubelet=False, state=ResizeState.ERROR)
    asks: list[float] = []
    for _ in range(400):
        before = len(pod.writes)
        at = pod.now_seconds
        pod.step(LARGER)
        asks += [at for w in pod.writes[before:] if isinstance(w, ResizePod) and not w.reverts]
    gaps = [b - a for a, b in pairwise(asks)]
    assert len(asks) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 1.5 * gaps[0]


def test_during_a_hold_nothing_moves_but_a_waiting_ask_is_still_taken_back() -> None:
    pod = _followed(kubelet=False, state=ResizeState.DEFERRED)
    pod.step(LARGER)
    for _ in range(40):
        pod.step(LARGER, may_write=False)
    assert _kinds(pod.writes) == ["ResizePod", "ResizePod"]
    last = pod.writes[-1]
    assert isinstance(last, ResizePod)
    assert last.reverts


def test_a_hold_leaves_pods_that_wait_for_nothing_alone() -> None:
    pod = _followed()
    for _ in range(10):
        pod.step(LARGER, may_write=False)
    assert pod.writes == []


@pytest.mark.parametrize("reason", ["Refused", "NotPermitted"])
def test_a_refusal_of_the_api_server_becomes_a_state_not_a_retry_loop(reason: str) -> None:
    pod = _followed(refuse=reason)
    pod.run(LARGER, 24)
    assert len(pod.writes) == 1
    assert _state(pod) is PodState.RESIZE_REFUSED
    assert "words" in pod.last.progress[0].message


def test_a_write_that_met_a_conflict_is_simply_made_again() -> None:
    pod = _followed(refuse="Conflict")
    pod.run(LARGER, 3)
    pod.refuse = ""
    pod.run(LARGER, 4)
    assert _state(pod) is PodState.UP_TO_DATE
    assert pod.last.reason == ""


# B3: what may be asked of which QoS class


def test_a_guaranteed_pod_gets_request_and_limit_together() -> None:
    pod = _followed(pod=pod_with(request=2000, limit=2000, qos_class=QosClass.GUARANTEED))
    pod.step(PodTarget(4, 1500, 3000))
    assert [(w.cpu_request_millicores, w.cpu_limit_millicores) for w in _resizes(pod)] == [
        (3000, 3000)
    ]


@pytest.mark.parametrize("target", [PodTarget(4, 3000, 3000), PodTarget(2, 500, 500)])
def test_a_burstable_pod_never_lands_on_full_equality(target: PodTarget) -> None:
    memory_equal = ContainerResources(1000, 2000, 2**28, 2**28)
    pod = _followed(
        pod=pod_with(
            threads=target.threads,
            spec_resources=memory_equal,
            applied_resources=memory_equal,
            other_containers_guaranteed=True,
        )
    )
    pod.step(target)
    asked = pod.pod.spec_resources
    assert asked.cpu_request_millicores != asked.cpu_limit_millicores
    assert abs((asked.cpu_limit_millicores or 0) - (target.cpu_limit_millicores or 0)) <= 1


def test_a_best_effort_pod_is_never_resized_but_its_threads_follow() -> None:
    nothing = ContainerResources()
    pod = _followed(
        pod=pod_with(
            spec_resources=nothing, applied_resources=nothing, qos_class=QosClass.BEST_EFFORT
        )
    )
    pod.run(LARGER, 3)
    assert _kinds(pod.writes) == ["SetThreads"]
    assert _state(pod) is PodState.RESIZE_UNSUPPORTED


def test_limits_only_leaves_the_request() -> None:
    pod = _followed(spec=make_spec(cpu={"controlledValues": "LimitsOnly"}))
    pod.step(LARGER)
    assert [(w.cpu_request_millicores, w.cpu_limit_millicores) for w in _resizes(pod)] == [
        (None, 4000)
    ]


def test_under_keep_no_cpu_is_ever_sent_and_no_limit_added() -> None:
    pod = _followed(pod=pod_with(limit=None), spec=make_spec(cpu={"limitPolicy": "Keep"}))
    pod.run(LARGER, 3)
    assert _kinds(pod.writes) == ["SetThreads"]


def test_a_resize_never_carries_memory_or_another_container() -> None:
    pod = _followed()
    pod.run(LARGER, 3)
    assert {w.container for w in _resizes(pod)} == {"sim"}


# B2, B4, B9: what is known beforehand is not asked


def test_more_than_the_node_has_free_is_not_asked_for() -> None:
    pod = _followed()
    pod.changes = {"nodes": {"node-0": NodeRoom("node-0", 4000, 3500)}}
    pod.run(LARGER, 5)
    assert pod.writes == []
    assert _state(pod) is PodState.RESIZE_INFEASIBLE
    assert "500m" in pod.last.progress[0].message


def test_two_pods_of_a_node_are_not_promised_the_same_room() -> None:
    pods = (pod_with(index=0), pod_with(index=1))
    made = plan(
        observation=make_observation(
            pods, 1000.0, nodes={"node-0": NodeRoom("node-0", 4000, 2500)}
        ),
        decision=make_decision(LARGER),
        spec=make_spec(),
        memo={},
        now_seconds=1000.0,
    )
    assert [op.pod for op in made.operations if isinstance(op, ResizePod)] == ["sim-0"]
    assert made.progress[1].state is PodState.RESIZE_INFEASIBLE


def test_more_than_the_quota_has_left_is_not_asked_for() -> None:
    pod = _followed()
    pod.changes |= {"quota_free_limit_millicores": 1000}
    pod.run(LARGER, 3)
    assert pod.writes == []
    assert _state(pod) is PodState.RESIZE_REFUSED
    assert "limits.cpu" in pod.last.progress[0].message


def test_a_limit_range_is_kept() -> None:
    pod = _followed()
    pod.changes |= {"limit_range": LimitRangeBounds(max_cpu_millicores=3000)}
    pod.run(LARGER, 4)
    assert pod.pod.applied_resources is not None
    assert pod.pod.applied_resources.cpu_limit_millicores == 3000
    assert len(_resizes(pod)) == 1


def test_the_ratio_of_a_limit_range_is_kept() -> None:
    pod = _followed()
    pod.changes |= {"limit_range": LimitRangeBounds(max_limit_request_ratio=2.0)}
    pod.step(PodTarget(4, 1000, 4000))
    assert [(w.cpu_request_millicores, w.cpu_limit_millicores) for w in _resizes(pod)] == [
        (2000, 4000)
    ]


def test_guaranteed_pods_under_the_static_cpu_manager_are_not_resized() -> None:
    pod = _followed(pod=pod_with(request=2000, limit=2000, qos_class=QosClass.GUARANTEED))
    pod.changes = {"nodes": {"node-0": NodeRoom("node-0", 16000, 2000, static_cpu_manager=True)}}
    pod.run(PodTarget(4, 4000, 4000), 3)
    assert pod.writes == []
    assert _state(pod) is PodState.RESIZE_UNSUPPORTED


def test_static_cpu_manager_heard_from_the_kubelet_is_not_asked_again_when_room_grows() -> None:
    pod = _followed(
        kubelet=False,
        state=ResizeState.INFEASIBLE,
        state_message="Resize is infeasible for Guaranteed Pods alongside CPU Manager policy static",
    )
    pod.run(LARGER, 3)
    pod.changes = {"nodes": {"node-0": make_node(cores=64.0)}}
    pod.run(LARGER, 100, seconds=60.0)
    assert len(pod.writes) == 2


def test_in_place_never_restarts_a_container() -> None:
    pod = _followed(pod=pod_with(resize_restarts_container=True))
    pod.run(LARGER, 5)
    assert pod.writes == []
    assert _state(pod) is PodState.RESIZE_UNSUPPORTED


# B5: threads that cannot follow are not reported as applied


def test_a_pod_without_the_live_channel_is_left_and_named() -> None:
    pod = _followed(pod=pod_with(has_live_channel=False))
    for target in (SMALLER, LARGER):
        pod.run(target, 3)
        assert _state(pod) is PodState.NO_LIVE_CHANNEL
    assert pod.writes == []


def test_cpu_of_a_pod_without_the_channel_follows_when_its_threads_are_right() -> None:
    pod = _followed(pod=pod_with(threads=8, has_live_channel=False))
    pod.run(LARGER, 2)
    assert _kinds(pod.writes) == ["ResizePod"]
    assert _state(pod) is PodState.UP_TO_DATE


# Modes and owners


@pytest.mark.parametrize(
    "fields",
    [
        {"updatePolicy": {"mode": "Off"}},
        {"updatePolicy": {"mode": "Initial"}},
        {"suspend": True},
    ],
)
def test_running_pods_are_not_touched_when_the_user_did_not_ask(fields: dict[str, object]) -> None:
    pod = _followed(spec=make_spec(**fields))
    pod.run(LARGER, 3)
    assert pod.writes == []
    assert _state(pod) is PodState.NOT_APPLIED


def test_with_another_owner_of_the_pods_nothing_is_written() -> None:
    pod = _followed()
    pod.changes |= {"other_owners": (OtherOwner(ConflictKind.HPA_ON_CPU, "hpa"),)}
    for _ in range(3):
        pod.step(LARGER, may_write=False)
    assert pod.writes == []


def test_a_manager_that_keeps_changing_values_back_is_left_to_win_after_three_rounds() -> None:
    pod = _followed()
    original = ContainerResources(1000, 2000, 2**28, 2**29)
    for _ in range(40):
        pod.step(LARGER)
        pod.pod = replace(pod.pod, spec_resources=original, applied_resources=original)
    assert pod.last.reason == "OtherManagerReverts"
    assert len(_resizes(pod)) == 3
    assert pod.last.operations == ()


def test_the_user_starts_a_new_try_by_changing_the_simworkload() -> None:
    pod = _followed()
    original = ContainerResources(1000, 2000, 2**28, 2**29)
    for _ in range(10):
        pod.step(LARGER)
        pod.pod = replace(pod.pod, spec_resources=original, applied_resources=original)
    pod.changes |= {"generation": 2}
    pod.run(LARGER, 4)
    assert pod.last.reason == ""
    assert _state(pod) is PodState.UP_TO_DATE


def test_someone_who_rewrites_the_annotation_is_noticed_too() -> None:
    pod = _followed(program=False)
    for _ in range(40):
        pod.step(SMALLER)
        pod.pod = replace(pod.pod, desired_threads=16)
    assert pod.last.reason == "OtherManagerReverts"
    assert len(pod.writes) == 3


def test_pods_that_end_or_have_not_started_get_no_writes() -> None:
    pods = (
        pod_with(index=0, terminating=True),
        pod_with(index=1, phase="Pending", threads=None),
    )
    made = plan(
        observation=make_observation(pods, 1000.0),
        decision=make_decision(LARGER),
        spec=make_spec(),
        memo={},
        now_seconds=1000.0,
    )
    assert made.operations == ()
    assert [(p.pod, p.state) for p in made.progress] == [("sim-1", PodState.STARTING)]


@pytest.mark.parametrize("memo", [{"version": 9}, {"version": 1, "pods": [3]}, {"pods": "x"}])
def test_a_damaged_memo_costs_a_deadline_not_the_reconcile(memo: dict[str, object]) -> None:
    made = plan(
        observation=make_observation((pod_with(),), 1000.0, **ROOMY),
        decision=make_decision(SMALLER),
        spec=make_spec(),
        memo=memo,
        now_seconds=1000.0,
    )
    assert made.operations == (SetThreads("sim-0", "uid-0", 2, "Target"),)


def test_what_is_remembered_of_pods_that_are_gone_is_dropped() -> None:
    pod = _followed(kubelet=False, state=ResizeState.DEFERRED)
    pod.step(LARGER)
    assert "uid-0" in str(pod.memo)
    pod.pod = pod_with(index=1)
    pod.step(LARGER)
    assert "uid-0" not in str(pod.memo)


def _resizes(pod: FollowedPod) -> list[ResizePod]:
    return [write for write in pod.writes if isinstance(write, ResizePod)]


def test_a_limit_that_was_added_and_cannot_be_removed_is_shown_without_endless_patches() -> None:
    """Kubernetes refuses to remove a value, so there is nothing that could be sent."""
    pod = _followed(
        pod=pod_with(
            spec_resources=ContainerResources(1000, 4000, 2**28, 2**29),
            applied_resources=ContainerResources(1000, None, 2**28, 2**29),
            resize=ResizeCondition(ResizeState.INFEASIBLE, "no room", 990.0),
        ),
        kubelet=False,
        state=ResizeState.INFEASIBLE,
    )
    pod.run(PodTarget(4, 1000, 4000), 5)
    assert pod.writes == []
    assert _state(pod) is PodState.RESIZE_INFEASIBLE
