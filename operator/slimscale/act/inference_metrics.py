"""Metrics of SlimInferences. Labels are names and reasons, never texts of users."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from slimscale.act.object_gauges import condition_value, set_or_remove
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
                set_or_remove(gauge, (*key, gone), None)
        self._pools[key] = set(pools)
        for pool in decision.pools:
            set_or_remove(self.desired_replicas, (*key, pool.name), pool.replicas)
            set_or_remove(self.replicas, (*key, pool.name), pool.current)
        for name, shown in pools.items():
            set_or_remove(self.ready_replicas, (*key, name), shown.get("readyReplicas"))
        set_or_remove(self.demand, key, decision.demand_rows_per_second)
        set_or_remove(self.attainment, key, (status.get("slo") or {}).get("attainment"))
        set_or_remove(self.ready, key, condition_value(status, "Ready") or 0.0)
        set_or_remove(self.policy_in_use, key, condition_value(status, "PolicyInUse"))

    def forget(self, key: Key) -> None:
        """The object is gone, and so are its series."""
        for gauge in self._by_object:
            set_or_remove(gauge, key, None)
        for pool in self._pools.pop(key, set()):
            for gauge in self._by_pool:
                set_or_remove(gauge, (*key, pool), None)
