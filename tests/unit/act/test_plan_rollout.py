"""When the pod template is written, and when it is left."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from slimscale.act.outcome import fold_results
from slimscale.act.plan import plan
from slimscale.act.thread_env import thread_variables
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import (
    ContainerResources,
    PodObservation,
    ResizeCondition,
    ResizeState,
    TargetObservation,
)
from slimscale.domain.plan import ApplyResult, OperationResult, PatchTemplate, Plan
from tests.support.decisions import make_decision, pod_with
from tests.support.observations import make_node, make_observation, make_spec, make_target

TARGET = PodTarget(8, 2000, 4000)


@dataclass(slots=True)
class Workload:
    """A template that takes what is applied, and pods that do not follow by themselves."""

    spec: SimWorkloadSpec
    pods: tuple[PodObservation, ...] = ()
    template: TargetObservation = field(default_factory=make_target)
    memo: Mapping[str, object] = field(default_factory=dict)
    now_seconds: float = 1000.0
    refuse: str = ""
    patches: list[PatchTemplate] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)

    def step(self, target: PodTarget = TARGET, *, generation: int = 1) -> Plan:
        made = plan(
            observation=make_observation(
                self.pods, self.now_seconds, target=self.template, generation=generation,
                nodes={"node-0": make_node(cores=16.0)},
            ),
            decision=make_decision(target),
            spec=self.spec,
            memo=self.memo,
            now_seconds=self.now_seconds,
        )  # fmt: skip
        results = []
        for operation in made.operations:
            results.append(OperationResult(operation, not self.refuse, True, self.refuse, "words"))
            if isinstance(operation, PatchTemplate):
                self.patches.append(operation)
                if not self.refuse:
                    self._take(operation)
        made = fold_results(made, ApplyResult(tuple(results)), now_seconds=self.now_seconds)
        if made.memo is not None:
            self.memo = made.memo
        self.now_seconds += 5.0
        return made

    def _take(self, patch: PatchTemplate) -> None:
        """As server-side apply does: what is ours and left out is removed."""
        env = {k: v for k, v in self.template.template_env.items() if k not in self.ours}
        self.ours = {name for name, _ in patch.env}
        resources = replace(
            self.template.template_resources,
            cpu_request_millicores=patch.cpu_request_millicores,
            cpu_limit_millicores=patch.cpu_limit_millicores,
        )
        self.template = replace(
            self.template, template_env=env | dict(patch.env), template_resources=resources
        )


def _mode(mode: str, **fields: object) -> SimWorkloadSpec:
    return make_spec(updatePolicy={"mode": mode}, **fields)


def test_rollout_writes_the_template_once_and_no_pod() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),))
    first = workload.step()
    assert [type(op) for op in first.operations] == [PatchTemplate]
    assert dict(workload.patches[0].env)["OMP_NUM_THREADS"] == "8"
    assert workload.patches[0].cpu_limit_millicores == 4000
    for _ in range(5):
        assert workload.step().operations == ()


def test_a_new_target_waits_until_the_running_rollout_has_ended() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),))
    workload.step()
    workload.template = replace(workload.template, rollout_in_progress=True)
    made = workload.step(PodTarget(4, 1000, 2000))
    assert made.operations == ()
    assert made.reason == "RollingOut"
    workload.template = replace(workload.template, rollout_in_progress=False)
    workload.step(PodTarget(4, 1000, 2000))
    assert len(workload.patches) == 2


def test_a_failed_rollout_is_taken_back_once_and_not_tried_again() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),))
    before = workload.template
    workload.step()
    workload.template = replace(workload.template, rollout_failed=True)
    made = workload.step()
    assert made.reason == "RolloutFailed"
    assert workload.template.template_resources == before.template_resources
    assert dict(workload.template.template_env) == dict(before.template_env)
    workload.template = replace(workload.template, rollout_failed=False)
    for _ in range(10):
        assert workload.step().reason == "RolloutFailed"
    assert len(workload.patches) == 2
    workload.step(PodTarget(6, 1500, 3000))
    assert len(workload.patches) == 3, "a new target must get its chance"


def test_a_kind_without_a_progress_deadline_does_not_hang_for_ever() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),), make_target(kind="StatefulSet"))
    workload.step()
    workload.template = replace(workload.template, rollout_in_progress=True)
    workload.now_seconds += 1700.0
    assert workload.step().operations == ()
    workload.now_seconds += 200.0
    assert workload.step().reason == "RolloutFailed"
    assert workload.patches[-1].reason == "RollBack"


def test_a_large_statefulset_has_time_for_each_of_its_pods() -> None:
    template = make_target(kind="StatefulSet", desired_replicas=60)
    workload = Workload(_mode("Rollout"), (pod_with(),), template)
    workload.step()
    workload.template = replace(workload.template, rollout_in_progress=True)
    workload.now_seconds += 2 * 3600.0
    assert workload.step().reason == "RollingOut"
    workload.now_seconds += 9 * 3600.0
    assert workload.step().reason == "RolloutFailed"


def test_users_own_variables_are_left_out_of_the_patch() -> None:
    workload = Workload(
        _mode("Rollout"), (pod_with(),), make_target(template_env={"OMP_NUM_THREADS": "3"})
    )
    workload.step()
    names = {name for name, _ in workload.patches[0].env}
    assert "OMP_NUM_THREADS" not in names
    assert "MKL_NUM_THREADS" in names
    workload.step(PodTarget(4, 1000, 2000))
    assert workload.template.template_env["OMP_NUM_THREADS"] == "3"
    assert workload.template.template_env["MKL_NUM_THREADS"] == "4"


def test_users_variables_are_replaced_when_they_say_so() -> None:
    workload = Workload(
        _mode("Rollout", threads={"overrideUserEnv": True}),
        (pod_with(),),
        make_target(template_env={"OMP_NUM_THREADS": "3"}),
    )
    workload.step()
    assert workload.template.template_env["OMP_NUM_THREADS"] == "8"


def test_variables_of_an_earlier_rollout_follow_even_when_the_memory_is_lost() -> None:
    env = thread_variables(4)
    workload = Workload(_mode("Rollout"), (pod_with(),), make_target(template_env=env))
    workload.step()
    assert workload.template.template_env["OMP_NUM_THREADS"] == "8"


def test_under_keep_a_limit_that_we_once_set_is_not_removed() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),))
    workload.step()
    workload.spec = _mode("Rollout", cpu={"limitPolicy": "Keep"})
    workload.step(PodTarget(6))
    assert workload.template.template_resources.cpu_limit_millicores == 4000


def test_under_keep_no_limit_is_added() -> None:
    workload = Workload(
        _mode("Rollout", cpu={"limitPolicy": "Keep"}),
        (pod_with(limit=None),),
        make_target(template_resources=ContainerResources(1000, None)),
    )
    workload.step()
    assert workload.patches[0].cpu_limit_millicores is None


def test_a_replicaset_is_not_written_since_its_pods_would_not_follow() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),), make_target(kind="ReplicaSet"))
    made = workload.step()
    assert made.operations == ()
    assert made.reason == "ResizeUnsupported"


def test_a_template_that_is_refused_is_not_sent_again() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),), refuse="Refused")
    for _ in range(10):
        workload.step()
    made = workload.step()
    assert len(workload.patches) == 1
    assert (made.reason, made.message) == ("ResizeRefused", "words")


def test_gitops_that_puts_the_template_back_wins_after_three_rounds() -> None:
    workload = Workload(_mode("Rollout"), (pod_with(),))
    for _ in range(20):
        workload.step()
        workload.template = make_target()
        workload.ours = set()
    made = workload.step()
    assert made.reason == "OtherManagerReverts"
    assert len(workload.patches) == 3


# InPlaceOrRollout


def test_where_in_place_works_the_template_is_left() -> None:
    workload = Workload(_mode("InPlaceOrRollout"), (pod_with(),))
    made = workload.step()
    assert made.operations
    assert workload.patches == []


@pytest.mark.parametrize(
    "pod",
    [
        pod_with(has_live_channel=False),
        pod_with(resize_restarts_container=True),
    ],
    ids=["no channel", "restarts on resize"],
)
def test_what_in_place_cannot_do_is_rolled_out_once_a_target(pod: PodObservation) -> None:
    workload = Workload(_mode("InPlaceOrRollout"), (pod,))
    made = workload.step()
    assert [type(op) for op in made.operations] == [PatchTemplate]
    for _ in range(10):
        workload.step()
    workload.template = make_target()  # someone puts it back
    for _ in range(10):
        workload.step()
    assert len(workload.patches) == 1
    workload.step(PodTarget(6, 1500, 3000))
    assert len(workload.patches) == 2


def test_an_infeasible_resize_is_reverted_and_rolled_out_never_both_ways_again() -> None:
    asked = ContainerResources(2000, 4000, 2**28, 2**29)
    pod = pod_with(
        spec_resources=asked, resize=ResizeCondition(ResizeState.INFEASIBLE, "no room", 990.0)
    )
    workload = Workload(_mode("InPlaceOrRollout"), (pod,))
    made = workload.step()
    assert [type(op).__name__ for op in made.operations] == ["ResizePod", "PatchTemplate"]
    workload.pods = (pod_with(),)
    workload.template = replace(workload.template, rollout_in_progress=True)
    for _ in range(10):
        assert workload.step().operations == ()
    # the rollout's new pod stands as decided
    workload.template = replace(workload.template, rollout_in_progress=False)
    workload.pods = (pod_with(index=1, threads=8, request=2000, limit=4000),)
    for _ in range(10):
        assert workload.step().operations == ()


def test_pods_of_a_rollout_that_starts_are_not_counted_as_changed_by_others() -> None:
    workload = Workload(
        _mode("InPlaceOrRollout"), (pod_with(), pod_with(index=1, has_live_channel=False))
    )
    workload.step()
    workload.template = replace(workload.template, rollout_in_progress=True)
    made = workload.step()
    assert made.reason == "RollingOut"
    assert "foreign_changes" not in workload.memo
