"""Which pods go at scale-in: the least loaded, through the pod deletion cost.

A ReplicaSet removes pods that are not ready first and then those with the lowest
`controller.kubernetes.io/pod-deletion-cost`. The annotation is written at scale-in alone, before
the replicas fall, and taken back from pods that were spared: Kubernetes asks not to change it with
every look at the load.
"""

import math
from collections.abc import Sequence

from slimscale.domain.scaling import PoolPod

__all__ = ["deletion_costs"]

FIRST = -1000
"""Cost of the pod that goes first; the next one has one more."""


def deletion_costs(pods: Sequence[PoolPod], leaving: int) -> dict[str, int]:
    """New annotation values, only of pods whose present one is wrong. Lower goes first."""
    ready = [pod for pod in pods if pod.ready and not pod.terminating]
    # Pods that are not ready go before any cost is looked at.
    unready = sum(not pod.ready and not pod.terminating for pod in pods)
    victims = sorted(ready, key=_load)[: max(0, leaving - unready)]
    costs = {pod.name: FIRST + place for place, pod in enumerate(victims)}
    for pod in ready:
        if pod.name not in costs and pod.deletion_cost < 0:
            costs[pod.name] = 0
    present = {pod.name: pod.deletion_cost for pod in ready}
    return {name: cost for name, cost in costs.items() if present[name] != cost}


def _load(pod: PoolPod) -> tuple[bool, float, int, float, str]:
    """Sort key: a lost device first, then little work, few warm widths, youth.

    A pod that says nothing is taken for the busiest: silence is no idleness.
    """
    if pod.device_lost:
        return (False, -math.inf, 0, -pod.created_at_seconds, pod.name)
    telemetry = pod.telemetry
    if telemetry is None:
        return (True, math.inf, 0, -pod.created_at_seconds, pod.name)
    rows = telemetry.queued_rows + telemetry.running_rows
    seconds = telemetry.backlog_seconds if math.isfinite(telemetry.backlog_seconds) else math.inf
    warm = sum(width.instances > 0 for width in telemetry.widths)
    return (not telemetry.draining, seconds + 1e-3 * rows, warm, -pod.created_at_seconds, pod.name)
