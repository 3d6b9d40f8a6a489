"""Waiting for what a cluster does in its own time: poll until true, or fail with the last answer."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T],
    timeout_seconds: float = 60.0,
    *,
    interval_seconds: float = 0.5,
    what: str = "",
    retry_on: tuple[type[Exception], ...] = (AssertionError, LookupError),
) -> T:
    """The first truthy value of `condition`, asked again and again until the time is up.

    A condition may also assert: an exception of `retry_on` counts as "not yet". Any other one ends
    the wait at once.

    Raises:
        AssertionError: not true in time; names the last value or failure.
    """
    start = time.monotonic()
    while True:
        error: Exception | None = None
        value: T | None = None
        try:
            value = condition()
        except retry_on as failure:
            error = failure
        if error is None and value:
            return value
        waited = time.monotonic() - start
        if waited >= timeout_seconds:
            name = what or getattr(condition, "__name__", "the condition")
            last = f"{type(error).__name__}: {error}" if error else repr(value)
            raise AssertionError(f"not in {waited:.0f} s: {name}; last seen: {last}") from error
        time.sleep(min(interval_seconds, max(timeout_seconds - waited, 0.01)))


def consistently(
    condition: Callable[[], object],
    seconds: float,
    *,
    interval_seconds: float = 1.0,
    what: str = "",
) -> None:
    """`condition` stays true for the whole time, else AssertionError names when it broke."""
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        value = condition()
        name = what or getattr(condition, "__name__", "the condition")
        assert value, f"no longer true after {passed:.0f} s: {name}; seen: {value!r}"
        time.sleep(interval_seconds)
