"""The autoscalers that are compared: ours, Kubernetes' HPA on CPU, Knative's KPA, a fixed count.

HPA and KPA are written from their controllers' algorithms, for one pool: kubernetes/kubernetes
pkg/controller/podautoscaler (replica_calculator.go, horizontal.go) with the controller manager's
defaults, and knative/serving pkg/autoscaler/scaling/autoscaler.go with config-autoscaler's.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from slimscale.domain.scaling import ScalingSpec
from slimscale.scaling.decide import decide
from slimscale.simulate.serving.plane import METRICS_SECONDS, PlaneView
from slimscale.simulate.serving.pod import SimPod

__all__ = ["Fixed", "Hpa", "Kpa", "Ours"]

Answer = tuple[Mapping[str, int], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many as at the start, always."""

    period_seconds: float = math.inf

    def scale(self, view: PlaneView) -> Answer:
        return view.cluster.replicas, {}


@dataclass(slots=True)
class Ours:
    """`slimscale.scaling.decide` as the controller calls it: soon again while something changes."""

    spec: ScalingSpec
    quiet_seconds: float
    """Between two looks while nothing changes and no pod starts."""
    changing_seconds: float = 5.0
    """Between two looks otherwise; the controller's."""
    period_seconds: float = 1.0
    memo: Mapping[str, object] = field(default_factory=dict)
    _next_look: float = 0.0

    def scale(self, view: PlaneView) -> Answer:
        if view.now < self._next_look:
            return {}, {}
        decision = decide(view.observation, self.spec, self.memo, view.now)
        self.memo = decision.memo
        costs = {name: cost for p in decision.pools for name, cost in p.deletion_costs.items()}
        changes = any(pool.replicas != pool.current for pool in decision.pools)
        starting = any(pool.starting_pods for pool in view.observation.pools)
        soon = min(self.changing_seconds, self.quiet_seconds)
        self._next_look = view.now + (soon if changes or starting else self.quiet_seconds)
        return decision.replicas(), costs


@dataclass(slots=True)
class Hpa:
    """autoscaling/v2 with one Resource metric, CPU utilisation, and default behaviour."""

    target: float
    """averageUtilization as a share: 0.7 is 70 %."""
    least: int
    most: int
    period_seconds: float = 15.0
    tolerance: float = 0.1
    down_stabilisation_seconds: float = 300.0
    initialisation_seconds: float = 300.0
    """--horizontal-pod-autoscaler-cpu-initialization-period."""
    _wishes: deque[tuple[float, int]] = field(default_factory=deque)
    _added: deque[tuple[float, int]] = field(default_factory=deque)

    def scale(self, view: PlaneView) -> Answer:
        (pool,) = view.cluster.service.pools
        current = view.cluster.replicas[pool.name]
        wish = min(max(self._proposed(view, pool.name, current), self.least), self.most)
        self._wishes.append((view.now, wish))
        while self._wishes[0][0] < view.now - self.down_stabilisation_seconds:
            self._wishes.popleft()
        highest = max(w for _, w in self._wishes)
        target = wish if wish > current else min(current, highest)
        return {pool.name: self._in_steps(view.now, current, target)}, {}

    def _in_steps(self, now: float, current: int, target: int) -> int:
        """Default policies: 4 pods or 100 % in 15 s upwards, all at once downwards."""
        while self._added and self._added[0][0] <= now - 15.0:
            self._added.popleft()
        before = current - sum(pods for _, pods in self._added)
        if target > current:
            target = max(current, min(target, max(before + 4, before * 2)))
            self._added.append((now, target - current))
        return target

    def _proposed(self, view: PlaneView, pool: str, current: int) -> int:
        """replica_calculator.go, GetResourceReplicas: pods by group, then the ratio."""
        usage, ignored, missing = self._grouped(view, pool)
        if not usage:
            return current
        ratio = sum(usage) / len(usage) / self.target
        rebalance = ignored > 0 and ratio > 1.0
        if not rebalance and not missing:
            small = abs(1.0 - ratio) <= self.tolerance
            return current if small else math.ceil(ratio * len(usage))
        # Missing pods count as fully used on the way down and as idle on the way up; unready ones
        # as idle on the way up.
        counted = len(usage) + missing + (ignored if rebalance else 0)
        total = sum(usage) + (missing if ratio < 1.0 else 0.0)
        again = total / counted / self.target
        turned = (ratio < 1.0 < again) or (again < 1.0 < ratio)
        if abs(1.0 - again) <= self.tolerance or turned:
            return current
        replicas = math.ceil(again * counted)
        return max(replicas, current) if again > 1.0 else min(replicas, current)

    def _grouped(self, view: PlaneView, pool: str) -> tuple[list[float], int, int]:
        """groupPods: (usage of pods that count, how many are ignored, how many have no figure)."""
        usage: list[float] = []
        ignored, missing = 0, 0
        for pod in view.cluster.of(pool):
            if pod.draining:
                continue
            if view.now < pod.placed_at:
                ignored += 1  # Pending
            elif pod.name not in view.cpu:
                missing += 1
            elif self._is_ignored(pod, view):
                ignored += 1
            else:
                usage.append(view.cpu[pod.name])
        return usage, ignored, missing

    def _is_ignored(self, pod: SimPod, view: PlaneView) -> bool:
        """While a pod may still be starting its figure counts only once a whole window is ready."""
        if pod.placed_at + self.initialisation_seconds > view.now:
            return not pod.ready or view.cpu_read_at < pod.ready_at + METRICS_SECONDS
        return False


@dataclass(slots=True)
class Kpa:
    """Requests a second a pod, stable and panic windows; never to zero here."""

    target: float
    """Rows a second of a pod that it steers for: 70 % of what a pod takes, Knative's default."""
    least: int
    most: int
    period_seconds: float = 2.0
    stable_window_seconds: float = 60.0
    panic_threshold: float = 2.0
    up_rate: float = 1000.0
    down_rate: float = 2.0
    _panic_at: float | None = None
    _panic_pods: int = 0

    def scale(self, view: PlaneView) -> Answer:
        (pool,) = view.cluster.service.pools
        demand = view.observation.demand
        ready_now = sum(p.ready and not p.draining for p in view.cluster.of(pool.name))
        ready = max(1, ready_now)
        if demand is None:
            return {}, {}
        most_up, least_down = math.ceil(self.up_rate * ready), math.floor(ready / self.down_rate)
        stable = math.ceil((demand.stable_rows_per_second or 0.0) / self.target)
        panic = math.ceil((demand.panic_rows_per_second or 0.0) / self.target)
        wish = min(max(stable, least_down), most_up)
        sudden = min(max(panic, least_down), most_up)
        if panic / ready >= self.panic_threshold:
            self._panic_at = view.now
        elif self._panic_at is not None and view.now - self._panic_at > self.stable_window_seconds:
            self._panic_at, self._panic_pods = None, 0
        if self._panic_at is not None:
            self._panic_pods = max(self._panic_pods, wish, sudden)
            wish = self._panic_pods
        return {pool.name: min(max(wish, self.least), self.most)}, {}
