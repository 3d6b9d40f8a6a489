"""Refuse parameters that no queueing model can answer for, before they become a NaN in a curve.

Every message names the parameter, the value and what to do, because the values come from
measurements and the reader has to find out which one was wrong.
"""

import operator

__all__ = ["require_count", "require_in_range"]


def require_in_range(name: str, value: float, low: float, high: float, *, remedy: str) -> float:
    """Return ``value`` as a float where ``low <= value <= high``, otherwise raise ValueError.

    NaN and what is not a number are refused, and infinities where the limits are finite.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is {value!r}, which is not a number; {remedy}") from error
    if not low <= number <= high:  # NaN is in no range
        raise ValueError(f"{name} is {value!r}, outside {low:g} to {high:g}; {remedy}")
    return number


def require_count(name: str, value: int, low: int, high: int, *, remedy: str) -> int:
    """Return ``value`` as an int where ``low <= value <= high``, otherwise raise ValueError.

    A bool or a float is refused even where it is whole: it is nearly always a swapped argument.
    """
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} is {value!r}, which is not a whole number; {remedy}") from error
    if value is True or value is False:
        raise ValueError(f"{name} is {value!r}, which is not a whole number; {remedy}")
    if not low <= count <= high:
        raise ValueError(f"{name} is {count}, outside {low} to {high}; {remedy}")
    return count
