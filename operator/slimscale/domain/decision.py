"""What was decided, and why. A decision can be replayed from (Observation, spec, memo, now)."""

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Action", "Confidence", "Decision", "DecisionStep", "ModelView", "PodTarget"]


class Action(StrEnum):
    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    NO_CHANGE = "NoChange"
    HOLD = "Hold"
    """Something was missing, stale or in the way: the last target stays."""
    REVERT = "Revert"


class Confidence(StrEnum):
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class PodTarget:
    """A thread count with its CPU. None: leave that value as it is in each pod."""

    threads: int
    cpu_request_millicores: int | None = None
    cpu_limit_millicores: int | None = None


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """One stage's word: what it was given, what it made of it, why."""

    stage: str
    outcome: str
    reason: str
    constrained: bool = False


@dataclass(frozen=True, slots=True)
class ModelView:
    """What the predictor saw and said, for the status, `slimscale explain` and the log."""

    predictor: str
    task_seconds: float | None = None
    task_cpu_seconds: float | None = None
    task_blocked_seconds: float | None = None
    dispatch_seconds: float | None = None
    contention: float | None = None
    cpu_limit_cores: float | None = None
    throttled_ratio: float | None = None
    ratio: float | None = None
    predicted_tasks_per_second: float | None = None
    """At the target, a pod."""
    measured_tasks_per_second: float | None = None
    """Over the last window, mean of a pod."""
    curve: tuple[tuple[int, float], ...] = ()
    """(threads, tasks a second) at the target's CPU."""


@dataclass(frozen=True, slots=True)
class Decision:
    decision_id: str
    decided_at_seconds: float
    action: Action
    target: PodTarget | None
    """None only when nothing is known yet, not even a quota."""
    uncapped: PodTarget | None
    """Before bounds, LimitRange, quota and node room."""
    lower: PodTarget | None
    upper: PodTarget | None
    confidence: Confidence
    reason: str
    """CamelCase, from api.conditions.Reason: for RecommendationProvided."""
    message: str
    metrics_reason: str
    """CamelCase, from api.conditions.Reason: for MetricsAvailable."""
    metrics_message: str
    may_write: bool
    """False: mode Off, suspended, a conflict, or a hold that must not touch anything."""
    model: ModelView
    steps: tuple[DecisionStep, ...] = ()
    memo: dict[str, object] = field(default_factory=dict)
    """New learned state, JSON: versioned and small; what `decide` gets next time."""
    tier: str = ""
    """What chose the target that holds: Predict, CpuAware, Search, Revert or FloorOfQuota."""
    next_look_seconds: float = 0.0
    """When the next look is worth it; 0: nothing is known of that."""
    next_look_reason: str = ""
