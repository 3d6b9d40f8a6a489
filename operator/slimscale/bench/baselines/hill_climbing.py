"""The hill climbing of .NET's thread pool, from its description and published constants.

The thread count carries a small square wave. Goertzel's algorithm finds how much of the throughput
swings at the wave's frequency and in phase with it; that share, over the swing of the threads, is
the local slope. The count moves with the slope, the more decidedly the clearer the wave stands out
of the noise of the two neighbouring bands (science.md 1.8; Hellerstein et al. 2008). All figures
are relative to their means over the history, as in the design papers.
"""

import cmath
import math
from dataclasses import dataclass, field

import numpy as np

from slimscale.bench.policy import MAX_THREADS, Choice, PolicyView, within
from slimscale.simulate.workload import Host

__all__ = ["DotNetHillClimbing", "wave_component"]

WAVE_PERIOD = 4
"""Samples of one swing of the wave: two high, two low."""
HISTORY_PERIODS = 8
SIGNAL_TO_NOISE = 3.0
BIAS = 0.15
"""A further thread must bring this share of its proportional throughput to be worth having."""
LARGEST_WAVE = 20
MOST_CHANGE_PER_SECOND = 4.0
MOST_CHANGE_PER_SAMPLE = 20.0
GAIN_EXPONENT = 2.0
NOISE_SMOOTHING = 0.01
LARGEST_SAMPLE_ERROR = 0.15
BUSY_CPU = 0.95
"""Above it the pool does not grow."""
SHORTEST_SAMPLE_SECONDS, LONGEST_SAMPLE_SECONDS = 0.5, 2.0
"""Ten times .NET's, as the tasks here are longer in proportion; the shortest is a step."""


def wave_component(samples: list[float], period: float) -> complex:
    """Goertzel: the Fourier component of `samples` at one swing every `period` samples.

    Divided by the number of samples, so the size does not grow with the history.
    """
    turn = 2.0 * math.pi / period
    factor = 2.0 * math.cos(turn)
    last, before = 0.0, 0.0
    for sample in samples:
        last, before = factor * last - before + sample, last
    return (last - before * cmath.exp(-1j * turn)) / len(samples)


@dataclass(slots=True)
class DotNetHillClimbing:
    """Asked often; a sample ends at a random interval once enough tasks have finished."""

    seed: int
    name: str = "dotnet-hill-climbing"
    step_seconds: float = 0.5
    apply_delay_seconds: float = 0.0
    _setting: float = field(default=1.0, repr=False)
    _now: int = field(default=1, repr=False)
    _rates: list[float] = field(default_factory=list, repr=False)
    _threads: list[float] = field(default_factory=list, repr=False)
    _total: int = field(default=0, repr=False)
    _noise: float = field(default=0.0, repr=False)
    _tasks: float = field(default=0.0, repr=False)
    _seconds: float = field(default=0.0, repr=False)
    _until: float = field(default=LONGEST_SAMPLE_SECONDS, repr=False)
    _random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._until = self._interval()

    def start(self, host: Host) -> int:
        self._now = within(host.cores)
        self._setting = float(self._now)
        return self._now

    def choose(self, view: PolicyView) -> Choice:
        self._tasks += view.tasks
        self._seconds += view.span_seconds
        if self._seconds < self._until:
            return Choice(None)
        if self._tasks <= 0 or (self._now - 1.0) / self._tasks >= LARGEST_SAMPLE_ERROR:
            return Choice(None)  # too few tasks: their ends fall into the sample by chance
        rate, seconds = self._tasks / self._seconds, self._seconds
        self._tasks, self._seconds, self._until = 0.0, 0.0, self._interval()
        history = WAVE_PERIOD * HISTORY_PERIODS
        self._rates = [*self._rates, rate][-history:]
        self._threads = [*self._threads, float(self._now)][-history:]
        self._total += 1
        busy = view.cpu_used_cores / view.cores_in_reach
        self._now = self._next(seconds, busy=busy)
        return Choice(self._now)

    def _next(self, seconds: float, *, busy: float) -> int:
        ratio, confidence = self._slope()
        move = min(1.0, max(-1.0, ratio.real)) * min(1.0, max(0.0, confidence))
        gain = MOST_CHANGE_PER_SECOND * seconds
        move = math.copysign(abs(move) ** GAIN_EXPONENT, move) * gain
        move = min(move, MOST_CHANGE_PER_SAMPLE)
        if move > 0 and busy > BUSY_CPU:
            move = 0.0
        wave = self._wave_size()
        self._setting = min(max(self._setting + move, 1.0), float(MAX_THREADS - wave))
        high = (self._total // (WAVE_PERIOD // 2)) % 2
        return within(math.floor(self._setting + wave * high))

    def _slope(self) -> tuple[complex, float]:
        """Throughput's swing over the threads' swing, less the bias; and how far to trust it."""
        usable = len(self._rates) // WAVE_PERIOD * WAVE_PERIOD
        if usable <= WAVE_PERIOD:
            return 0j, 0.0
        rates, threads = self._rates[-usable:], self._threads[-usable:]
        mean_rate, mean_threads = sum(rates) / usable, sum(threads) / usable
        if mean_rate <= 0:
            return 0j, 0.0
        near = (usable / (usable / WAVE_PERIOD + 1), usable / (usable / WAVE_PERIOD - 1))
        rate_wave = wave_component(rates, WAVE_PERIOD) / mean_rate
        noise = max(abs(wave_component(rates, period) / mean_rate) for period in near)
        thread_wave = wave_component(threads, WAVE_PERIOD) / mean_threads
        thread_noise = max(abs(wave_component(threads, period) / mean_threads) for period in near)
        self._noise = (
            noise
            if self._noise == 0.0
            else NOISE_SMOOTHING * noise + (1.0 - NOISE_SMOOTHING) * self._noise
        )
        if abs(thread_wave) <= 0:
            return 0j, 0.0
        ratio = (rate_wave - BIAS * thread_wave) / thread_wave
        worst = max(self._noise, thread_noise)
        return ratio, abs(thread_wave) / worst / SIGNAL_TO_NOISE if worst > 0 else 1.0

    def _wave_size(self) -> int:
        """As large as the noise asks for, at least one thread."""
        wanted = round(self._setting * self._noise * SIGNAL_TO_NOISE * 2.0)
        return max(1, min(wanted, LARGEST_WAVE))

    def _interval(self) -> float:
        return float(self._random.uniform(SHORTEST_SAMPLE_SECONDS, LONGEST_SAMPLE_SECONDS))
