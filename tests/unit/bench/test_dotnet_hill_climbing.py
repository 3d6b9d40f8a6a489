"""The wave on the thread count and what it finds."""

import math

import numpy as np
import pytest

from slimscale.bench.baselines.hill_climbing import DotNetHillClimbing, wave_component
from slimscale.simulate.workload import Host
from tests.support.bench_pods import pod_view


def climb(*, useful: int, start: int, steps: int, falling: float = 0.0, cores: int = 64) -> float:
    """Mean thread count of the last quarter of `steps` seconds."""
    policy = DotNetHillClimbing(seed=1)
    threads = policy.start(Host(start))
    held = []
    for step in range(steps):
        view = pod_view(
            threads, useful=useful, at_seconds=float(step + 1), cores=cores, falling=falling
        )
        threads = policy.choose(view).threads or threads
        held.append(threads)
    return float(np.mean(held[-steps // 4 :]))


def test_goertzel_is_the_fourier_component_of_its_period() -> None:
    samples = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    expected = abs(np.fft.fft(samples)[2]) / len(samples)
    assert abs(wave_component(samples, period=4)) == pytest.approx(float(expected))


def test_goertzel_sees_only_its_own_wave() -> None:
    other = [math.sin(2 * math.pi * n / 8) for n in range(32)]
    assert abs(wave_component(other, period=4)) < 1e-12


def test_it_climbs_while_threads_bring_throughput() -> None:
    assert climb(useful=40, start=4, steps=300) > 25


def test_it_comes_down_where_more_threads_cost_throughput() -> None:
    assert climb(useful=8, start=40, steps=300, falling=0.03) < 20


def test_it_does_not_grow_on_a_busy_cpu() -> None:
    # 0.5 cores a useful thread: on 2 cores the CPU is full from 4 threads on
    assert climb(useful=40, start=4, steps=200, cores=2) < 8


def test_equal_seeds_climb_equally() -> None:
    assert climb(useful=20, start=4, steps=60) == climb(useful=20, start=4, steps=60)
