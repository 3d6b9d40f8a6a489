"""The operator's own Prometheus metrics. Labels are names and reasons, never texts of users."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slimscale.act.object_gauges import condition_value, set_or_remove
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation

__all__ = ["OperatorMetrics"]

Key = tuple[str, str]

_RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RATIO_BUCKETS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 2.0, 4.0)
_TUNING_STAGES = ("Detect", "Learn", "Probe", "Verify")
_OBJECT = ("namespace", "name")


class OperatorMetrics:
    """Series of an object vanish with it (`forget`), so that no alert fires on a ghost."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reconcile_seconds = Histogram(
            "slimscale_reconcile_duration_seconds", "Time a stage of a reconcile took.",
            ("stage",), registry=registry, buckets=_RECONCILE_BUCKETS,
        )  # fmt: skip
        self.reconcile_errors = Counter(
            "slimscale_reconcile_errors", "Reconciles that failed and are tried again.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.decisions = Counter(
            "slimscale_decisions", "Decisions taken.", ("action", "reason"), registry=registry
        )
        self.target_threads = Gauge(
            "slimscale_target_threads",
            "Threads a pod that were chosen.",
            _OBJECT,
            registry=registry,
        )
        self.current_threads = Gauge(
            "slimscale_current_threads", "Threads acknowledged, mean of a pod.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.target_cpu_cores = Gauge(
            "slimscale_target_cpu_limit_cores", "CPU limit a pod that was chosen.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.measured_rate = Gauge(
            "slimscale_measured_tasks_per_second", "Tasks a second a pod, last window.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.predicted_rate = Gauge(
            "slimscale_predicted_tasks_per_second", "Predicted at the target, a pod.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.unacknowledged_pods = Gauge(
            "slimscale_unacknowledged_pods", "Pods that do not report the target's threads.",
            _OBJECT, registry=registry,
        )  # fmt: skip
        self.ready = Gauge(
            "slimscale_simworkload_ready", "1 when the condition Ready is True.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.observation_age = Gauge(
            "slimscale_observation_age_seconds", "Age of the oldest pod's newest sample.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.predictor_fallbacks = Counter(
            "slimscale_predictor_fallbacks", "Decisions without the learned or analytic predictor.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.prediction_ratio = Histogram(
            "slimscale_prediction_measured_over_predicted_ratio",
            "Measured over predicted throughput in the first window after a change settled.",
            registry=registry, buckets=_RATIO_BUCKETS,
        )  # fmt: skip
        self.tuning_steps = Counter(
            "slimscale_tuning_steps", "Detected changes of load, probes, and how changes were judged.",
            ("stage", "outcome"), registry=registry,
        )  # fmt: skip
        self.writes = Counter(
            "slimscale_api_writes", "Writes to the API server.", ("resource", "result"),
            registry=registry,
        )  # fmt: skip
        self.watch_age = Gauge(
            "slimscale_watch_age_seconds", "Since the last event or bookmark of a watch.",
            ("watch",), registry=registry,
        )  # fmt: skip
        self.certificate_expiry = Gauge(
            "slimscale_webhook_certificate_expiry_timestamp_seconds",
            "When the webhook's certificate ends, seconds since the epoch.", registry=registry,
        )  # fmt: skip
        self.crd_missing_fields = Gauge(
            "slimscale_crd_missing_fields",
            "Fields that the installed CRD lacks, at start; above 0: apply this release's CRD.",
            registry=registry,
        )
        self._gauges = (
            self.target_threads, self.current_threads, self.target_cpu_cores, self.measured_rate,
            self.predicted_rate, self.unacknowledged_pods, self.ready, self.observation_age,
        )  # fmt: skip
        self._awaiting_verdict: dict[Key, float] = {}

    def stage_seconds(self, stage: str, seconds: float) -> None:
        self.reconcile_seconds.labels(stage).observe(seconds)

    def wrote(self, resource: str, result: str) -> None:
        """result: Success, or the CamelCase reason of the failure."""
        self.writes.labels(resource, result).inc()

    def report(
        self,
        key: Key,
        *,
        observation: Observation,
        decision: Decision,
        status: Mapping[str, Any],
        now_seconds: float,
    ) -> None:
        """After a reconcile: what was seen, decided and reached."""
        self.decisions.labels(decision.action.value, decision.reason).inc()
        for step in decision.steps:
            if step.stage in _TUNING_STAGES and step.outcome != "Waiting":
                self.tuning_steps.labels(step.stage, step.outcome).inc()
        if decision.model.predictor in ("none", "floor-of-quota"):
            self.predictor_fallbacks.labels(decision.metrics_reason).inc()
        pods = observation.running_pods
        threads = [p.acknowledged_threads for p in pods if p.acknowledged_threads is not None]
        target = decision.target
        limit = target.cpu_limit_millicores if target is not None else None
        behind = [p for p in pods if target and p.acknowledged_threads != target.threads]
        ages = [now_seconds - p.latest.sampled_at_seconds for p in pods if p.latest is not None]
        set_or_remove(self.target_threads, key, target.threads if target is not None else None)
        set_or_remove(self.current_threads, key, sum(threads) / len(threads) if threads else None)
        set_or_remove(self.target_cpu_cores, key, None if limit is None else limit / 1000)
        set_or_remove(self.measured_rate, key, decision.model.measured_tasks_per_second)
        set_or_remove(self.predicted_rate, key, decision.model.predicted_tasks_per_second)
        set_or_remove(self.unacknowledged_pods, key, len(behind) if target is not None else None)
        set_or_remove(self.observation_age, key, max(ages) if ages else None)
        set_or_remove(self.ready, key, condition_value(status, "Ready") or 0.0)
        self._judge_prediction(key, decision, settled=bool(pods) and not behind)

    def forget(self, key: Key) -> None:
        """The object is gone, and so are its series."""
        self._awaiting_verdict.pop(key, None)
        for gauge in self._gauges:
            set_or_remove(gauge, key, None)

    def _judge_prediction(self, key: Key, decision: Decision, *, settled: bool) -> None:
        """A prediction is compared once: with the first measurement after its change settled."""
        changed = decision.action.value in ("ScaleUp", "ScaleDown")
        predicted = decision.model.predicted_tasks_per_second
        if changed:
            self._awaiting_verdict.pop(key, None)
            if predicted:
                self._awaiting_verdict[key] = predicted
            return
        measured = decision.model.measured_tasks_per_second
        if settled and measured and key in self._awaiting_verdict:
            self.prediction_ratio.observe(measured / self._awaiting_verdict.pop(key))
