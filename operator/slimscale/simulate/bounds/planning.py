"""The static planning problem: what a fleet can do at best when requests come at a steady mean rate.

    x[c,d,w,b] >= 0    requests a second of class c in batches of b on device d at width w
    sum_{d,w,b} x[c,...] = share_c * rate                     everything is served
    sum_{c,w,b} x * l(d,w,b)/b <= 1           for each d      no device works more than all the time
    sum x * accuracy(w) >= rate * min_accuracy                on average, where asked for

(Harrison and Lopez, Queueing Systems 33, 1999; science brief 4.) Each stable stationary policy gives such
an x, so the optimum bounds every policy: capacity, energy at an accuracy, accuracy at a load, and the
mean service time of a request, that is its latency without queueing. It knows of no queue and no peak.
The devices of the plan are those that a policy should use: LPsupport-SED stays within them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse

from slimscale.simulate.bounds.fleet import Fleet, FloatArray, RequestClass
from slimscale.simulate.bounds.objective import ObjectiveWeights, objective_table, per_request

__all__ = [
    "Infeasible", "ObjectiveWeights", "Plan", "capacity", "least_energy", "least_service",
    "most_accuracy", "objective_table", "planning_lp",
]  # fmt: skip

_SUPPORT = 1e-6
"""Of the total rate: a flow below it is the solver's rounding."""


class Infeasible(ValueError):
    """The fleet cannot serve the rate at the accuracy, whatever the policy."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An optimal plan. `value` is what was optimised, in its own unit, a request or a second."""

    rows_per_second: float
    """The rate that is planned for."""
    value: float
    flow: FloatArray
    """[C, D, W, B] requests a second."""
    accuracy: float
    """Mean over requests."""
    service_seconds: float
    """Mean time of a request's own batch."""
    joules: float
    """Dynamic, of a request."""
    utilisation: FloatArray
    """[D], 0 to 1."""
    price_per_busy_second: FloatArray
    """[D] what one more second of a device would be worth, in units of the value a second (dual)."""

    @property
    def cell_flow(self) -> FloatArray:
        """[C, D, W] requests a second."""
        return np.asarray(self.flow.sum(axis=3))

    @property
    def support(self) -> np.ndarray:
        """[C, D, W] bool: the cells with positive flow, in which LPsupport-SED chooses."""
        return np.asarray(self.cell_flow > _SUPPORT * max(self.rows_per_second, 1.0))

    def watts(self, fleet: Fleet, *, idle: bool) -> float:
        """Mean power: dynamic, or with what idle devices draw."""
        dynamic = self.joules * self.rows_per_second
        return dynamic + sum(fleet.idle_watts) if idle else dynamic


_ONE_CLASS = (RequestClass(slo_seconds=1.0),)


def capacity(fleet: Fleet, *, min_accuracy: float = 0.0) -> float:
    """The highest rate in requests a second that can be served at a mean accuracy."""
    seconds = per_request(fleet.batch_seconds())
    count = seconds.size
    rows = [_busy(fleet, seconds, 1)]
    limits = [np.ones(fleet.devices)]
    if min_accuracy > 0.0:
        short = min_accuracy - np.broadcast_to(
            np.asarray(fleet.accuracy)[None, :, None], seconds.shape
        )
        rows.append(sparse.csr_array(short.reshape(1, count)))
        limits.append(np.zeros(1))
    found = optimize.linprog(
        -np.ones(count), A_ub=sparse.vstack(rows), b_ub=np.concatenate(limits), method="highs"
    )
    _check(found, "capacity")
    return float(-found.fun)


def least_energy(fleet: Fleet, *, rows_per_second: float, min_accuracy: float = 0.0) -> Plan:
    """Least dynamic energy; `value` in joules a request."""
    joules = per_request(fleet.batch_joules())
    return _solve(fleet, _ONE_CLASS, -joules[None], rows_per_second, min_accuracy, sign=-1.0)


def least_service(fleet: Fleet, *, rows_per_second: float, min_accuracy: float = 0.0) -> Plan:
    """Least mean time of a request's own batch: latency without queueing; `value` in seconds."""
    seconds = fleet.batch_seconds()
    return _solve(fleet, _ONE_CLASS, -seconds[None], rows_per_second, min_accuracy, sign=-1.0)


def most_accuracy(fleet: Fleet, *, rows_per_second: float) -> Plan:
    """Highest mean accuracy; `value` is it."""
    shape = (1, fleet.devices, fleet.widths, fleet.max_batch_rows)
    accuracy = np.broadcast_to(np.asarray(fleet.accuracy)[None, None, :, None], shape)
    return _solve(fleet, _ONE_CLASS, accuracy, rows_per_second, 0.0, sign=1.0)


def planning_lp(
    fleet: Fleet,
    *,
    rows_per_second: float,
    classes: Sequence[RequestClass],
    weights: ObjectiveWeights | None = None,
    inflation: float = 1.0,
) -> Plan:
    """The plan of most J a request; `value` is its mean J, a bound on that of every policy.

    `inflation` plans for so many times the rate: room for bursts. What is more than the fleet can carry
    at all is planned as that (less a thousandth), so that there is always a plan; its
    `rows_per_second` says which rate it is for. A plan at an inflated rate is no bound.
    """
    weights = weights or ObjectiveWeights()
    rate = rows_per_second * inflation
    most = _class_capacity(fleet, classes)
    gains = np.stack([objective_table(fleet, one, weights) for one in classes])
    return _solve(fleet, classes, gains, min(rate, 0.999 * most), 0.0, sign=1.0)


# ---- inside


def _busy(fleet: Fleet, seconds: FloatArray, classes: int) -> sparse.csr_array:
    """[D, C*D*W*B]: device seconds that one request a second takes of each device."""
    cells = fleet.widths * fleet.max_batch_rows
    one = sparse.block_diag([seconds[d].reshape(1, cells) for d in range(fleet.devices)])
    return sparse.csr_array(sparse.hstack([one] * classes))


def _class_capacity(fleet: Fleet, classes: Sequence[RequestClass]) -> float:
    """The highest rate at which each class gets the widths that are accurate enough for it."""
    seconds = per_request(fleet.batch_seconds())
    count, total = len(classes), len(classes) * seconds.size
    served = sparse.block_diag([np.ones((1, seconds.size))] * count)
    shares = sparse.csr_array(-np.asarray([[one.share] for one in classes]))
    allowed = np.concatenate([_allowed(fleet, one, seconds.shape) for one in classes])
    found = optimize.linprog(
        np.concatenate([np.zeros(total), [-1.0]]),
        A_ub=sparse.hstack([_busy(fleet, seconds, count), sparse.csr_array((fleet.devices, 1))]),
        b_ub=np.ones(fleet.devices),
        A_eq=sparse.hstack([served, shares]),
        b_eq=np.zeros(count),
        bounds=[(0.0, None if ok else 0.0) for ok in allowed] + [(0.0, None)],
        method="highs",
    )
    _check(found, "capacity")
    return float(-found.fun)


def _allowed(fleet: Fleet, one: RequestClass, shape: tuple[int, ...]) -> np.ndarray:
    enough = np.asarray(fleet.accuracy) >= one.min_accuracy
    if not enough.any():
        raise Infeasible(
            f"min_accuracy is {one.min_accuracy:g} and the widest width has"
            f" {max(fleet.accuracy):g}; ask for no more than that"
        )
    return np.broadcast_to(enough[None, :, None], shape).reshape(-1)


def _solve(
    fleet: Fleet,
    classes: Sequence[RequestClass],
    gains: FloatArray,
    rate: float,
    min_accuracy: float,
    *,
    sign: float,
) -> Plan:
    """Maximises the mean of `gains` [C, D, W, B] over requests; `sign` turns it into the value."""
    if not rate > 0.0:
        raise ValueError(f"rows_per_second is {rate:g}; give more than 0")
    seconds = fleet.batch_seconds()
    count, cells = len(classes), seconds.size
    accuracy = np.broadcast_to(np.asarray(fleet.accuracy)[None, :, None], seconds.shape)
    # Shares, not rates, are the variables: all of them near 1, as solvers like it.
    rows = [_busy(fleet, per_request(seconds) * rate, count)]
    limits = [np.ones(fleet.devices)]
    if min_accuracy > 0.0:
        rows.append(sparse.csr_array(-np.tile(accuracy.reshape(1, cells), (1, count))))
        limits.append(np.asarray([-min_accuracy]))
    flat = gains.reshape(-1)
    usable = np.isfinite(flat)
    found = optimize.linprog(
        -np.where(usable, flat, 0.0),
        A_ub=sparse.vstack(rows),
        b_ub=np.concatenate(limits),
        A_eq=sparse.block_diag([np.ones((1, cells))] * count),
        b_eq=np.asarray([one.share for one in classes]),
        bounds=[(0.0, None if ok else 0.0) for ok in usable],
        method="highs",
    )
    _check(found, f"{rate:g} requests a second at a mean accuracy of {min_accuracy:g}")
    share = np.maximum(found.x, 0.0).reshape(count, *seconds.shape)
    of_requests = share.sum(axis=0)
    busy = (of_requests * per_request(seconds)).sum(axis=(1, 2)) * rate
    return Plan(
        rows_per_second=rate,
        value=float(sign * -found.fun),
        flow=share * rate,
        accuracy=float((of_requests * accuracy).sum()),
        service_seconds=float((of_requests * seconds).sum()),
        joules=float((of_requests * per_request(fleet.batch_joules())).sum()),
        utilisation=np.asarray(busy),
        price_per_busy_second=np.asarray(-found.ineqlin.marginals[: fleet.devices] * rate),
    )


def _check(found: optimize.OptimizeResult, asked: str) -> None:
    if found.status == 2:
        raise Infeasible(f"no policy can serve {asked}; ask for less, or add devices")
    if not found.success:
        raise RuntimeError(f"the linear programme for {asked} was not solved: {found.message}")
