"""Set the thread counts of numeric libraries that the process already has.

Call from the thread that runs the numeric work: OpenMP runtimes, numba and torch keep the count
per thread. onnxruntime has no such call: its sessions keep the count they were made with, so make
a new session in your callback.
"""

import sys
from typing import Any, Final

__all__ = ["OPENBLAS_MAX_THREADS", "apply_to_libraries"]

OPENBLAS_MAX_THREADS: Final = 64
"""OpenBLAS can crash above the count it was built for; distributions build it for 64."""


def apply_to_libraries(
    threads: int, *, openblas_max_threads: int = OPENBLAS_MAX_THREADS
) -> dict[str, int]:
    """Set what can be set; which library now uses how many threads. Imports none but threadpoolctl.

    Raises:
        ValueError: not positive.
    """
    if threads < 1:
        raise ValueError("threads must be at least 1")
    applied = _native_pools(threads, openblas_max_threads)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        # Only the intra-op count: the inter-op one aborts the process when it is set twice.
        torch.set_num_threads(threads)
        applied["torch"] = threads
    numba = sys.modules.get("numba")
    if numba is not None and hasattr(numba, "set_num_threads"):
        # Above the count that numba was launched with it raises.
        count = min(threads, int(numba.config.NUMBA_NUM_THREADS))
        numba.set_num_threads(count)
        applied["numba"] = count
    return applied


def _native_pools(threads: int, openblas_max_threads: int) -> dict[str, int]:
    try:
        import threadpoolctl
    except ImportError:
        return {}
    controller: Any = threadpoolctl.ThreadpoolController()
    applied = {}
    for library in controller.lib_controllers:
        count = threads
        if library.internal_api == "openblas":
            count = min(threads, openblas_max_threads)
        library.set_num_threads(count)
        applied[str(library.prefix)] = count
    return applied
