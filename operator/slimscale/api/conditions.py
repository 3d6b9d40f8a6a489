"""Condition types and reasons: enumerated, CamelCase, part of the API."""

from enum import StrEnum

__all__ = ["ConditionType", "Reason"]


class ConditionType(StrEnum):
    """All of positive polarity: True is good."""

    READY = "Ready"
    SPEC_VALID = "SpecValid"
    TARGET_RESOLVED = "TargetResolved"
    METRICS_AVAILABLE = "MetricsAvailable"
    RECOMMENDATION_PROVIDED = "RecommendationProvided"
    NO_CONFLICT = "NoConflict"
    APPLIED = "Applied"
    ROUTER_AVAILABLE = "RouterAvailable"
    POOLS_AVAILABLE = "PoolsAvailable"
    POLICY_IN_USE = "PolicyInUse"


class Reason(StrEnum):
    # Ready
    UP_TO_DATE = "UpToDate"
    PROGRESSING = "Progressing"
    RECOMMENDATION_ONLY = "RecommendationOnly"
    SUSPENDED = "Suspended"
    # SpecValid
    VALID = "Valid"
    INVALID = "Invalid"
    # TargetResolved
    TARGET_FOUND = "TargetFound"
    TARGET_NOT_FOUND = "TargetNotFound"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    CONTAINER_AMBIGUOUS = "ContainerAmbiguous"
    NO_PODS = "NoPods"
    NOT_PERMITTED = "NotPermitted"
    # MetricsAvailable
    METRICS_FOUND = "MetricsFound"
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    METRICS_PARTIAL = "MetricsPartial"
    METRICS_INVALID = "MetricsInvalid"
    NO_CONTRACT = "NoContract"
    IDLE = "Idle"
    WARMING_UP = "WarmingUp"
    PROMETHEUS_ERROR = "PrometheusError"
    # RecommendationProvided
    PREDICTED = "Predicted"
    FLOOR_OF_QUOTA = "FloorOfQuota"
    HELD = "Held"
    REVERTED = "Reverted"
    # NoConflict
    NO_OTHER_OWNER = "NoOtherOwner"
    HPA_ON_CPU = "HorizontalPodAutoscalerOnCPU"
    VPA_ON_TARGET = "VerticalPodAutoscalerOnTarget"
    SECOND_SIMWORKLOAD = "SecondSimWorkload"
    OTHER_MANAGER = "OtherManagerReverts"
    # Applied
    ALL_ACKNOWLEDGED = "AllAcknowledged"
    AWAITING_ACKNOWLEDGEMENT = "AwaitingAcknowledgement"
    NOT_ACKNOWLEDGED = "NotAcknowledged"
    RESIZE_IN_PROGRESS = "ResizeInProgress"
    RESIZE_DEFERRED = "ResizeDeferred"
    RESIZE_INFEASIBLE = "ResizeInfeasible"
    RESIZE_ERROR = "ResizeError"
    RESIZE_REFUSED = "ResizeRefused"
    RESIZE_UNSUPPORTED = "ResizeUnsupported"
    NO_LIVE_CHANNEL = "NoLiveChannel"
    NOT_APPLIED = "NotApplied"
    ROLLING_OUT = "RollingOut"
    ROLLOUT_FAILED = "RolloutFailed"
    TEMPLATE_OWNED = "TemplateOwned"
    # Applied, of a SlimInference
    CHILDREN_APPLIED = "ChildrenApplied"
    NAME_TAKEN = "NameTaken"
    CHILD_REFUSED = "ChildRefused"
    CHILD_NOT_WRITTEN = "ChildNotWritten"
    # RouterAvailable, PoolsAvailable
    AVAILABLE = "Available"
    SCALED_TO_ZERO = "ScaledToZero"
    STARTING = "Starting"
    PODS_MISSING = "PodsMissing"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOP = "CrashLoop"
    QUOTA_EXCEEDED = "QuotaExceeded"
    DEVICE_LOST = "DeviceLost"
    # PolicyInUse
    IN_USE = "InUse"
    IN_SHADOW = "InShadow"
    CANARY = "Canary"
    PROVING = "ProvingItself"
    POLICY_NOT_FOUND = "PolicyNotFound"
    POLICY_REFUSED = "PolicyRefused"
    SLO_BURN = "SloBurn"
    WORSE_THAN_INCUMBENT = "WorseThanIncumbent"
