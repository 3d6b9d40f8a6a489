"""Solves the table of control limits: the best count to wait for, by base share, load and busy cost.

The mean cost of limit n is L(n) + c U(n): the mean number in the system, and the share of time that the
device is busy times what that costs. Both come from one linear system a limit (`smdp.py`), whatever c.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import linalg, stats

from slimscale.routing.batching_table import BatchingTable
from slimscale.simulate.bounds.fleet import FloatArray

__all__ = ["BASE_SHARES", "BUSY_COSTS", "LOADS", "limit_costs", "solve_table"]

BASE_SHARES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 0.98)
LOADS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BUSY_COSTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def limit_costs(
    *, base_seconds: float, row_seconds: float, rows_per_second: float, max_rows: int
) -> tuple[FloatArray, FloatArray]:
    """(mean number in the system, busy share), each [max_rows]: for the limits 1..max_rows, exactly."""
    size = 6 * max_rows + 1
    states = np.arange(size)
    served = np.minimum(states, max_rows)
    seconds = base_seconds + row_seconds * served
    moves = np.zeros((size, size))
    for state in range(1, size):
        left = state - served[state]
        chances = stats.poisson.pmf(np.arange(size - left), rows_per_second * seconds[state])
        chances[-1] += max(0.0, 1.0 - chances.sum())
        moves[state, left:] = chances
    numbers, busy = np.empty(max_rows), np.empty(max_rows)
    for limit in range(1, max_rows + 1):
        waits = states < limit
        sojourn = np.where(waits, 1.0 / rows_per_second, seconds)
        growth = np.where(waits, 0.0, rows_per_second * seconds**2 / 2.0)
        chain = moves.copy()
        chain[waits] = 0.0
        chain[states[waits], states[waits] + 1] = 1.0
        equations = np.eye(size) - chain
        equations[:, 0] = sojourn  # the value of the empty state is 0: its column carries the mean
        costs = np.stack([states * sojourn + growth, np.where(waits, 0.0, seconds)], axis=1)
        numbers[limit - 1], busy[limit - 1] = linalg.solve(equations, costs)[0]
    return numbers, busy


def solve_table(
    *,
    base_shares: Sequence[float] = BASE_SHARES,
    loads: Sequence[float] = LOADS,
    busy_costs: Sequence[float] = BUSY_COSTS,
    max_rows: int = 32,
    advance: Callable[[], None] = lambda: None,
) -> BatchingTable:
    """`advance` is called once a (base share, load)."""
    limits = []
    for share in base_shares:
        full = share + (1.0 - share) * max_rows
        by_load = []
        for load in loads:
            numbers, busy = limit_costs(
                base_seconds=share,
                row_seconds=1.0 - share,
                rows_per_second=load * max_rows / full,
                max_rows=max_rows,
            )
            costs = numbers[None] + np.asarray(busy_costs)[:, None] * busy[None]
            # Near ties go to the lower limit: deadlines and bursts, which the model lacks, ask for it.
            near = costs <= costs.min(axis=1, keepdims=True) * (1.0 + 1e-4)
            by_load.append(tuple(int(n) + 1 for n in near.argmax(axis=1)))
            advance()
        limits.append(tuple(by_load))
    return BatchingTable(
        tuple(base_shares), tuple(loads), tuple(busy_costs), tuple(limits), max_rows
    )
