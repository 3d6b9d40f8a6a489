"""The variables that size pools: all runtimes, decimal strings, OpenBLAS within its build."""

import pytest

from slimscale.act.thread_env import append_java_option, merge_env, thread_variables


@pytest.mark.parametrize(
    "name",
    [
        "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
        "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS", "TBB_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "GOMAXPROCS", "SLIMSCALE_THREADS",
    ],
)  # fmt: skip
def test_every_runtime_that_ignores_the_quota_is_told(name: str) -> None:
    assert thread_variables(6)[name] == "6"


def test_openblas_is_never_given_more_than_its_build_takes() -> None:
    variables = thread_variables(256)
    assert variables["OPENBLAS_NUM_THREADS"] == "64"
    assert variables["OMP_NUM_THREADS"] == "256"


@pytest.mark.parametrize("threads", [-3, 0, 1, 3])
def test_no_variable_is_ever_below_one(threads: int) -> None:
    variables = thread_variables(threads, processes_per_pod=4)
    assert set(variables.values()) == {"1"}


def test_pinning_is_left_to_the_user() -> None:
    """OMP_PROC_BIND and the like would put the pods of a node on the same cores."""
    assert not {"OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"} & set(
        thread_variables(8)
    )


def test_a_value_from_a_secret_is_kept_and_named() -> None:
    secret = {"name": "OMP_NUM_THREADS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    env, kept = merge_env([secret], thread_variables(4))
    assert secret in env
    assert kept == ("OMP_NUM_THREADS",)


def test_a_users_java_options_stay_in_front_of_ours() -> None:
    env = append_java_option([{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}], 4)
    assert env == [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g -XX:ActiveProcessorCount=4"}]
    own = [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:ActiveProcessorCount=2"}]
    assert append_java_option(own, 4) == own
