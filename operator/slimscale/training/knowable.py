"""What one look can know: the loss of a chooser that knows everything but the contention.

Contention (hand-over, a1, b1) shows only with a crowd at the dispatcher. A load seen with few
threads is therefore the same for all contentions, and the best thread count is not. Here a Bayesian
looks at a case in the queueing model's own world: it knows the means of all parts, the CPU, the
tasks outstanding and how often each contention is drawn, and it sees the throughput and the
holding time of the dispatcher at the observed count. It takes the count with the least expected
loss. No predictor can be expected to do better from the same look: what is left is not knowable.
"""

import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.families import draw_workload
from slimscale.simulate.workload import Workload
from slimscale.threads.closed_network import NetworkParameters, solve_network
from slimscale.threads.curve_table import throughput_table
from slimscale.training.workloads import MOST_THREADS, Case, Split, draw_case

__all__ = ["knowable_loss", "knowable_losses"]

FloatArray = NDArray[np.float64]

CONTENTIONS = 40
"""Drawn from what the data holds, for each case."""
MEASURED_WITHIN = 0.03
"""Standard deviation of log throughput and of log holding time, as windows measure them."""
_ROUNDS = 3


def knowable_losses(split: Split, indices: list[int], *, seed: int) -> FloatArray:
    """Losses 1 - T(k)/max T of that chooser on the cases `indices` of a split, (len(indices),)."""
    work = partial(_loss, split, seed=seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        return np.asarray(list(pool.map(work, indices, chunksize=8)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Look:
    """Seconds that a task holds the dispatcher, and tasks a second."""

    held_seconds: float
    tasks_per_second: float

    @staticmethod
    def at(network: NetworkParameters, threads: int) -> "_Look":
        found = solve_network(network, threads)
        rate = float(found.throughput_per_second[-1])
        return _Look(float(found.dispatcher_utilisation[-1]) / rate, rate)

    def log_chance(self, truth: "_Look") -> float:
        held = math.log(self.held_seconds / truth.held_seconds)
        rate = math.log(self.tasks_per_second / truth.tasks_per_second)
        return -0.5 * (held * held + rate * rate) / MEASURED_WITHIN**2


def _loss(split: Split, index: int, *, seed: int) -> float:
    return knowable_loss(draw_case(split, index, seed=seed))


def knowable_loss(case: Case) -> float:
    """Of one case, looked at with its own thread count. The same case gives the same figure."""
    network = _network(case)
    threads = min(case.threads, case.workload.outstanding or case.threads)
    truth = _Look.at(network, threads)
    chances, shares = [], []
    for number in range(CONTENTIONS):
        other = draw_workload(case.seed, number).workload
        candidate = _seen_alike(_with_contention(network, other), truth, threads)
        chances.append(_Look.at(candidate, threads).log_chance(truth))
        curve = _curve(candidate, case)
        shares.append(curve / curve.max())
    chance = np.exp(np.asarray(chances) - max(chances))
    chosen = int(np.argmax(chance @ np.asarray(shares)))
    curve = _curve(network, case)
    return float(1.0 - curve[chosen] / curve.max())


def _seen_alike(network: NetworkParameters, truth: _Look, threads: int) -> NetworkParameters:
    """The dispatch time with which this contention holds the dispatcher as long as was seen."""
    for _ in range(_ROUNDS):
        factor = truth.held_seconds / _Look.at(network, threads).held_seconds
        network = replace(network, dispatch_seconds=min(network.dispatch_seconds * factor, 1e3))
    return network


def _network(case: Case) -> NetworkParameters:
    work, host = case.workload, case.host
    return _with_contention(
        NetworkParameters(
            blocking_seconds=work.blocking.mean_seconds,
            cpu_seconds=max(work.cpu.mean_seconds, 1e-9),
            dispatch_seconds=work.dispatch.mean_seconds,
            cpu_servers=min(host.quota_cores or math.inf, float(host.cores)),
        ),
        work,
    )


def _with_contention(network: NetworkParameters, work: Workload) -> NetworkParameters:
    return replace(
        network,
        contention_linear=work.contention_linear,
        contention_quadratic=work.contention_quadratic,
        contention_handover=work.contention_handover,
    )


def _curve(network: NetworkParameters, case: Case) -> FloatArray:
    """Tasks a second with 1..MOST_THREADS threads, of which no more work than there are tasks."""
    cores = network.cpu_servers
    row = (cores, network.dispatch_seconds / min(1.0, cores))
    curve = throughput_table(network, [row], MOST_THREADS)[0]
    curve = np.minimum(curve, cores / (network.cpu_seconds + network.dispatch_seconds))
    tasks = case.workload.outstanding
    if tasks is not None and tasks < MOST_THREADS:
        curve[tasks:] = curve[tasks - 1]
    return np.asarray(curve, dtype=np.float64)
