"""What nobody can do outside a simulation: thread counts picked with the curves in hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.baselines.static import Static
from slimscale.bench.curves import PhaseCurves
from slimscale.bench.policy import Choice, PolicyView, within
from slimscale.simulate.workload import Host

__all__ = ["BestPerPhase", "Given", "best_static", "best_static_over"]

FloatArray = NDArray[np.float64]


def best_static(curves: PhaseCurves) -> int:
    """The one count with the most tasks over the whole scenario: best static in hindsight."""
    total = np.zeros_like(curves.rates[0])
    for seconds, rates in zip(curves.seconds, curves.rates, strict=True):
        total += seconds * rates
    return curves.threads[int(np.argmax(total))]


def best_static_over(training: Sequence[PhaseCurves]) -> int:
    """The one count with the highest geometric mean, over scenarios, of the share of what is possible.

    All `training` curves share one grid of thread counts. Raises ValueError when there are none.
    """
    if not training:
        raise ValueError("no training scenario; give at least one")
    logs = np.zeros(len(training[0].threads))
    for curves in training:
        possible = sum(
            seconds * float(rates.max())
            for seconds, rates in zip(curves.seconds, curves.rates, strict=True)
        )
        done = np.zeros(len(curves.threads))
        for seconds, rates in zip(curves.seconds, curves.rates, strict=True):
            done += seconds * rates
        logs += np.log(done / possible)
    return training[0].threads[int(np.argmax(logs))]


@dataclass(frozen=True, slots=True)
class Given(Static):
    """A static count that was found elsewhere, under the name of how."""

    threads: int = 1

    def start(self, host: Host) -> int:
        del host
        return within(self.threads)


@dataclass(slots=True)
class BestPerPhase:
    """Each phase's best count from its first moment on: nobody knows a change before it shows."""

    curves: PhaseCurves
    name: str = "best-per-phase"
    step_seconds: float = 1.0
    apply_delay_seconds: float = 0.0
    _elapsed_seconds: float = 0.0

    def start(self, host: Host) -> int:
        del host
        return self.curves.best_threads(0.0)

    def choose(self, view: PolicyView) -> Choice:
        del view
        self._elapsed_seconds += self.step_seconds
        return Choice(self.curves.best_threads(self._elapsed_seconds))
