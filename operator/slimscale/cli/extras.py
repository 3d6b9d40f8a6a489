"""Commands whose packages are extras say which one is missing and how to get it."""

from collections.abc import Iterator
from contextlib import contextmanager

from slimscale.exceptions import SlimError

__all__ = ["missing_packages_named"]


@contextmanager
def missing_packages_named(extras: str) -> Iterator[None]:
    """`extras`: those of pyproject.toml that the block needs, such as "simulate,bench".

    Raises:
        SlimError: instead of ModuleNotFoundError of a package that is not ours.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slimscale"):
            raise
        raise SlimError(
            f"{error.name} is missing; from a checkout: pip install '.[{extras}]'"
        ) from error
