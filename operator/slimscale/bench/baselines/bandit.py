"""Sliding-window UCB (Garivier and Moulines 2011) over a logarithmic grid of thread counts.

Each arm's value is its mean throughput over its plays among the last `window` plays, relative to
the best mean; an arm is played when value + width*sqrt(log(min(t, window))/plays) is the highest.
What was played longer ago than the window is forgotten, so a changed load is noticed by playing.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from slimscale.bench.policy import MAX_THREADS, Choice, PolicyView, cores_in_reach
from slimscale.simulate.workload import Host
from slimscale.threads.predictor import floor_of_quota

__all__ = ["SlidingWindowUCB", "log_grid"]


def log_grid(most: int = MAX_THREADS) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... up to `most`: half an octave apart."""
    grid = {1, most}
    octave = 2
    while octave <= most:
        grid.update(k for k in (octave, octave * 3 // 2) if k <= most)
        octave *= 2
    return tuple(sorted(grid))


@dataclass(slots=True)
class SlidingWindowUCB:
    name: str = "sliding-window-ucb"
    step_seconds: float = 1.0
    apply_delay_seconds: float = 0.0
    window: int = 60
    """Plays; about a minute, half of a phase of the benchmark."""
    width: float = 0.2
    """Of the confidence interval, relative to the best throughput: the noise of a play or so."""
    arms: tuple[int, ...] = field(default_factory=log_grid)
    _arm: int = field(default=1, repr=False)
    _plays: deque[tuple[int, float]] = field(default_factory=deque, repr=False)

    def start(self, host: Host) -> int:
        floor = floor_of_quota(cores_in_reach(host.cores, host.quota_cores))
        self._arm = min(self.arms, key=lambda arm: abs(math.log(arm / floor)))
        return self._arm

    def choose(self, view: PolicyView) -> Choice:
        self._plays.append((self._arm, view.tasks_per_second))
        while len(self._plays) > self.window:
            self._plays.popleft()
        rates: dict[int, list[float]] = {}
        for arm, rate in self._plays:
            rates.setdefault(arm, []).append(rate)
        unplayed = [arm for arm in self.arms if arm not in rates]
        if unplayed:
            # The nearest first: a walk along the grid, not a leap from 1 thread to all.
            here = self._arm
            self._arm = min(unplayed, key=lambda arm: abs(math.log(arm / here)))
            return Choice(self._arm)
        best = max(sum(seen) / len(seen) for seen in rates.values()) or 1.0
        horizon = math.log(len(self._plays))

        def index(arm: int) -> float:
            seen = rates[arm]
            mean = sum(seen) / len(seen) / best
            return mean + self.width * math.sqrt(horizon / len(seen))

        self._arm = max(self.arms, key=index)
        return Choice(self._arm)
