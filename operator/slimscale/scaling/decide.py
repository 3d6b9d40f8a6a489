"""Replicas of all pools of one SlimInference: from what was seen, asked for and remembered.

`decide` is pure: a decision can be replayed from its four arguments. It writes nothing; the
controller applies `PoolDecision.field_value` and publishes `replicas` as a metric.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slimscale.domain.decision import Action, DecisionStep
from slimscale.domain.scaling import (
    DemandObservation,
    PoolDecision,
    PoolObservation,
    ScalingDecision,
    ScalingObservation,
    ScalingOwner,
    ScalingSpec,
)
from slimscale.scaling.capacity import MEASURED, PoolCapacity, backlog_rows, look
from slimscale.scaling.guards import Guarded, Setting, guard, step
from slimscale.scaling.idle import idleness
from slimscale.scaling.memo import ScalingMemo, load_memo
from slimscale.scaling.targets import Wanted, rate_of, want
from slimscale.scaling.victims import deletion_costs
from slimscale.scaling.windows import Need, assess

__all__ = ["decide", "replicas_field"]

RETRY_FACTOR = 3.0
"""A pool whose pods did not start is tried again after so many times the time-out."""
REPLACE_SECONDS = 60.0
"""Between two pods that are replaced for a lost device."""


def decide(
    observation: ScalingObservation,
    spec: ScalingSpec,
    memo: Mapping[str, object] | None,
    now_seconds: float,
) -> ScalingDecision:
    """Desired replicas with reasons. Missing, stale or non-finite figures shrink nothing."""
    remembered, afresh = load_memo(memo)
    steps = [step("Memo", "Fresh", afresh)] if afresh else []
    demand = _current(observation.demand, spec, now_seconds)
    pools = _look(observation, spec, remembered, demand, now_seconds)
    remembered = _learn(remembered, pools, spec, now_seconds)
    blocked = _blocked(pools, remembered, now_seconds)
    steps += _pool_steps(pools, blocked)
    waiting = backlog_rows(
        observation.pools,
        demand.buffered_rows if demand is not None else 0,
        spec.telemetry_stale_seconds,
    )
    rates = {pool.name: rate_of(pool, pools) for pool in pools}
    capacity = sum(rates[pool.name] * pool.ready for pool in pools)
    smallest = min((rate for rate in rates.values() if rate > 0), default=0.0)
    need, remembered = assess(
        demand,
        backlog_rows=waiting,
        ready_rows_per_second=max(capacity, smallest),
        spec=spec,
        memo=remembered,
        now_seconds=now_seconds,
    )
    idle = idleness(pools, demand, waiting_rows=waiting, spec=spec, now_seconds=now_seconds)
    if idle.to_zero:
        emptied = {pool.name: pool.least for pool in pools}
        wanted = Wanted(emptied, (step("Idle", "ToZero", idle.reason),))
    else:
        lowest = {name: min(found[1:]) for name, found in remembered.lowest_rates.items()}
        wanted = want(
            pools, need, waiting_rows=waiting, blocked=blocked, spec=spec, lowest_rates=lowest
        )
    setting = Setting(
        spec=spec,
        memo=remembered,
        now_seconds=now_seconds,
        may_shrink=_may_shrink(pools, need, to_zero=idle.to_zero),
        urgent=need.panicking or sum(pool.current for pool in pools) == 0,
        to_zero=idle.to_zero,
        external=spec.owner is ScalingOwner.EXTERNAL,
    )
    guarded = {pool.name: guard(pool, wanted.pods[pool.name], setting) for pool in pools}
    steps += [*wanted.steps, *(s for outcome in guarded.values() for s in outcome.steps)]
    replaced = _replaced(pools, remembered, now_seconds)
    remembered = _written(remembered, pools, guarded, replaced, now_seconds)
    action = _action(pools, guarded, need)
    return ScalingDecision(
        decided_at_seconds=now_seconds,
        action=action,
        pools=tuple(_pool(p, wanted, guarded[p.name], spec) for p in pools),
        demand_rows_per_second=need.now,
        capacity_rows_per_second=capacity,
        panicking=need.panicking,
        metrics_available=need.complete,
        message=_message(action, pools, guarded, need),
        steps=tuple(steps),
        replace_pods=replaced,
        memo=remembered.to_json(),
    )


def replicas_field(spec: ScalingSpec, pool: PoolObservation, replicas: int) -> int | None:
    """What our server-side apply says of `.spec.replicas`; None leaves the field out.

    With an external owner we go on sending the live value until another manager owns the field:
    a field that its only owner drops falls back to its default, which is 1 (pitfall E6).
    """
    if spec.owner is ScalingOwner.SLIMSCALE:
        return replicas
    return None if pool.replicas_managers else pool.spec_replicas


def _current(
    demand: DemandObservation | None, spec: ScalingSpec, now_seconds: float
) -> DemandObservation | None:
    """Figures that are older than telemetry may be are no figures; buffered rows with them."""
    if demand is None:
        return None
    age = now_seconds - demand.sampled_at_seconds
    if not -spec.telemetry_stale_seconds <= age <= spec.telemetry_stale_seconds:
        return None
    return demand


def _look(
    observation: ScalingObservation,
    spec: ScalingSpec,
    memo: ScalingMemo,
    demand: DemandObservation | None,
    now_seconds: float,
) -> tuple[PoolCapacity, ...]:
    seen = {pool.name: pool for pool in observation.pools}
    rows = demand.rows_per_request if demand is not None else 1.0
    return tuple(
        look(
            pool,
            seen.get(pool.name, PoolObservation(pool.name, 0)),
            spec=spec,
            memo=memo,
            rows_per_request=rows,
            now_seconds=now_seconds,
        )
        for pool in spec.pools
    )


def _learn(
    memo: ScalingMemo, pools: Sequence[PoolCapacity], spec: ScalingSpec, now_seconds: float
) -> ScalingMemo:
    """Service times outlive the pods that showed them; pools of old specs are forgotten."""
    names = {pool.name for pool in pools}
    times = {name: both for name, both in memo.service_times.items() if name in names}
    times |= {p.name: p.service_times for p in pools if p.service_times and p.source == MEASURED}
    blocked = {n: at for n, at in memo.blocked_until.items() if n in names and at > now_seconds}
    retry = now_seconds + RETRY_FACTOR * spec.pending_timeout_seconds
    blocked |= {p.name: retry for p in pools if p.stuck and p.name not in blocked}
    return replace(
        memo,
        service_times=times,
        blocked_until=blocked,
        lowest_rates={
            p.name: _lowest(memo.lowest_rates.get(p.name), rate, spec, now_seconds)
            for p in pools
            if (rate := rate_of(p, pools)) > 0
        },
        start_seconds=_start_seconds(pools, memo.start_seconds, spec.pending_timeout_seconds),
    )


def _lowest(
    known: tuple[float, float, float] | None, rate: float, spec: ScalingSpec, now_seconds: float
) -> tuple[float, float, float]:
    if known is None or known[0] > now_seconds:
        return (now_seconds, rate, rate)
    since, lowest, before = known
    if now_seconds - since < spec.down_stabilisation_seconds:
        return (since, min(lowest, rate), before)
    return (now_seconds, rate, lowest)


def _start_seconds(pools: Sequence[PoolCapacity], known: float | None, most: float) -> float | None:
    """Median over the pods that are ready: what a burst has to wait for.

    A pod that was unready in between seems to have taken hours; it says nothing here.
    """
    took = [
        pod.ready_since_seconds - pod.created_at_seconds
        for pool in pools
        for pod in pool.observed.ready_pods
        if pod.ready_since_seconds is not None
    ]
    seen = sorted(seconds for seconds in took if 0.0 <= seconds <= most)
    return seen[len(seen) // 2] if seen else known


def _blocked(
    pools: Sequence[PoolCapacity], memo: ScalingMemo, now_seconds: float
) -> frozenset[str]:
    waiting = {name for name, until in memo.blocked_until.items() if until > now_seconds}
    return frozenset(pool.name for pool in pools if pool.stuck or pool.name in waiting)


def _pool_steps(pools: Sequence[PoolCapacity], blocked: frozenset[str]) -> list[DecisionStep]:
    steps = []
    for pool in pools:
        if pool.rows_per_second == 0.0:
            words = f"{pool.name}: one row alone takes longer than the SLO"
            steps.append(step("Sizing", "OutOfReach", words, bit=True))
        else:
            rate = "?" if pool.rows_per_second is None else f"{pool.rows_per_second:.3g}"
            words = f"{pool.name}: a pod takes {rate} rows/s within the SLO ({pool.source})"
            steps.append(step("Sizing", "Pod", words))
        if pool.ready and pool.utilisation is None:
            words = f"{pool.name}: no device says how busy it is; rows and times alone count"
            steps.append(step("Utilisation", "Unknown", words))
        if pool.shares_devices:
            words = f"{pool.name}: pods share devices; each device counts once"
            steps.append(step("Utilisation", "Shared", words))
        if pool.stuck:
            pending = [p.name for p in pool.observed.pods if p.unschedulable]
            words = f"{pool.name}: {pool.stuck} pods have not started in time"
            words += f" (unschedulable: {', '.join(pending[:3])})" if pending else ""
            steps.append(step("Pending", "Stuck", words, bit=True))
        elif pool.name in blocked:
            words = f"{pool.name}: its last pods did not start; others go first for a while"
            steps.append(step("Pending", "Blocked", words, bit=True))
    return steps


def _may_shrink(pools: Sequence[PoolCapacity], need: Need, *, to_zero: bool) -> str:
    """Why nothing may shrink; empty when it may."""
    if not need.complete:
        return f"nothing shrinks: {need.reason or 'the demand is not known'}"
    silent = [pool.name for pool in pools if not pool.fresh]
    if silent:
        return f"nothing shrinks: most pods of {', '.join(silent)} say nothing"
    if to_zero:
        return ""
    if need.panicking:
        return "nothing shrinks in a panic"
    if need.lately is None:
        return "nothing shrinks before a whole stabilisation window has been seen"
    return ""


def _replaced(
    pools: Sequence[PoolCapacity], memo: ScalingMemo, now_seconds: float
) -> tuple[str, ...]:
    last = memo.replaced_at_seconds
    if last is not None and 0 <= now_seconds - last < REPLACE_SECONDS:
        return ()
    for pool in pools:
        if any(pod.terminating for pod in pool.observed.pods) or pool.starting:
            continue
        lost = sorted(p.name for p in pool.observed.pods if p.device_lost and not p.terminating)
        if lost:
            return (lost[0],)
    return ()


def _written(
    memo: ScalingMemo,
    pools: Sequence[PoolCapacity],
    guarded: Mapping[str, Guarded],
    replaced: tuple[str, ...],
    now_seconds: float,
) -> ScalingMemo:
    changes = [guarded[pool.name].replicas - pool.current for pool in pools]
    if any(change > 0 for change in changes):
        memo = replace(memo, up_at_seconds=now_seconds)
    if any(change < 0 for change in changes):
        memo = replace(memo, down_at_seconds=now_seconds)
    if replaced:
        memo = replace(memo, replaced_at_seconds=now_seconds)
    return memo


def _action(pools: Sequence[PoolCapacity], guarded: Mapping[str, Guarded], need: Need) -> Action:
    changes = [guarded[pool.name].replicas - pool.current for pool in pools]
    if any(change > 0 for change in changes):
        return Action.SCALE_UP
    if any(change < 0 for change in changes):
        return Action.SCALE_DOWN
    return Action.NO_CHANGE if need.complete else Action.HOLD


def _pool(pool: PoolCapacity, wanted: Wanted, guarded: Guarded, spec: ScalingSpec) -> PoolDecision:
    leaving = max(0, pool.current - guarded.replicas)
    return PoolDecision(
        name=pool.name,
        current=pool.current,
        wanted=wanted.pods[pool.name],
        replicas=guarded.replicas,
        field_value=replicas_field(spec, pool.observed, guarded.replicas),
        pod_rows_per_second=pool.rows_per_second,
        stuck=pool.stuck,
        utilisation=pool.utilisation,
        deletion_costs=deletion_costs(pool.observed.pods, leaving),
    )


def _message(
    action: Action, pools: Sequence[PoolCapacity], guarded: Mapping[str, Guarded], need: Need
) -> str:
    changed = ", ".join(
        f"{pool.name} {pool.current} to {guarded[pool.name].replicas}"
        for pool in pools
        if guarded[pool.name].replicas != pool.current
    )
    rows = "unknown" if need.now is None or not math.isfinite(need.now) else f"{need.now:.3g}"
    words = f"{rows} rows/s needed; {need.reason}"
    return f"{action.value}: {changed}; {words}" if changed else f"{action.value}: {words}"
