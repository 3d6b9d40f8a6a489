"""Deployments, ReplicaSets and nodes of a simulated service: replicas asked for become pods later."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from slimscale.simulate.serving.pod import SimPod
from slimscale.simulate.serving.service import SimPool, SimService

__all__ = ["SimCluster"]

NODE_IDLE_SECONDS = 600.0
"""An empty node beyond the first ones goes after this time, as with cluster-autoscaler."""


@dataclass(slots=True)
class _Nodes:
    """Places for pods of one pool. A node that is on its way has its time of arrival."""

    pool: SimPool
    ready_at: list[float] = field(default_factory=list)
    emptied_at: float | None = None

    def place(self, pods: int, now: float) -> float:
        """When there is a place for pod number `pods + 1`; orders a node where there is none."""
        per_node = self.pool.pods_per_node
        if per_node <= 0:
            return now
        index = pods // per_node
        while len(self.ready_at) <= index:
            self.ready_at.append(now + self.pool.node_seconds)
        return max(now, self.ready_at[index])

    def settle(self, pods: int, now: float) -> None:
        per_node = self.pool.pods_per_node
        if per_node <= 0:
            return
        needed = max(self.pool.first_nodes, -(-pods // per_node))
        if len(self.ready_at) <= needed:
            self.emptied_at = None
        elif self.emptied_at is None:
            self.emptied_at = now
        elif now - self.emptied_at >= NODE_IDLE_SECONDS:
            del self.ready_at[needed:]
            self.emptied_at = None


class SimCluster:
    """All pods of a service. `replicas` is each Deployment's `.spec.replicas`."""

    def __init__(self, service: SimService, replicas: Mapping[str, int], rng: Random) -> None:
        self.service = service
        self.replicas = {pool.name: 0 for pool in service.pools}
        self.pods: list[SimPod] = []
        """Alive: starting, serving or draining."""
        self.gone: list[SimPod] = []
        self._rng = rng
        self._born = 0
        self._nodes = {pool.name: _Nodes(pool, [0.0] * pool.first_nodes) for pool in service.pools}
        for name, count in replicas.items():
            for pod in self.scale(name, count, 0.0):
                # The run begins with a service that is there.
                pod.placed_at, pod.ready_at, pod.ready = 0.0, 0.0, True
                pod.tell(0.0)

    def of(self, pool: str) -> list[SimPod]:
        return [pod for pod in self.pods if pod.pool.name == pool]

    def serving(self) -> list[SimPod]:
        return [pod for pod in self.pods if pod.ready and not pod.draining]

    def scale(self, name: str, count: int, now: float) -> list[SimPod]:
        """Set a Deployment's replicas. Returns the new pods; those that leave begin to drain."""
        pool = next(pool for pool in self.service.pools if pool.name == name)
        wanted = min(max(count, 0), pool.max_replicas)
        self.replicas[name] = wanted
        staying = [pod for pod in self.of(name) if not pod.draining]
        self._nodes[name].settle(len(self.of(name)), now)
        if len(staying) > wanted:
            # As a ReplicaSet: not ready first, then the deletion cost, then the youngest.
            staying.sort(key=lambda p: (p.ready, p.deletion_cost, -p.ready_at, p.name))
            for pod in staying[: len(staying) - wanted]:
                pod.draining = True
                if pod.empty or not pod.ready:
                    self.end(pod, now)
            return []
        return [self._create(pool, now) for _ in range(wanted - len(staying))]

    def end(self, pod: SimPod, now: float) -> None:
        pod.ended = now
        self.pods.remove(pod)
        self.gone.append(pod)

    def _create(self, pool: SimPool, now: float) -> SimPod:
        self._born += 1
        placed = self._nodes[pool.name].place(len(self.of(pool.name)), now)
        starts = pool.start_seconds * self._rng.lognormvariate(0.0, 0.1)
        pod = SimPod(
            name=f"{pool.name}-{self._born}",
            pool=pool,
            service=self.service,
            created=now,
            placed_at=placed,
            ready_at=placed + starts,
        )
        self.pods.append(pod)
        return pod

    def pod_seconds(self, pool: str, until: float) -> float:
        """Replica-seconds paid for: from a pod's place on a node to its end."""
        every = [pod for pod in (*self.pods, *self.gone) if pod.pool.name == pool]
        return sum(
            max(0.0, (until if pod.ended is None else pod.ended) - pod.created) for pod in every
        )
