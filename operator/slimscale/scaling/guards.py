"""What stands between a wanted replica count and a Deployment: bounds, steps, haste, blind savings."""

import math
from dataclasses import dataclass

from slimscale.domain.decision import DecisionStep
from slimscale.domain.scaling import ScalingSpec
from slimscale.scaling.capacity import PoolCapacity
from slimscale.scaling.memo import ScalingMemo

__all__ = ["Guarded", "Setting", "guard", "step"]

HOT = 0.95
"""Utilisation that the pods that stay may be brought to by a scale-in, at most."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What holds for all pools of one decision."""

    spec: ScalingSpec
    memo: ScalingMemo
    now_seconds: float
    may_shrink: str
    """Why no pool may shrink; empty when they may."""
    urgent: bool
    """From zero, or a panic: no cooldown holds growth back."""
    to_zero: bool = False
    external: bool = False
    """Another manager owns the replicas: its own steps and cooldowns hold, ours would double them."""


@dataclass(frozen=True, slots=True)
class Guarded:
    replicas: int
    steps: tuple[DecisionStep, ...]


def guard(pool: PoolCapacity, wanted: int, setting: Setting) -> Guarded:
    """The replicas to write: `wanted` after every guard, each of which says when it bit."""
    steps: list[DecisionStep] = []
    if pool.bounds_problem:
        steps.append(step("Bounds", "Clamped", f"{pool.name}: {pool.bounds_problem}", bit=True))
    target = min(max(wanted, pool.least), pool.most)
    if target != wanted:
        words = f"{pool.name}: {wanted} is outside {pool.least} to {pool.most}"
        steps.append(step("Bounds", "Clamped", words, bit=True))
    if target > pool.current:
        target = _growing(pool, target, setting, steps)
    elif target < pool.current:
        target = _shrinking(pool, target, setting, steps)
    return Guarded(target, tuple(steps))


def _growing(pool: PoolCapacity, target: int, setting: Setting, steps: list[DecisionStep]) -> int:
    spec, memo = setting.spec, setting.memo
    waiting = _left(memo.up_at_seconds, spec.up_cooldown_seconds, setting.now_seconds)
    if setting.external:
        return target
    if waiting > 0 and not setting.urgent and pool.current >= pool.least:
        words = f"{pool.name}: grown lately, again in {waiting:.0f} s"
        steps.append(step("Cooldown", "Held", words, bit=True))
        return pool.current
    most = max(pool.current + max(1, spec.up_pods), math.ceil(pool.current * spec.up_factor))
    if target > max(most, pool.least):
        words = f"{pool.name}: {most} before {target}, in one step"
        steps.append(step("StepLimit", "Limited", words, bit=True))
        return max(most, pool.least)
    return target


def _shrinking(pool: PoolCapacity, target: int, setting: Setting, steps: list[DecisionStep]) -> int:
    spec, memo = setting.spec, setting.memo
    if pool.current > pool.most:
        # Not a choice of ours: the user has lowered the bound.
        return target
    if setting.may_shrink:
        steps.append(step("Hold", "Held", f"{pool.name}: {setting.may_shrink}", bit=True))
        return pool.current
    if setting.to_zero or setting.external:
        return target
    changes = [at for at in (memo.up_at_seconds, memo.down_at_seconds) if at is not None]
    last = max(changes, default=None)
    waiting = _left(last, spec.down_cooldown_seconds, setting.now_seconds)
    if waiting > 0:
        words = f"{pool.name}: changed lately, may shrink in {waiting:.0f} s"
        steps.append(step("Cooldown", "Held", words, bit=True))
        return pool.current
    least = pool.current - max(1, spec.down_pods, math.floor(pool.current * spec.down_factor))
    if target < least:
        words = f"{pool.name}: {least} before {target}, in one step"
        steps.append(step("StepLimit", "Limited", words, bit=True))
        target = least
    return _not_too_hot(pool, target, steps)


def _not_too_hot(pool: PoolCapacity, target: int, steps: list[DecisionStep]) -> int:
    """Devices that are busy with our own rows are not made busier than they can be."""
    used = pool.utilisation
    running = any(
        pod.telemetry is not None and pod.telemetry.running_rows > 0
        for pod in pool.observed.ready_pods
    )
    # Where pods share a device one pod fewer leaves it as it is, and a neighbour may be the load.
    if used is None or not running or target <= 0 or pool.shares_devices:
        return target
    cool = math.ceil(pool.ready * used / HOT - 1e-9)
    if target < cool <= pool.current:
        words = f"{pool.name}: devices are {used:.0%} busy, {cool} pods stay"
        steps.append(step("Utilisation", "Limited", words, bit=True))
        return cool
    return target


def _left(since: float | None, lasts: float, now_seconds: float) -> float:
    """Seconds of a cooldown that are left. A clock that went backwards ends it."""
    if since is None or since > now_seconds:
        return 0.0
    return since + lasts - now_seconds


def step(stage: str, outcome: str, reason: str, *, bit: bool = False) -> DecisionStep:
    return DecisionStep(stage, outcome, reason, bit)
