"""How the package's loops become machine code.

numba's cache on disk looks at the file of a function alone: after a change to what a compiled function
calls in another file, delete the folder `__pycache__` (an installation writes all files anew).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled", "inner"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, kept on disk between runs. Typed as it was."""
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))


def inner(function: F) -> F:
    """As `compiled`, to be called by compiled code alone: less to compile."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(cache=True, error_model="numpy", **options)(function))
