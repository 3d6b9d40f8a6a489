"""The best routing of two devices and a few widths, exactly: relative value iteration.

Work is counted in phases. Width w of device d takes `phases[w]` of them, one after the other, each
exponential with mean `phase_seconds[d]`; requests of a device are served first come, first served and
one at a time. So a state is how many phases each device has ahead of it, and the time until the answer of
a request that goes to (d, w) is Erlang of x[d] + phases[w] phases, known when it is routed: its expected
J is exact, with the cap on latency and the chance to be late. Requests come by a Poisson process.
Batches are left out: they are the SMDP's subject (`smdp.py`).

Uniformised at Λ = λ + μ1 + μ2 (science brief 4; Puterman, Markov Decision Processes, 11.5):

    λ g + Λ h(x) = λ sum_c share_c max_{d,w} (J_c(x[d] + k_w) + h(x + k_w e_d)) + sum_d μ_d h((x - e_d)+)

g is the mean J of a request. A given policy's g comes from the same equations, which are then linear.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse import linalg

from slimscale.simulate.bounds.fleet import Fleet, FloatArray, RequestClass
from slimscale.simulate.bounds.planning import ObjectiveWeights

__all__ = ["RoutingSolution", "TwoDevices", "evaluate_routing", "shortest_expected_delay"]
__all__ += ["solve_routing"]

IntArray = NDArray[np.int64]
LOST = -1
_NEVER = -1e30


@dataclass(frozen=True, slots=True)
class TwoDevices:
    """Two devices that serve one request at a time; see the module for the units."""

    phase_seconds: tuple[float, float]
    phases: tuple[int, ...]
    """Of each width."""
    accuracy: tuple[float, ...]
    dynamic_watts: tuple[float, float]
    classes: tuple[RequestClass, ...]
    requests_per_second: float
    weights: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    queue_cap: int = 30
    """Requests of the widest width that a device holds at most."""

    def __post_init__(self) -> None:
        if len(self.phases) != len(self.accuracy):
            raise ValueError(
                f"phases has {len(self.phases)} figures and accuracy {len(self.accuracy)}; give"
                " one of each a width"
            )
        if min(self.phases) < 1 or min(self.phase_seconds) <= 0.0:
            raise ValueError("phases must be 1 or more and phase_seconds above 0")

    @property
    def limit(self) -> int:
        """Phases that a device holds at most."""
        return self.queue_cap * max(self.phases)

    @property
    def actions(self) -> list[tuple[int, int]]:
        """(device, width), in the order of all arrays here."""
        return list(product(range(2), range(len(self.phases))))

    @property
    def lost_gain(self) -> float:
        """J of a request that finds no room: late, as late as counts, and with no answer at all."""
        of = self.weights
        return -of.latency * of.latency_cap - of.miss - of.accuracy * of.reference_accuracy

    def fleet(self) -> Fleet:
        """As the planning LP sees it: batches of one."""
        widest = max(self.phases)
        return Fleet(
            base_seconds=(0.0, 0.0),
            row_seconds=(self.phase_seconds[0] * widest, self.phase_seconds[1] * widest),
            dynamic_watts=self.dynamic_watts,
            idle_watts=(0.0, 0.0),
            accuracy=self.accuracy,
            flops_ratio=tuple(count / widest for count in self.phases),
            max_batch_rows=1,
        )


@dataclass(frozen=True, slots=True)
class RoutingSolution:
    """A policy and the mean J of a request under it."""

    mean_objective: float
    choices: IntArray
    """[C, X, X]: index into `actions` for x phases on each device; LOST where there is no room."""


def solve_routing(
    system: TwoDevices, *, tolerance: float = 1e-5, most_sweeps: int = 50_000
) -> RoutingSolution:
    """The optimum. `tolerance` is in J a request."""
    gains = _gains(system)

    rate = system.requests_per_second
    speeds = [1.0 / seconds for seconds in system.phase_seconds]
    clock = rate + sum(speeds)
    values = np.zeros((system.limit + 1,) * 2)
    for _ in range(most_sweeps):
        total = gains + _after(system, values)[None]
        gained = total.max(axis=1)
        lost = gained <= _NEVER / 2
        gained[lost] = (system.lost_gain + np.broadcast_to(values, lost.shape))[lost]
        new = rate * np.tensordot(_shares(system), gained, axes=1)
        new += speeds[0] * np.concatenate([values[:1], values[:-1]])
        new += speeds[1] * np.concatenate([values[:, :1], values[:, :-1]], axis=1)
        change = (new - clock * values) / rate
        if change.max() - change.min() <= tolerance:
            mean = float((change.max() + change.min()) / 2.0)
            choices = np.where(lost, LOST, total.argmax(axis=1)).astype(np.int64)
            return RoutingSolution(mean, choices)
        values = new / clock
        values -= values[0, 0]
    raise RuntimeError(f"not within {tolerance:g} after {most_sweeps} sweeps; lower the load")


def evaluate_routing(system: TwoDevices, choices: IntArray) -> RoutingSolution:
    """What given choices [C, X, X] come to, exactly. LOST loses the request."""
    side = system.limit + 1
    states = np.arange(side * side)
    at = np.stack([states // side, states % side])
    rate, gains = system.requests_per_second, _gains(system)
    speeds = [1.0 / seconds for seconds in system.phase_seconds]
    columns, weights = [states], [np.full(side * side, -(rate + sum(speeds)))]
    right = np.zeros(side * side)
    jumps = np.asarray(
        [[system.phases[w] * (d == own) for d, w in system.actions] for own in (0, 1)]
    )
    for number, share in enumerate(_shares(system)):
        chosen = choices[number].reshape(-1)
        kept = chosen >= 0
        jump = np.where(kept, jumps[:, np.maximum(chosen, 0)], 0)
        columns.append((at[0] + jump[0]) * side + at[1] + jump[1])
        weights.append(np.full(side * side, rate * share))
        gain = gains[number].reshape(len(system.actions), -1)[np.maximum(chosen, 0), states]
        right -= rate * share * np.where(kept, gain, system.lost_gain)
    for device, speed in enumerate(speeds):
        left = at.copy()
        left[device] = np.maximum(left[device] - 1, 0)
        columns.append(left[0] * side + left[1])
        weights.append(np.full(side * side, speed))
    equations = sparse.coo_array(
        (np.concatenate(weights), (np.tile(states, len(columns)), np.concatenate(columns)))
    ).tolil()
    equations[:, [0]] = np.full((side * side, 1), -rate)  # h(0) is 0: its column carries g
    return RoutingSolution(float(linalg.spsolve(equations.tocsc(), right)[0]), choices)


def shortest_expected_delay(
    system: TwoDevices,
    *,
    widths: Sequence[int] | None = None,
    support: NDArray[np.bool_] | None = None,
    widest_within: float | None = None,
) -> IntArray:
    """[C, X, X]: SED's choices. Its expected delay (x + k) * phase is exact here.

    `widths`: only those. `support` [C, D, W]: only those cells (LPsupport-SED). `widest_within`: the most
    accurate width that is expected to end within that share of the SLO, else the shortest delay.
    """
    size = system.limit + 1
    delay = np.full((len(system.classes), len(system.actions), size, size), np.inf)
    here = np.arange(size)
    for index, (device, width) in enumerate(system.actions):
        if widths is not None and width not in widths:
            continue
        ahead = (here + system.phases[width]) * system.phase_seconds[device]
        ahead = np.where(here + system.phases[width] > system.limit, np.inf, ahead)
        delay[:, index] = ahead[:, None] if device == 0 else ahead[None, :]
        if support is not None:
            delay[~support[:, device, width], index] = np.inf
    choices = delay.argmin(axis=1)
    if widest_within is not None:
        accuracy = np.asarray([system.accuracy[width] for _, width in system.actions])
        for number, one in enumerate(system.classes):
            within = delay[number] <= widest_within * one.slo_seconds
            rank = np.where(within, -accuracy[:, None, None] * 1e6 + delay[number], np.inf)
            choices[number] = np.where(within.any(axis=0), rank.argmin(axis=0), choices[number])
    lost = ~np.isfinite(delay.min(axis=1))
    return np.where(lost, LOST, choices).astype(np.int64)


# ---- inside


def _shares(system: TwoDevices) -> FloatArray:
    share = np.asarray([one.share for one in system.classes], dtype=np.float64)
    return np.asarray(share / share.sum())


def _after(system: TwoDevices, values: FloatArray) -> FloatArray:
    """[A, X, X]: the value of where an action leads; far below all others where there is no room."""
    found = np.full((len(system.actions), *values.shape), _NEVER)
    for index, (device, width) in enumerate(system.actions):
        phases = system.phases[width]
        if device == 0:
            found[index, :-phases] = values[phases:]
        else:
            found[index, :, :-phases] = values[:, phases:]
    return found


def _gains(system: TwoDevices) -> FloatArray:
    """[C, A, X, X]: expected J of a request by class, action and state."""
    size, of = system.limit + 1, system.weights
    found = np.empty((len(system.classes), len(system.actions), size, size))
    for number, one in enumerate(system.classes):
        for index, (device, width) in enumerate(system.actions):
            count = np.arange(size) + system.phases[width]
            phase = system.phase_seconds[device]
            cost = of.latency * _capped_erlang(count, phase, one.slo_seconds, of.latency_cap)
            cost += of.miss * special.gammaincc(count, one.slo_seconds / phase)
            cost += of.per_joule * system.dynamic_watts[device] * system.phases[width] * phase
            gain = of.accuracy * (system.accuracy[width] - of.reference_accuracy) - cost
            if system.accuracy[width] < one.min_accuracy:
                gain = np.full(size, _NEVER)
            found[number, index] = gain[:, None] if device == 0 else gain[None, :]
    return found


def _capped_erlang(count: IntArray, phase: float, slo: float, cap: float) -> FloatArray:
    """E min(T/SLO, cap) of T Erlang: E[T; T <= t] = n phase P(n + 1, t/phase)."""
    limit = cap * slo / phase
    below = count * phase / slo * special.gammainc(count + 1, limit)
    return np.asarray(below + cap * special.gammaincc(count, limit))
