"""Steady states of small queueing networks by a dense linear solve.

States, rates and the balance equations are written out; no product form, no recursion. So an
agreement with `slimscale.threads` is evidence, not a repetition.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

State = TypeVar("State", bound=tuple[int, ...])


@dataclass(frozen=True, slots=True)
class NetworkSteadyState:
    throughput_per_second: float
    mean_blocked: float
    mean_at_cpu: float
    mean_at_dispatcher: float
    dispatcher_utilisation: float


def stationary(
    states: list[State], flows: Iterable[tuple[State, State, float]]
) -> NDArray[np.float64]:
    """Solve p*Q = 0, sum(p) = 1 for the chain with these transitions (from, to, rate)."""
    index = {state: position for position, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    for origin, target, rate in flows:
        generator[index[origin], index[target]] += rate
        generator[index[origin], index[origin]] -= rate
    system = generator.T.copy()
    system[-1, :] = 1.0  # one balance equation follows from the others
    right = np.zeros(len(states))
    right[-1] = 1.0
    return np.asarray(np.linalg.solve(system, right), dtype=np.float64)


def solve_three_stations(
    *,
    threads: int,
    blocking_seconds: float,
    cpu_seconds: float,
    dispatch_seconds: float,
    cpu_servers: float,
    contention_linear: float = 0.0,
    contention_quadratic: float = 0.0,
) -> NetworkSteadyState:
    """Blocking part, CPU part, dispatcher, in this order and round again. No part may be 0."""
    states = [
        (blocked, computing, threads - blocked - computing)
        for blocked, computing in product(range(threads + 1), repeat=2)
        if blocked + computing <= threads
    ]

    def dispatch_rate(queued: int) -> float:
        growth = 1 + contention_linear * (queued - 1) + contention_quadratic * queued * (queued - 1)
        return 1 / (dispatch_seconds * growth)

    flows: list[tuple[tuple[int, int, int], tuple[int, int, int], float]] = []
    for state in states:
        blocked, computing, queued = state
        if blocked:
            target = (blocked - 1, computing + 1, queued)
            flows.append((state, target, blocked / blocking_seconds))
        if computing:
            target = (blocked, computing - 1, queued + 1)
            flows.append((state, target, min(computing, cpu_servers) / cpu_seconds))
        if queued:
            target = (blocked + 1, computing, queued - 1)
            flows.append((state, target, dispatch_rate(queued)))
    weights = stationary(states, flows)
    means = np.asarray(states, dtype=np.float64).T @ weights
    busy = [(weight, state[2]) for weight, state in zip(weights, states, strict=True) if state[2]]
    return NetworkSteadyState(
        throughput_per_second=float(sum(weight * dispatch_rate(q) for weight, q in busy)),
        mean_blocked=float(means[0]),
        mean_at_cpu=float(means[1]),
        mean_at_dispatcher=float(means[2]),
        dispatcher_utilisation=float(sum(weight for weight, _ in busy)),
    )


def solve_cyclic(
    *, tasks: int, threads: int, dispatch_rate: float, execution_rate: float
) -> tuple[float, NDArray[np.float64]]:
    """Throughput, and P(n tasks on the workers' side) for n = 0..tasks."""
    states = [(on_workers,) for on_workers in range(tasks + 1)]
    flows = [((n,), (n + 1,), dispatch_rate) for n in range(tasks)]
    flows += [((n,), (n - 1,), min(n, threads) * execution_rate) for n in range(1, tasks + 1)]
    weights = stationary(states, flows)
    finished = sum(weight * min(n, threads) * execution_rate for n, weight in enumerate(weights))
    return float(finished), weights
