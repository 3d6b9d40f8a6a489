"""Exact throughputs that `slimscale.threads` has no use for, to check the simulator against.

Both are small Markov chains solved as written; times in seconds, throughput in tasks a second.
"""

import math

import numpy as np
from numpy.typing import NDArray

from slimscale.simulate.workload import Waiting

__all__ = ["constant_dispatch_rate", "shared_cpu_rate"]

FloatArray = NDArray[np.float64]


def constant_dispatch_rate(threads: int, *, task_seconds: float, dispatch_seconds: float) -> float:
    """k threads with exponential task times before a dispatcher that always takes as long.

    Embedded chain at the ends of service (Takács 1962): of the k - n threads outside, each comes
    back during one service with p = 1 - exp(-S/Z). T = 1/(S + p0*Z/k), p0 the chance that a service
    leaves nobody behind, after which the dispatcher rests for Z/k.
    """
    back = -math.expm1(-dispatch_seconds / task_seconds)
    moves = np.zeros((threads, threads))
    for left in range(threads):
        present = max(left, 1)  # after a rest the first to come back is served
        for more in range(threads - present + 1):
            chance = math.comb(threads - present, more) * back**more
            moves[left, present - 1 + more] += chance * (1 - back) ** (threads - present - more)
    nobody = _stationary(moves)[0]
    return float(1.0 / (dispatch_seconds + nobody * task_seconds / threads))


def shared_cpu_rate(
    threads: int,
    *,
    cpu_seconds: float,
    dispatch_seconds: float,
    cores: int,
    waiting: Waiting,
) -> float:
    """k threads that compute and dispatch on C shared cores, both exponential, without blocking.

    Birth-death chain of n threads at the dispatcher (science.md 1.4): all rates times
    min(1, C/active), where the holder and the k - n that compute are active, and with spinning
    everybody.
    """
    here = np.arange(threads + 1, dtype=np.float64)
    active = threads - here + (here > 0)
    if waiting is Waiting.SPIN:
        active = np.full(threads + 1, float(threads))
    speed = np.minimum(1.0, cores / np.maximum(active, 1.0))
    come = speed * (threads - here) / cpu_seconds
    leave = speed * (here > 0) / dispatch_seconds
    log_weight = np.concatenate(([0.0], np.cumsum(np.log(come[:-1]) - np.log(leave[1:]))))
    weight = np.exp(log_weight - log_weight.max())
    return float(np.sum(weight * leave) / np.sum(weight))


def _stationary(moves: FloatArray) -> FloatArray:
    """Of a chain with rows that add up to 1: its one invariant distribution."""
    size = len(moves)
    balance = np.vstack([moves.T - np.eye(size), np.ones(size)])
    right = np.concatenate([np.zeros(size), [1.0]])
    return np.asarray(np.linalg.lstsq(balance, right, rcond=None)[0], dtype=np.float64)
