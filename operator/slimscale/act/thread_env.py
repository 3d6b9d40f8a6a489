"""The environment variables that size thread pools, and how they meet a user's own. Pure.

Runtimes read them once, at start: they are for new pods and for rollouts, never for running ones.
"""

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AFFINITY_VARIABLES",
    "OPENBLAS_MAX_THREADS",
    "append_java_option",
    "merge_env",
    "thread_variables",
    "threads_of_a_process",
]

OPENBLAS_MAX_THREADS = 64
"""OpenBLAS is built for a greatest count and crashes above it; distributions build it for 64."""

AFFINITY_VARIABLES = frozenset(
    {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"}
)
"""Never set: on shared CPUs they pin the pods of a node to the same cores. A user's own is told."""

_POOL_VARIABLES = (
    "SLIMSCALE_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "TBB_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "GOMAXPROCS",
)
_OPENBLAS = "OPENBLAS_NUM_THREADS"
_JAVA = "JAVA_TOOL_OPTIONS"
_JAVA_OPTION = "-XX:ActiveProcessorCount="


def thread_variables(
    threads: int,
    *,
    processes_per_pod: int = 1,
    extra_names: Sequence[str] = (),
    openblas_max: int = OPENBLAS_MAX_THREADS,
) -> dict[str, str]:
    """Every known variable with the count of one process, as decimal strings.

    Args:
        threads: of the whole pod, at least 1.
        processes_per_pod: processes that share them; each gets the floor, at least 1.
        extra_names: the program's own variables (`spec.threads.env`).
        openblas_max: greatest count for OpenBLAS, whatever the others get.
    """
    each = threads_of_a_process(threads, processes_per_pod)
    variables = dict.fromkeys((*_POOL_VARIABLES, *extra_names), str(each))
    variables[_OPENBLAS] = str(min(each, openblas_max))
    return variables


def threads_of_a_process(threads: int, processes_per_pod: int) -> int:
    """The floor of a pod's threads over its processes, at least 1."""
    return max(1, threads // max(1, processes_per_pod))


def merge_env(
    existing: Sequence[dict[str, Any]], variables: dict[str, str], *, override: bool = False
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Add variables to a container's `env`; return it and the names that the user had and keeps.

    A value that is already the wanted one is not reported. Order is kept; with `override` a
    user's entry, also one with `valueFrom`, is replaced where it stands.
    """
    merged: list[dict[str, Any]] = []
    kept: list[str] = []
    present = set()
    for entry in existing:
        name = entry.get("name", "")
        present.add(name)
        wanted = variables.get(name)
        if wanted is None or entry.get("value") == wanted:
            merged.append(entry)
        elif override:
            merged.append({"name": name, "value": wanted})
        else:
            merged.append(entry)
            kept.append(name)
    merged += [{"name": n, "value": v} for n, v in variables.items() if n not in present]
    return merged, tuple(kept)


def append_java_option(existing: Sequence[dict[str, Any]], threads: int) -> list[dict[str, Any]]:
    """Append `-XX:ActiveProcessorCount` to JAVA_TOOL_OPTIONS; a user's own count is left."""
    option = f"{_JAVA_OPTION}{max(1, threads)}"
    merged = []
    found = False
    for entry in existing:
        if entry.get("name") != _JAVA:
            merged.append(entry)
            continue
        found = True
        value = entry.get("value")
        if value is None or _JAVA_OPTION in value:  # valueFrom cannot be appended to
            merged.append(entry)
        else:
            merged.append({"name": _JAVA, "value": f"{value} {option}".strip()})
    return merged if found else [*merged, {"name": _JAVA, "value": option}]
