"""Metrics of SlimInferences. Labels are names and reasons, never texts of users."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from slimscale.domain.scaling import ScalingDecision

__all__ = ["InferenceMetrics"]

Key = tuple[str, str]
_OBJECT = ("namespace", "name")
_POOL = (*_OBJECT, "pool")


class InferenceMetrics:
    """Series of an object vanish with it. The desired replicas are what an HPA or KEDA follows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.desired_replicas = Gauge(
            "slimscale_pool_desired_replicas", "Pods that the operator finds right for a pool.",
            _POOL, registry=registry,
        )  # fmt: skip
        self.replicas = Gauge(
            "slimscale_pool_replicas", "Pods that a pool's Deployment asks for.", _POOL,
            registry=registry,
        )  # fmt: skip
        self.ready_replicas = Gauge(
            "slimscale_pool_ready_replicas", "Pods of a pool that take requests.", _POOL,
            registry=registry,
        )  # fmt: skip
        self.demand = Gauge(
            "slimscale_inference_demand_rows_per_second",
            "Rows a second that the pools are sized for.", _OBJECT, registry=registry,
        )  # fmt: skip
        self.attainment = Gauge(
            "slimscale_inference_slo_attainment_ratio",
            "Share of requests answered in time, last window.", _OBJECT, registry=registry,
        )  # fmt: skip
        self.ready = Gauge(
            "slimscale_sliminference_ready", "1 when the condition Ready is True.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.policy_in_use = Gauge(
            "slimscale_sliminference_policy_in_use",
            "1 when the condition PolicyInUse is True, 0 when it is False.", _OBJECT,
            registry=registry,
        )  # fmt: skip
        self.decisions = Counter(
            "slimscale_scaling_decisions", "Scaling decisions taken.", ("action",),
            registry=registry,
        )  # fmt: skip
        self._by_object = (self.demand, self.attainment, self.ready, self.policy_in_use)
        self._by_pool = (self.desired_replicas, self.replicas, self.ready_replicas)
        self._pools: dict[Key, set[str]] = {}

    def report(self, key: Key, *, decision: ScalingDecision, status: Mapping[str, Any]) -> None:
        """After a reconcile."""
        self.decisions.labels(decision.action.value).inc()
        pools = {str(pool["name"]): pool for pool in status.get("pools") or []}
        for gone in self._pools.get(key, set()) - set(pools):
            for gauge in self._by_pool:
                _set(gauge, (*key, gone), None)
        self._pools[key] = set(pools)
        for pool in decision.pools:
            _set(self.desired_replicas, (*key, pool.name), pool.replicas)
            _set(self.replicas, (*key, pool.name), pool.current)
        for name, shown in pools.items():
            _set(self.ready_replicas, (*key, name), shown.get("readyReplicas"))
        _set(self.demand, key, decision.demand_rows_per_second)
        _set(self.attainment, key, (status.get("slo") or {}).get("attainment"))
        conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
        _set(self.ready, key, 1 if conditions.get("Ready") == "True" else 0)
        policy = {"True": 1, "False": 0}.get(str(conditions.get("PolicyInUse")))
        _set(self.policy_in_use, key, policy)

    def forget(self, key: Key) -> None:
        """The object is gone, and so are its series."""
        for gauge in self._by_object:
            _set(gauge, key, None)
        for pool in self._pools.pop(key, set()):
            for gauge in self._by_pool:
                _set(gauge, (*key, pool), None)


def _set(gauge: Gauge, labels: tuple[str, ...], value: float | None) -> None:
    """What is unknown has no series; it is never 0."""
    if value is not None:
        gauge.labels(*labels).set(value)
    else:
        with suppress(KeyError):
            gauge.remove(*labels)
