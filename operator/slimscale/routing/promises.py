"""How much longer answers take than was expected when their requests were taken.

An estimate of the finish leaves out what nobody measures: a busy event loop, another process on the
same CPU, requests that came later with earlier deadlines. So what is promised is checked against what
was kept, and the estimate multiplied by the quantile of that ratio, tracked by stochastic
approximation (Robbins and Monro 1951): up by `step * q` for a miss, down by `step * (1 - q)` else.
"""

__all__ = ["Promises"]

_KEPT_SHARE = 0.998
_STEP = 0.05
_FIRST, _LEAST, _MOST = 1.25, 1.0, 4.0
_SHORTEST_SECONDS = 0.01
"""Of shorter waits the ratio is mostly the clock's and the scheduler's noise."""


class Promises:
    """`factor`: by what an expected finish is multiplied before it is held against a deadline."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = _FIRST

    def kept(self, expected_seconds: float, actual_seconds: float) -> None:
        """A request was answered. Pass infinity for one that was given up late."""
        if expected_seconds < _SHORTEST_SECONDS:
            return
        if actual_seconds > expected_seconds * self.factor:
            self.factor = min(self.factor + _STEP * _KEPT_SHARE, _MOST)
        else:
            self.factor = max(self.factor - _STEP * (1.0 - _KEPT_SHARE), _LEAST)
