"""Rules of thumb: one measurement, one formula, one thread count for good.

All measure the first `WINDOW_SECONDS` under the thread count that the program came with, then set
their figure and are never asked again by the load: that is how such rules are used.
"""

import math
from dataclasses import dataclass, field

from slimscale.bench.policy import Choice, PolicyView, cores_in_reach, within
from slimscale.simulate.workload import Host
from slimscale.threads.predictor import floor_of_quota

__all__ = ["WINDOW_SECONDS", "FirstWindow", "Goetz", "Ratio"]

WINDOW_SECONDS = 15.0
"""The operator's own window, so that nobody decides on less or more."""


@dataclass(slots=True)
class FirstWindow:
    """Base: `of_view` once, on the first window in which work was done."""

    name: str
    step_seconds: float = WINDOW_SECONDS
    apply_delay_seconds: float = 0.0
    every_window: bool = False
    """Measure anew for ever: not how such rules are used, but how they could be."""
    _chosen: int | None = field(default=None, repr=False)

    def start(self, host: Host) -> int:
        return within(floor_of_quota(cores_in_reach(host.cores, host.quota_cores)))

    def choose(self, view: PolicyView) -> Choice:
        if self._chosen is None or self.every_window:
            threads = self.of_view(view)
            if threads is None:
                return Choice(None)
            self._chosen = within(threads)
        return Choice(self._chosen)

    def of_view(self, view: PolicyView) -> float | None:
        """The thread count that the rule gives; None while it cannot say."""
        raise NotImplementedError


@dataclass(slots=True)
class Ratio(FirstWindow):
    """k = r + extra with r = Z/S, task time over dispatch time, neither with its queueing.

    r is the knee where many tasks wait (science.md 1.3 c); 1 + r the saturation point of the
    finite-source M/M/1 (1.2).
    """

    extra: float = 0.0

    def of_view(self, view: PolicyView) -> float | None:
        task, dispatch = view.service_seconds, view.dispatch_seconds
        if task is None or not dispatch:
            return None
        return task / dispatch + self.extra


@dataclass(slots=True)
class Goetz(FirstWindow):
    """k = C * U * (1 + W/C'): cores, wanted utilisation, waiting over computing time of a task.

    The pool-size rule of "Java Concurrency in Practice" (2006), with all of the CPU wanted.
    """

    utilisation: float = 1.0

    def of_view(self, view: PolicyView) -> float | None:
        waiting, computing = view.task_waiting_seconds, view.task_cpu_seconds
        if waiting is None or not computing:
            return None
        return max(
            1.0, math.floor(view.cores_in_reach * self.utilisation * (1 + waiting / computing))
        )
