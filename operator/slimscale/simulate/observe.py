"""A simulated pod as the operator would see it, so that `decide` runs on it unchanged."""

import math
from collections.abc import Sequence
from dataclasses import replace

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import ContainerResources, Freshness, NodeRoom, Observation
from slimscale.simulate.lone_pod import observe_lone_pod
from slimscale.simulate.plant import Plant

__all__ = ["observation_of"]

_NODE = "node-0"
_MEMORY_BYTES = 2**28
_REQUEST_SHARE = 0.5
"""Of the limit: a Burstable pod, whose CPU may be changed."""


def observation_of(
    plant: Plant,
    samples: Sequence[ContractSample],
    *,
    now_seconds: float,
    max_age_seconds: float = math.inf,
) -> Observation:
    """One Deployment of this one pod, alone on a node of the host's cores.

    `samples` are what has been scraped so far, oldest first: take from `Plant.sample`, or leave
    out, delay and spoil some (`slimscale.simulate.faults`). Older than `max_age_seconds` is stale.
    The pod's CPU limit is its quota; without a quota it has a request alone.
    """
    resources = _resources(plant)
    seen = observe_lone_pod(
        samples,
        name="sim",
        pod_uid=plant.pod_uid,
        resources=resources,
        created_at_seconds=plant.start_seconds,
        now_seconds=now_seconds,
        node=_NODE,
        threads=plant.threads,
        freshness=_freshness(samples, now_seconds, max_age_seconds),
    )
    request = resources.cpu_request_millicores or 0
    return replace(seen, nodes={_NODE: NodeRoom(_NODE, plant.host.cores * 1000, request)})


def _resources(plant: Plant) -> ContainerResources:
    quota = plant.quota_cores
    if quota is None:
        request = round(1000 * _REQUEST_SHARE)
        return ContainerResources(request, None, _MEMORY_BYTES, 2 * _MEMORY_BYTES)
    limit = max(1, round(quota * 1000))
    request = max(1, round(limit * _REQUEST_SHARE))
    return ContainerResources(request, limit, _MEMORY_BYTES, 2 * _MEMORY_BYTES)


def _freshness(
    samples: Sequence[ContractSample], now_seconds: float, max_age_seconds: float
) -> Freshness:
    if not samples:
        return Freshness.MISSING
    old = now_seconds - samples[-1].sampled_at_seconds > max_age_seconds
    return Freshness.STALE if old else Freshness.FRESH
