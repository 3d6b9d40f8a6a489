"""Writes for a native sidecar go to the pod's initContainers; an owned template is left alone."""

from dataclasses import replace
from typing import Any

import pytest

from slimscale.act.builders import resize_patch, template_body
from slimscale.act.injection import InjectionChoice, inject
from slimscale.act.plan import plan
from slimscale.act.status_conditions import conditions_of
from slimscale.api.conditions import Reason
from slimscale.api.names import ANNOTATION_INJECTED, ANNOTATION_THREADS, LABEL_INJECT
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import PodObservation, TargetObservation
from slimscale.domain.plan import ApplyResult, PatchTemplate, Plan, ResizePod
from tests.support.decisions import make_decision, pod_with
from tests.support.observations import make_node, make_observation, make_spec, make_target

LARGER = PodTarget(8, 2000, 4000)
SIDECAR = replace(make_target(), container="model-server", native_sidecar=True)
OWNED = replace(SIDECAR, template_owner="SlimInference fashion")


def planned(
    target: TargetObservation,
    pod: PodObservation,
    mode: str = "InPlace",
    node_cores: float = 16.0,
) -> tuple[Plan, dict[str, Any]]:
    """The plan, and the condition Applied that it leads to."""
    spec = make_spec(updatePolicy={"mode": mode})
    observation = make_observation(
        (pod,), 1000.0, target=target, nodes={"node-0": make_node(cores=node_cores)}
    )
    decision = make_decision(LARGER)
    made = plan(observation=observation, decision=decision, spec=spec, memo={}, now_seconds=1000.0)
    conditions = conditions_of(
        observation=observation, decision=decision, plan=made, result=ApplyResult(), spec=spec,
        previous=(), now_seconds=1000.0,
    )  # fmt: skip
    [applied] = [c for c in conditions if c["type"] == "Applied"]
    return made, applied


def test_a_native_sidecar_is_resized_among_the_init_containers() -> None:
    made, _ = planned(SIDECAR, pod_with())
    [resize] = [o for o in made.operations if isinstance(o, ResizePod)]
    spec = resize_patch(resize)["spec"]
    assert spec == {
        "initContainers": [
            {
                "name": "model-server",
                "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
            }
        ]
    }


def test_an_ordinary_container_is_resized_where_it_stands() -> None:
    made, _ = planned(make_target(), pod_with())
    [resize] = [o for o in made.operations if isinstance(o, ResizePod)]
    assert list(resize_patch(resize)["spec"]) == ["containers"]


def test_a_rollout_of_a_native_sidecar_writes_the_template_s_init_containers() -> None:
    made, _ = planned(SIDECAR, pod_with(), mode="Rollout")
    [patch] = [o for o in made.operations if isinstance(o, PatchTemplate)]
    pod = template_body(patch, namespace="ns")["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["initContainers"]] == ["model-server"]
    assert "containers" not in pod


def test_a_template_that_a_sliminference_owns_is_never_rolled_out_and_the_remedy_is_said() -> None:
    made, applied = planned(OWNED, pod_with(), mode="Rollout")
    assert made.operations == ()
    assert (applied["status"], applied["reason"]) == ("False", Reason.TEMPLATE_OWNED)
    assert "SlimInference fashion" in applied["message"]
    assert "set updatePolicy.mode InPlace" in applied["message"]


def test_mode_initial_never_reaches_new_pods_of_a_sliminference_and_says_so() -> None:
    """They carry no label for the webhook."""
    made, applied = planned(OWNED, pod_with(), mode="Initial")
    assert (made.operations, applied["reason"]) == ((), Reason.TEMPLATE_OWNED)
    assert "set updatePolicy.mode InPlace" in applied["message"]
    _, applied = planned(SIDECAR, pod_with(), mode="Initial")
    assert applied["reason"] == Reason.NOT_APPLIED


def test_in_place_goes_on_beside_an_owned_template() -> None:
    made, _ = planned(OWNED, pod_with(), mode="InPlaceOrRollout")
    assert [type(o) for o in made.operations] == [ResizePod]


def test_what_stands_in_the_way_in_place_is_said_instead_of_a_rollout() -> None:
    made, applied = planned(OWNED, pod_with(), mode="InPlaceOrRollout", node_cores=1.0)
    assert made.operations == ()
    assert applied["reason"] == Reason.RESIZE_INFEASIBLE
    rolled, _ = planned(SIDECAR, pod_with(), mode="InPlaceOrRollout", node_cores=1.0)
    assert [type(o) for o in rolled.operations] == [PatchTemplate]


# ---- at creation


CHOICE = InjectionChoice(
    container="server", set_values=True, threads=4, cpu_request_millicores=2000,
    cpu_limit_millicores=4000,
)  # fmt: skip


def created(choice: InjectionChoice | None, annotations: dict[str, str] | None = None) -> Any:
    pod = {
        "metadata": {"labels": {LABEL_INJECT: "true"}, "annotations": annotations or {}},
        "spec": {
            "initContainers": [
                {"name": "setup", "resources": {"requests": {"cpu": "1"}}},
                {
                    "name": "server",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"cpu": "1"}},
                },
            ],
            "containers": [{"name": "sim", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    return inject(pod, choice=choice, never_namespaces=(), namespace="ns")


def test_a_new_pod_s_native_sidecar_gets_the_threads_and_the_cpu() -> None:
    patch = {operation["path"]: operation for operation in created(CHOICE).patch}
    server = patch["/spec/initContainers/1"]["value"]
    assert server["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    assert {"name": "OMP_NUM_THREADS", "value": "4"} in server["env"]
    assert patch["/metadata/annotations"]["value"] == {
        ANNOTATION_INJECTED: "server", ANNOTATION_THREADS: "4",
    }  # fmt: skip
    assert not [path for path in patch if path.startswith("/spec/containers")]


def test_a_second_pass_over_an_injected_native_sidecar_finds_it_again() -> None:
    patch = created(None, {ANNOTATION_INJECTED: "server"}).patch
    assert {operation["path"] for operation in patch} == {"/spec/volumes", "/spec/initContainers/1"}


@pytest.mark.parametrize("name", ["setup", "gone"])
def test_a_container_that_does_not_last_gets_nothing_at_creation(name: str) -> None:
    result = created(replace(CHOICE, container=name))
    assert result.patch == ()
    assert f"no container {name}" in result.warnings[0]
