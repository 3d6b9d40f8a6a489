"""Which variables size thread pools, with what, and what of a user's they never touch."""

from typing import Any

import pytest

from slimscale.act.injection import InjectionChoice, inject
from slimscale.act.rollout import step_rollout, template_variables
from slimscale.act.thread_env import AFFINITY_VARIABLES, thread_variables
from slimscale.api.names import ANNOTATION_KEPT_ENV, LABEL_INJECT
from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import TargetObservation
from slimscale.observe.target import observe_target
from tests.support.observations import make_spec
from tests.support.raw_objects import deployment

POOLS = {
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "TBB_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "GOMAXPROCS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
}


def _spec(**threads: Any) -> SimWorkloadSpec:
    return make_spec(updatePolicy={"mode": "Rollout"}, threads=threads)


def _target(*env: dict[str, Any]) -> TargetObservation:
    """A template with these variables, as it is observed."""
    raw = deployment("sim")
    raw["spec"]["template"]["spec"]["containers"][0]["env"] = list(env)
    return observe_target(raw, make_spec())


def _injected(env: list[dict[str, Any]], **choice: Any) -> tuple[list[dict[str, Any]], str]:
    """The variables after creation, and the warnings as one text."""
    pod = {
        "metadata": {"labels": {LABEL_INJECT: "true"}},
        "spec": {"containers": [{"name": "sim", "env": env}]},
    }
    values: dict[str, Any] = {"container": "sim", "set_values": True, "threads": 8} | choice
    result = inject(pod, choice=InjectionChoice(**values), never_namespaces=(), namespace="sims")
    patch = {entry["path"]: entry["value"] for entry in result.patch}
    warnings = " ".join(result.warnings) + str(patch["/metadata/annotations"])
    return patch["/spec/containers/0"]["env"], warnings


def _value(env: list[dict[str, Any]], name: str) -> str:
    return str(next(entry["value"] for entry in env if entry["name"] == name))


def test_every_runtime_that_counts_the_nodes_cores_is_told() -> None:
    assert set(thread_variables(6)) >= POOLS
    assert {thread_variables(6)[name] for name in POOLS} == {"6"}


@pytest.mark.parametrize("threads", [65, 256, 1024])
def test_openblas_is_never_given_more_than_it_was_built_for(threads: int) -> None:
    variables = thread_variables(threads)
    assert variables["OPENBLAS_NUM_THREADS"] == "64"
    assert variables["OMP_NUM_THREADS"] == str(threads)
    assert template_variables(_target(), threads, spec=_spec(max=1024))["OPENBLAS_NUM_THREADS"] == (
        "64"
    )


@pytest.mark.parametrize("processes", [1, 3, 8, 1024])
def test_processes_share_the_threads_and_each_has_at_least_one(processes: int) -> None:
    each = max(1, 8 // processes)
    assert set(thread_variables(8, processes_per_pod=processes).values()) == {str(each)}


def test_cores_are_never_bound() -> None:
    spec = _spec(javaToolOptions=True)
    assert not AFFINITY_VARIABLES & set(template_variables(_target(), 8, spec=spec))
    env, _ = _injected([])
    assert not AFFINITY_VARIABLES & {entry["name"] for entry in env}


@pytest.mark.parametrize("name", sorted(AFFINITY_VARIABLES))
def test_a_users_binding_is_left_and_told(name: str) -> None:
    env, told = _injected([{"name": name, "value": "close"}])
    assert _value(env, name) == "close"
    assert f"{name} may bind the pods of a node to the same cores" in told
    assert f"'{ANNOTATION_KEPT_ENV}': '{name}'" in told


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "OMP_NUM_THREADS", "value": "4,2"},
        {"name": "OMP_NUM_THREADS", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        {"name": "OMP_NUM_THREADS", "value": "3"},
    ],
    ids=["a list", "a reference", "a count"],
)
def test_a_rollout_keeps_a_users_own_variable_in_any_form(entry: dict[str, Any]) -> None:
    target = _target(entry)
    chosen = template_variables(target, 8, spec=_spec())
    assert "OMP_NUM_THREADS" not in chosen
    assert chosen["MKL_NUM_THREADS"] == "8"
    overridden = template_variables(target, 8, spec=_spec(overrideUserEnv=True))
    assert overridden["OMP_NUM_THREADS"] == "8"


@pytest.mark.parametrize("override", [False, True])
def test_a_rollout_never_replaces_a_users_java_options(override: bool) -> None:
    target = _target({"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g -Dkey=S3CR3T"})
    spec = _spec(javaToolOptions=True, overrideUserEnv=override)
    assert "JAVA_TOOL_OPTIONS" not in template_variables(target, 8, spec=spec)
    assert "S3CR3T" not in repr(target)


def test_java_is_told_only_when_asked_for_and_keeps_its_other_options() -> None:
    assert "JAVA_TOOL_OPTIONS" not in template_variables(_target(), 8, spec=_spec())
    env, _ = _injected(
        [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}],
        java_tool_options=True,
        processes_per_pod=4,
    )
    assert _value(env, "JAVA_TOOL_OPTIONS") == "-Xmx1g -XX:ActiveProcessorCount=2"
    own, _ = _injected(
        [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:ActiveProcessorCount=3"}],
        java_tool_options=True,
    )
    assert _value(own, "JAVA_TOOL_OPTIONS") == "-XX:ActiveProcessorCount=3"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_template_that_shows_java_its_count_is_not_rolled_out_again(processes: int) -> None:
    spec = _spec(javaToolOptions=True, processesPerPod=processes)
    before = _target()
    target = PodTarget(8, 1000, 2000)
    first = step_rollout(before, target, spec=spec, entry=None, again=True, now_seconds=1.0)
    assert first.operation is not None
    shown = _target(*({"name": n, "value": v} for n, v in first.operation.env))
    second = step_rollout(shown, target, spec=spec, entry=first.entry, again=True, now_seconds=60.0)
    assert second.operation is None
    assert not second.foreign_change
    fewer = template_variables(shown, 4, spec=spec)
    assert fewer["JAVA_TOOL_OPTIONS"] == f"-XX:ActiveProcessorCount={4 // processes}"
