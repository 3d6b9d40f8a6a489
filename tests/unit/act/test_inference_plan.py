"""Which writes are due: none in a steady state, and never the replicas of somebody else."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from slimscale.act.inference_children import Child, ChildSettings, children_of
from slimscale.act.inference_names import InferenceNames
from slimscale.act.inference_plan import covers, plan_inference
from slimscale.act.inference_pods import Images
from slimscale.api.names import LOADED_ANNOTATIONS, LOADING_ANNOTATIONS
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.decision import Action
from slimscale.domain.inference import (
    AnnotatePod,
    ApplyChild,
    InferenceObservation,
    InferencePlan,
    RemoveChild,
    RemovePod,
)
from slimscale.domain.scaling import (
    PoolDecision,
    PoolObservation,
    PoolPod,
    ScalingDecision,
    ScalingObservation,
    ScalingOwner,
)
from slimscale.kubeapi.ports import Json
from tests.support.inferences import inference_spec

NAMES = InferenceNames("fashion")
POOL = NAMES.pool("cpu")


def made(**fields: Any) -> tuple[Child, ...]:
    return children_of(
        SlimInferenceSpec.model_validate(inference_spec(**fields)),
        name="fashion", namespace="ns", uid="u1",
        settings=ChildSettings(Images("data:1", "model:1")),
    )  # fmt: skip


def stored(children: tuple[Child, ...], *, replicas: int = 3) -> dict[tuple[str, str], Json]:
    """As an API server would hold them: with more fields than were asked for."""
    live = {}
    for child in children:
        body = copy.deepcopy(child.body)
        body["metadata"] |= {"uid": f"uid-{child.name}", "resourceVersion": "7"}
        if child.plural == "deployments":
            body["spec"].setdefault("replicas", replicas)
            body["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        live[child.plural, child.name] = body
    return live


def observed(live: dict[tuple[str, str], Json], *pods: Json) -> InferenceObservation:
    return InferenceObservation(
        namespace="ns", name="fashion", uid="u1", generation=1, sampled_at_seconds=0.0,
        children=live, pods=pods, scaling=ScalingObservation(0.0, None, ()),
    )  # fmt: skip


def decided(replicas: int = 3, field_value: int | None = 3, **fields: Any) -> ScalingDecision:
    pool = PoolDecision("cpu", 3, replicas, replicas, field_value, None, **fields)
    return ScalingDecision(0.0, Action.NO_CHANGE, (pool,), None, 0.0, False, True, "")


def plan(
    live: dict[tuple[str, str], Json],
    *pods: Json,
    children: tuple[Child, ...] | None = None,
    decision: ScalingDecision | None = None,
    owner: ScalingOwner = ScalingOwner.SLIMSCALE,
) -> InferencePlan:
    return plan_inference(
        observation=observed(live, *pods),
        children=children or made(),
        decision=decision or decided(),
        owner=owner,
        config_digest="d1",
    )


def pod(name: str = "p", **annotations: str) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations}}


def test_everything_is_made_and_what_pods_need_comes_first() -> None:
    operations = [op for op in plan({}).operations if isinstance(op, ApplyChild)]
    order = [op.plural for op in operations]
    assert {op.reason for op in operations} == {"Create"}
    assert order.index("configmaps") < order.index("deployments")
    assert order.index("rolebindings") < order.index("deployments")
    [pool] = [op for op in operations if (op.plural, op.name) == ("deployments", POOL)]
    assert pool.body["spec"]["replicas"] == 3, "left out at the first apply it would become 1"


def test_a_steady_state_asks_for_nothing() -> None:
    assert plan(stored(made())) == InferencePlan()


def test_a_manual_edit_of_ours_is_taken_back_and_an_addition_stays() -> None:
    live = stored(made())
    live["deployments", POOL]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    live["services", "fashion"]["metadata"]["annotations"]["example.com/note"] = "mine"
    [operation] = plan(live).operations
    assert isinstance(operation, ApplyChild)
    assert (operation.name, operation.reason) == (POOL, "Drift")
    assert operation.body["metadata"]["uid"] == f"uid-{POOL}"


def test_a_token_that_somebody_lets_in_again_is_taken_away() -> None:
    live = stored(made())
    del live["deployments", POOL]["spec"]["template"]["spec"]["automountServiceAccountToken"]
    [operation] = plan(live).operations
    assert isinstance(operation, ApplyChild)
    assert operation.name == POOL


def test_an_entry_that_is_no_longer_asked_for_goes() -> None:
    """It is in no comparison: only the digest of what was asked for last tells."""
    before = made(imagePullSecrets=[{"name": "a"}, {"name": "b"}])
    after = made(imagePullSecrets=[{"name": "a"}])
    names = {op.name for op in plan(stored(before), children=after).operations}  # type: ignore[union-attr]
    assert names == {POOL, NAMES.router}


@pytest.mark.parametrize("owner", list(ScalingOwner))
def test_replicas_are_left_out_once_another_manager_owns_them(owner: ScalingOwner) -> None:
    live = stored(made(), replicas=7)
    assert plan(live, decision=decided(field_value=None), owner=owner) == InferencePlan()
    live["deployments", POOL]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    [operation] = plan(live, decision=decided(field_value=None), owner=owner).operations
    assert isinstance(operation, ApplyChild)
    assert "replicas" not in operation.body["spec"]


def test_what_an_external_owner_does_meanwhile_is_never_overwritten() -> None:
    """E6: the live value goes along until somebody owns it, and only if it is still live."""
    live = stored(made(), replicas=7)
    live["deployments", POOL]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    [operation] = plan(
        live, decision=decided(field_value=7), owner=ScalingOwner.EXTERNAL
    ).operations
    assert isinstance(operation, ApplyChild)
    assert operation.body["spec"]["replicas"] == 7
    assert operation.body["metadata"]["resourceVersion"] == "7"


def test_a_scaling_decision_writes_the_pools_deployment_alone() -> None:
    [operation] = plan(stored(made()), decision=decided(5, 5)).operations
    assert isinstance(operation, ApplyChild)
    assert (operation.name, operation.reason) == (POOL, "Scale")
    assert operation.body["spec"]["replicas"] == 5


def test_a_pool_that_is_taken_out_of_the_spec_goes_with_its_budget() -> None:
    both = made(pools=[{"name": "cpu"}, {"name": "old"}])
    gone = [op for op in plan(stored(both)).operations if isinstance(op, RemoveChild)]
    assert {(op.plural, op.name) for op in gone} == {
        ("deployments", NAMES.pool("old")),
        ("poddisruptionbudgets", NAMES.pool("old")),
    }


def test_an_object_of_somebody_else_under_our_name_is_left_alone() -> None:
    live = stored(made())
    live["services", "fashion"]["metadata"]["ownerReferences"] = []
    live["services", "fashion"]["spec"]["selector"] = {"app": "other"}
    assert plan(live) == InferencePlan(foreign=("services/fashion",))


def test_pods_hear_of_a_new_configuration_once() -> None:
    stale, fresh = pod("a"), pod("b", **{"slimscale.dev/config-digest": "d1"})
    [operation] = plan(stored(made()), stale, fresh).operations
    assert operation == AnnotatePod("a", "uid-a", {"slimscale.dev/config-digest": "d1"})


def test_the_least_loaded_pod_is_marked_to_go_first() -> None:
    known = pod("a", **{"slimscale.dev/config-digest": "d1"})
    decision = decided(deletion_costs={"a": -5})
    [operation] = plan(stored(made()), known, decision=decision).operations
    assert isinstance(operation, AnnotatePod)
    assert operation.annotations == {"controller.kubernetes.io/pod-deletion-cost": "-5"}


@pytest.mark.parametrize(
    ("ready", "age_seconds", "may_go"),
    [(False, 60.0, False), (True, 60.0, True), (False, 700.0, True)],
)
def test_a_node_may_go_once_the_model_is_loaded_or_has_failed_to(
    ready: bool, age_seconds: float, may_go: bool
) -> None:
    starting = pod("a", **{"slimscale.dev/config-digest": "d1", **LOADING_ANNOTATIONS})
    seen = PoolPod("a", ready=ready, created_at_seconds=1000.0 - age_seconds)
    pools = (PoolObservation("cpu", 3, (seen,)),)
    observation = replace(
        observed(stored(made()), starting),
        sampled_at_seconds=1000.0,
        scaling=ScalingObservation(1000.0, None, pools),
    )
    operations = plan_inference(
        observation=observation,
        children=made(),
        decision=decided(),
        owner=ScalingOwner.SLIMSCALE,
        config_digest="d1",
    ).operations
    assert operations == ((AnnotatePod("a", "uid-a", LOADED_ANNOTATIONS),) if may_go else ())


def test_pods_are_born_so_that_no_node_autoscaler_takes_them_while_they_load() -> None:
    [pool] = [c for c in made() if c.plural == "deployments" and c.pool]
    annotations = pool.body["spec"]["template"]["metadata"]["annotations"]
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_a_pod_whose_gpu_is_lost_is_replaced() -> None:
    known = pod("a", **{"slimscale.dev/config-digest": "d1"})
    decision = replace(decided(), replace_pods=("a", "gone"))
    assert plan(stored(made()), known, decision=decision).operations == (RemovePod("a", "uid-a"),)


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({"cpu": "1"}, {"cpu": "1001m"}, False),
        ({"a": 1, "more": 2}, {"a": 1}, True),
        ({}, {"a": []}, True),
        ({"a": [1]}, {"a": []}, False),
        ([{"name": "x", "v": 1}, {"name": "y"}], [{"name": "y"}, {"name": "x", "v": 1}], True),
        ([{"port": 1}, {"port": 2}], [{"port": 1}], False),
        ({"token": False}, {"token": False}, True),
        ({}, {"token": False}, False),
    ],
)
def test_only_what_is_asked_for_is_compared(live: Any, wanted: Any, same: bool) -> None:
    assert covers(live, wanted) is same
