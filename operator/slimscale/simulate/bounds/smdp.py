"""The best batching of one device: a semi-Markov decision process, solved by relative value iteration.

State s: requests waiting while the device is idle. Requests come by a Poisson process of rate λ.

    a = 0   wait         sojourn 1/λ     s -> s + 1                          cost (w1/λ) s/λ
    a = b   serve b      sojourn l(b)    s -> s - b + Poisson(λ l(b))        cost (w1/λ)(s l(b) + λ l(b)²/2) + w2 ζ(b)

The first term of the cost integrates the number in the system: divided by λ its mean is the mean
response time (Little). So the average cost is g = w1 * mean response + w2 * mean dynamic power.
Data transform to a chain with equal steps (Tijms, A First Course in Stochastic Models, 6.7; science
brief 3, after arXiv 2301.12865): c~ = c/y, p~ = (η/y)(p - δ) + δ with η < min y/(1 - p_ss). States end at
`max_waiting`, where what comes more is lumped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from slimscale.simulate.bounds.fleet import FloatArray

__all__ = ["BatchQueue", "Solution", "control_limit", "evaluate", "limit_policy", "solve"]

IntArray = NDArray[np.int64]
WAIT = 0


@dataclass(frozen=True, slots=True)
class BatchQueue:
    """One device and width under Poisson load. Any unit of time, if it is the same everywhere."""

    batch_seconds: tuple[float, ...]
    """Of a batch of 1..B rows."""
    batch_joules: tuple[float, ...]
    """Dynamic energy of a batch of 1..B rows."""
    rows_per_second: float
    latency_weight: float = 1.0
    """w1: cost of a second of mean response."""
    energy_weight: float = 0.0
    """w2: cost of a watt of mean dynamic power."""
    max_waiting: int = 160

    def __post_init__(self) -> None:
        if len(self.batch_seconds) != len(self.batch_joules):
            raise ValueError(
                f"batch_seconds has {len(self.batch_seconds)} figures and batch_joules"
                f" {len(self.batch_joules)}; give one of each a batch size"
            )
        if not 0.0 < self.load < 1.0:
            raise ValueError(
                f"rows_per_second {self.rows_per_second:g} is {self.load:.3g} of what full batches"
                " can serve; give more than 0 and less than 1 of it"
            )
        if self.max_waiting < 2 * len(self.batch_seconds):
            raise ValueError(
                f"max_waiting is {self.max_waiting}; give at least twice the largest batch"
                f" ({len(self.batch_seconds)})"
            )

    @property
    def largest(self) -> int:
        return len(self.batch_seconds)

    @property
    def load(self) -> float:
        """Of the rate that full batches can serve."""
        return self.rows_per_second * self.batch_seconds[-1] / len(self.batch_seconds)


@dataclass(frozen=True, slots=True)
class Solution:
    """A policy and what it costs on average."""

    average_cost: float
    """g: w1 * mean response + w2 * mean dynamic power."""
    actions: IntArray
    """[max_waiting + 1]: rows to serve when so many wait; 0 waits for one more."""
    relative_values: FloatArray
    """[max_waiting + 1], 0 in the empty state."""


def limit_policy(queue: BatchQueue, limit: int) -> IntArray:
    """Serve as much as fits once `limit` wait; 1 is work-conserving greedy, B static batching."""
    waiting = np.arange(queue.max_waiting + 1)
    served = np.minimum(waiting, queue.largest)
    return np.where(waiting >= max(1, limit), served, WAIT).astype(np.int64)


def control_limit(actions: Sequence[int] | IntArray) -> int | None:
    """The count from which a policy serves all that fits; None: it is no control-limit policy."""
    acts = np.asarray(actions)
    limit = int(np.argmax(acts > WAIT))
    largest = int(acts.max())
    waiting = np.arange(len(acts))
    expected = np.where(waiting >= limit, np.minimum(waiting, largest), WAIT)
    return limit if np.array_equal(acts, expected) else None


def evaluate(queue: BatchQueue, actions: IntArray) -> Solution:
    """Exact average cost of a policy: h = c - g y + P h, h(0) = 0, as linear equations."""
    model = _Model(queue)
    size = queue.max_waiting + 1
    rows, costs, sojourns = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for state in range(size):
        action = int(actions[state])
        if action > min(state, queue.largest):
            raise ValueError(f"{action} rows are served where {state} wait; serve at most {state}")
        rows[state] = model.moves(state, action)
        costs[state], sojourns[state] = model.cost(state, action), model.sojourn[action]
    equations = np.eye(size) - rows
    equations[:, 0] = sojourns  # h(0) is 0, so that its column carries g
    found = np.asarray(linalg.solve(equations, costs))
    values = found.copy()
    values[0] = 0.0
    return Solution(float(found[0]), np.asarray(actions, dtype=np.int64), values)


def solve(queue: BatchQueue, *, tolerance: float = 1e-6, most_sweeps: int = 100_000) -> Solution:
    """The optimum by relative value iteration; `tolerance` is relative to the average cost.

    Begins from the values of the best of three control limits, from where few sweeps are needed.

    Raises:
        RuntimeError: not within the tolerance after `most_sweeps`.
    """
    model = _Model(queue)
    limits = {1, max(1, queue.largest // 2), queue.largest}
    start = min(
        (evaluate(queue, limit_policy(queue, limit)) for limit in limits),
        key=lambda one: one.average_cost,
    )
    values = start.relative_values
    step, scaled_costs, allowed = model.step(), model.scaled_costs(), model.allowed()
    for _ in range(most_sweeps):
        ahead = model.expected(values)
        # p~ v = v + (η/y)(p v - v)
        total = scaled_costs + values + (step / model.sojourn)[:, None] * (ahead - values)
        total[~allowed] = np.inf
        new = total.min(axis=0)
        change = (new - values) / step
        if change.max() - change.min() <= tolerance * max(abs(change.max()), 1e-300):
            actions = np.asarray(total.argmin(axis=0), dtype=np.int64)
            return Solution(float((change.max() + change.min()) / 2.0), actions, new - new[0])
        values = new - new[0]
    raise RuntimeError(f"not within {tolerance:g} of the optimum after {most_sweeps} sweeps")


class _Model:
    """Sojourns [A], costs and transitions; actions are 0 (wait) and 1..B."""

    def __init__(self, queue: BatchQueue) -> None:
        self.queue = queue
        rate = queue.rows_per_second
        self.sojourn = np.asarray((1.0 / rate, *queue.batch_seconds), dtype=np.float64)
        self.energy = queue.energy_weight * np.asarray((0.0, *queue.batch_joules))
        size = queue.max_waiting + 1
        self.arrivals = np.zeros((queue.largest + 1, size))
        """[A, N] chance of n arrivals while the action lasts; the last lumps all above."""
        self.arrivals[WAIT, 1] = 1.0
        for rows, seconds in enumerate(queue.batch_seconds, start=1):
            chances = stats.poisson.pmf(np.arange(size), rate * seconds)
            chances[-1] += max(0.0, 1.0 - chances.sum())
            self.arrivals[rows] = chances

    def cost(self, state: int, action: int) -> float:
        rate, lasts = self.queue.rows_per_second, self.sojourn[action]
        growth = rate * lasts * lasts / 2.0 if action != WAIT else 0.0
        held = self.queue.latency_weight / rate * (state * lasts + growth)
        return float(held + self.energy[action])

    def moves(self, state: int, action: int) -> FloatArray:
        """[S] chances of the next state."""
        size, left = self.queue.max_waiting + 1, state - action
        chances = np.zeros(size)
        chances[left:] = self.arrivals[action, : size - left]
        chances[-1] += self.arrivals[action, size - left :].sum()
        return chances

    def allowed(self) -> NDArray[np.bool_]:
        """[A, S]: no more is served than waits, and at the last state there is no waiting on."""
        actions = np.arange(self.queue.largest + 1)[:, None]
        states = np.arange(self.queue.max_waiting + 1)[None, :]
        may_wait = states < self.queue.max_waiting
        return np.asarray((actions <= states) & ((actions > WAIT) | may_wait))

    def step(self) -> float:
        """η: just below the least y/(1 - p_ss)."""
        stay = self.arrivals[np.arange(self.queue.largest + 1), np.arange(self.queue.largest + 1)]
        stay[WAIT] = 0.0
        return float(0.999 * (self.sojourn / (1.0 - stay)).min())

    def scaled_costs(self) -> FloatArray:
        """[A, S]: η c / y."""
        states = range(self.queue.max_waiting + 1)
        costs = np.asarray([[self.cost(s, a) for s in states] for a in range(len(self.sojourn))])
        return np.asarray(costs * (self.step() / self.sojourn)[:, None])

    def expected(self, values: FloatArray) -> FloatArray:
        """[A, S]: E of the values after the action; what is not allowed holds anything."""
        size = len(values)
        after = np.empty((len(self.sojourn), size))
        padded = np.concatenate([values, np.full(size - 1, values[-1])])
        windows = np.lib.stride_tricks.sliding_window_view(padded, size)  # [left, n]
        by_left = windows @ self.arrivals.T  # [left, A]
        for action in range(len(self.sojourn)):
            after[action] = values[0]
            after[action, action:] = by_left[: size - action, action]
        return after
