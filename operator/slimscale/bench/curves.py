"""The true curve of every phase of a scenario, measured once, for oracles and for judging.

Throughput against threads on a logarithmic grid; between grid points the logarithm of the
throughput is interpolated over the logarithm of the threads.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.bench.policy import MAX_THREADS
from slimscale.simulate.load import LoadScenario
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.workload import Host, Workload

__all__ = ["PhaseCurves", "curve_grid", "curve_of", "measure_phases"]

FloatArray = NDArray[np.float64]

COLLAPSED = 0.15
"""Share of the best below which no further point is measured."""
PLATEAU = 0.98
NEAR_TOP, LONGER = 0.95, 5
TASKS = 3000
"""Per point of a curve, and five times that near its top: a standard error of 2 % and below 1 % at
a variation of 1."""


def curve_grid(most: int = MAX_THREADS) -> tuple[int, ...]:
    """1 to 8, four to the octave up to 32, then two to the octave up to `most`."""
    grid = {k for k in (*range(1, 9), 10, 12, 14, 16, 20, 24, 28) if k <= most} | {most}
    octave = 32
    while octave <= most:
        grid.update(k for k in (octave, octave * 3 // 2) if k <= most)
        octave *= 2
    return tuple(sorted(grid))


@dataclass(frozen=True, slots=True)
class PhaseCurves:
    """One curve a phase. `starts` are seconds from the scenario's beginning, ascending from 0."""

    threads: tuple[int, ...]
    starts: tuple[float, ...]
    seconds: tuple[float, ...]
    """Length of each phase."""
    rates: tuple[FloatArray, ...]
    """Tasks a second, shape (len(threads),) each."""

    def phase_at(self, seconds: float) -> int:
        return int(np.searchsorted(np.asarray(self.starts), seconds, side="right")) - 1

    def rate(self, phase: int, threads: float) -> float:
        """Tasks a second that `threads` give in the long run of that phase."""
        grid = np.log(np.asarray(self.threads, dtype=np.float64))
        return float(np.exp(np.interp(np.log(threads), grid, np.log(self.rates[phase]))))

    def best_rate(self, phase: int) -> float:
        """Mean of the points within 2 % of the highest: that one alone is high by chance, too."""
        rates = self.rates[phase]
        return float(rates[rates >= PLATEAU * rates.max()].mean())

    def best_threads(self, seconds: float) -> int:
        """Of the phase at that moment: the fewest within half a per cent of the best."""
        rates = self.rates[self.phase_at(seconds)]
        return self.threads[int(np.argmax(rates >= 0.995 * rates.max()))]

    def to_json(self) -> dict[str, Any]:
        return {
            "threads": list(self.threads),
            "starts": list(self.starts),
            "seconds": list(self.seconds),
            "rates": [[float(f"{rate:.6g}") for rate in rates] for rates in self.rates],
        }

    @staticmethod
    def from_json(document: dict[str, Any]) -> "PhaseCurves":
        return PhaseCurves(
            threads=tuple(int(k) for k in document["threads"]),
            starts=tuple(float(s) for s in document["starts"]),
            seconds=tuple(float(s) for s in document["seconds"]),
            rates=tuple(np.asarray(rates, dtype=np.float64) for rates in document["rates"]),
        )


def measure_phases(
    scenario: LoadScenario, *, seed: int, most: int = MAX_THREADS, tasks: int = TASKS
) -> PhaseCurves:
    """Simulate every phase's curve; equal phases share theirs."""
    starts = tuple(start for start, _ in scenario.phases)
    ends = (*starts[1:], scenario.duration_seconds)
    known: dict[Workload, FloatArray] = {}
    for _, workload in scenario.phases:
        if workload not in known:
            _, known[workload] = curve_of(
                workload, scenario.host, seed=seed, tasks=tasks, most=most
            )
    rates = tuple(known[workload] for _, workload in scenario.phases)
    lengths = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return PhaseCurves(curve_grid(most), starts, lengths, rates)


def curve_of(
    workload: Workload, host: Host, *, seed: int, tasks: int, most: int = MAX_THREADS
) -> tuple[tuple[int, ...], FloatArray]:
    """(grid, tasks a second at each of its thread counts).

    Upwards until throughput has collapsed: more threads are then given what the last one had.
    Thousands of tasks of a spinning crowd under a quota are hours of its time, and whether it does
    a tenth or a hundredth of the best makes no difference to anybody.
    """
    grid = curve_grid(most)
    rates: list[float] = []
    for threads in grid:
        if len(rates) > 1 and rates[-1] < COLLAPSED * max(rates):
            rates.append(rates[-1])
            continue
        rate = measure_curve(workload, host, (threads,), seed=seed, tasks=tasks)
        rates.append(max(float(rate[0]), 1e-9))
    # The highest of many noisy points is too high: those near the top are measured again, longer.
    near = [i for i, rate in enumerate(rates) if rate >= NEAR_TOP * max(rates)]
    again = measure_curve(workload, host, [grid[i] for i in near], seed=seed, tasks=LONGER * tasks)
    for index, rate in zip(near, again, strict=True):
        rates[index] = float(rate)
    return grid, np.asarray(rates, dtype=np.float64)
