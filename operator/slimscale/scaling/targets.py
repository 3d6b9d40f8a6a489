"""How many pods each pool should have for a need: growth, savings, a cheaper mix."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slimscale.domain.decision import DecisionStep
from slimscale.domain.scaling import ScalingSpec
from slimscale.scaling.capacity import PoolCapacity
from slimscale.scaling.guards import step
from slimscale.scaling.pools import PoolOption, cheapest_mix
from slimscale.scaling.windows import Need

__all__ = ["Wanted", "rate_of", "want"]

SOME_DEMAND = 1e-6
"""Rows a second: whatever the demand is, one pod answers it."""
WORTH_A_SWAP = 0.15
"""Share of the cost that another mix has to save before pods are exchanged for it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pods of each pool before the guards, and how they came about."""

    pods: dict[str, int]
    steps: tuple[DecisionStep, ...]


def rate_of(pool: PoolCapacity, pools: Sequence[PoolCapacity]) -> float:
    """Rows a second of a pod, as the mix counts them; 0: it is no use.

    Where no pool can meet the SLO at any load, what a pod sustains counts instead: late answers are
    better than none.
    """
    if pool.rows_per_second is None:
        return 0.0
    if any((other.rows_per_second or 0.0) > 0 for other in pools):
        return pool.rows_per_second
    return pool.sustained_rows_per_second


@dataclass(frozen=True, slots=True)
class _Fleet:
    """All pools with what a decision looks up again and again, by pool."""

    pools: Sequence[PoolCapacity]
    rates: dict[str, float]
    blocked: frozenset[str]
    """Pools that get no more pods: theirs do not start."""

    @property
    def current(self) -> dict[str, int]:
        return {pool.name: pool.current for pool in self.pools}

    @property
    def floor(self) -> dict[str, int]:
        return {pool.name: min(pool.least, pool.most) for pool in self.pools}

    def rows_per_second(self, pods: dict[str, int]) -> float:
        return sum(self.rates[name] * count for name, count in pods.items())

    def cost(self, pods: dict[str, int]) -> float:
        return sum(pool.cost * pods[pool.name] for pool in self.pools)

    def options(self, most: dict[str, int]) -> list[PoolOption]:
        return [
            PoolOption(p.name, self.rates[p.name], p.cost, max(0, most[p.name])) for p in self.pools
        ]

    def room(self, blocked: frozenset[str]) -> dict[str, int]:
        return {p.name: 0 if p.name in blocked else p.most - p.current for p in self.pools}


def want(
    pools: Sequence[PoolCapacity],
    need: Need,
    *,
    waiting_rows: int,
    blocked: frozenset[str],
    spec: ScalingSpec,
    lowest_rates: Mapping[str, float],
) -> Wanted:
    """Pods for the need. `blocked` pools get no more where others can take the demand."""
    fleet = _Fleet(pools, {pool.name: rate_of(pool, pools) for pool in pools}, blocked)
    if need.now is None:
        return Wanted(fleet.current, (step("Demand", "Unknown", need.reason, bit=True),))
    if not any(fleet.rates.values()):
        return _blind(fleet, waiting_rows, spec)
    rows = max(need.now, SOME_DEMAND)
    have = fleet.rows_per_second({p.name: min(p.on_hand, p.most) for p in pools})
    if rows > have * (1.0 + spec.tolerance):
        return _grown(fleet, rows, have)
    if need.lately is None or any(pool.starting for pool in pools):
        why = "pods are starting" if need.lately is not None else "not known for long enough"
        return Wanted(fleet.current, (step("Mix", "Enough", f"no savings: {why}"),))
    most = max(need.lately, rows) * (1.0 + spec.tolerance / 2)
    slow = {name: min(rate, lowest_rates.get(name, rate)) for name, rate in fleet.rates.items()}
    return _saved(replace(fleet, rates=slow), most)


def _grown(fleet: _Fleet, rows: float, have: float) -> Wanted:
    mix = cheapest_mix(fleet.options(fleet.room(fleet.blocked)), rows - have)
    if not mix.feasible:
        # Pools that have never run may help; they are taken for the weakest of the others.
        guess = min(rate for rate in fleet.rates.values() if rate > 0)
        unknown = {p.name: guess for p in fleet.pools if p.rows_per_second is None}
        fleet = _Fleet(fleet.pools, fleet.rates | unknown, fleet.blocked)
        mix = cheapest_mix(fleet.options(fleet.room(fleet.blocked)), rows - have)
    if not mix.feasible and fleet.blocked:
        # Nothing else is left: asking again is better than giving up.
        mix = cheapest_mix(fleet.options(fleet.room(frozenset())), rows - have)
    words = ", ".join(f"{name} +{count}" for name, count in mix.pods.items() if count) or "none"
    steps = [step("Mix", "Grow", f"{rows:.3g} rows/s needed, {have:.3g} on hand: {words}")]
    if not mix.feasible:
        words = "all pools at maxReplicas take less than that"
        steps.append(step("Mix", "Exhausted", words, bit=True))
    pods = {name: count + mix.pods[name] for name, count in fleet.current.items()}
    return Wanted(pods, tuple(steps))


def _saved(fleet: _Fleet, rows: float) -> Wanted:
    """Fewer of the present pods, or another mix where that is much cheaper. Ready pods alone count."""
    current = fleet.current
    floor = {p.name: min(p.least, p.current) for p in fleet.pools}
    spare = {p.name: min(p.current, p.ready) - floor[p.name] for p in fleet.pools}
    fewer = cheapest_mix(fleet.options(spare), rows - fleet.rows_per_second(floor))
    smaller = current
    if fewer.feasible:
        smaller = {name: count + fewer.pods[name] for name, count in floor.items()}
    swapped = _cheaper_mix(fleet, rows, fleet.cost(smaller))
    if swapped is not None:
        pods = {name: max(count, swapped[name]) for name, count in current.items()}
        saved = 1 - fleet.cost(swapped) / fleet.cost(smaller)
        words = f"a mix that costs {saved:.0%} less: {swapped}"
        return Wanted(pods, (step("Mix", "Exchange", words),))
    words = f"{rows:.3g} rows/s needed at most lately"
    if fleet.cost(smaller) >= fleet.cost(current):
        return Wanted(current, (step("Mix", "Enough", words),))
    return Wanted(smaller, (step("Mix", "Save", f"{words}: {smaller}"),))


def _cheaper_mix(fleet: _Fleet, rows: float, present_cost: float) -> dict[str, int] | None:
    """Another mix that is worth the exchange: its pods come first, the dear ones go later."""
    floor = fleet.floor
    most = {
        p.name: (p.ready if p.name in fleet.blocked else p.most) - floor[p.name]
        for p in fleet.pools
    }
    best = cheapest_mix(fleet.options(most), rows - fleet.rows_per_second(floor))
    pods = {name: count + best.pods[name] for name, count in floor.items()}
    if not best.feasible or fleet.cost(pods) >= (1.0 - WORTH_A_SWAP) * present_cost:
        return None
    if all(pods[p.name] <= p.current for p in fleet.pools):
        return None
    return pods


def _blind(fleet: _Fleet, waiting_rows: int, spec: ScalingSpec) -> Wanted:
    """No service time is known: rows that wait are all there is to go by. Never shrinks."""
    total = sum(fleet.current.values())
    waits = [
        pod.telemetry.backlog_seconds
        for pool in fleet.pools
        for pod in pool.observed.ready_pods
        if pod.telemetry is not None and math.isfinite(pod.telemetry.backlog_seconds)
    ]
    late = bool(waits) and sum(waits) / len(waits) > spec.slo_seconds
    more = 0
    if total == 0:
        more = 1
    elif (late or waiting_rows > 0) and not any(pool.starting for pool in fleet.pools):
        more = max(1, math.ceil(total / 2))
    pods = fleet.current
    # Blocked pools last: where all are, asking again is better than giving up.
    for pool in sorted(fleet.pools, key=lambda p: (p.name in fleet.blocked, p.cost)):
        taken = min(more, max(0, pool.most - pool.current))
        pods[pool.name] += taken
        more -= taken
    words = f"service times are unknown; {waiting_rows} rows wait"
    return Wanted(pods, (step("Mix", "Blind", words, bit=True),))
