"""A simulated pod as the operator would see it, so that `decide` runs on it unchanged."""

import math
from collections.abc import Sequence

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import (
    ContainerResources,
    Freshness,
    NodeRoom,
    Observation,
    PodObservation,
    QosClass,
    ResizeCondition,
    TargetObservation,
)
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
    kept = tuple(samples)
    resources = _resources(plant)
    request = resources.cpu_request_millicores or 0
    pod = PodObservation(
        name="sim-0",
        uid=plant.pod_uid,
        node=_NODE,
        phase="Running",
        ready=True,
        terminating=False,
        created_at_seconds=plant.start_seconds,
        qos_class=QosClass.BURSTABLE,
        resource_version="1",
        spec_resources=resources,
        applied_resources=resources,
        other_cpu_request_millicores=0,
        other_containers_guaranteed=False,
        resize=ResizeCondition(),
        resize_restarts_container=False,
        restart_count=0,
        last_restart_seconds=None,
        crash_looping=False,
        desired_threads=plant.threads,
        has_live_channel=True,
        samples=kept,
        freshness=_freshness(kept, now_seconds, max_age_seconds),
        sample_problem="" if kept else "no sample yet",
    )
    target = TargetObservation(
        kind="Deployment",
        name="sim",
        uid="uid-target",
        generation=1,
        selector="app=sim",
        desired_replicas=1,
        container="sim",
        template_resources=resources,
    )
    return Observation(
        namespace="simulated",
        name="sim",
        uid="uid-cr",
        generation=1,
        sampled_at_seconds=now_seconds,
        target=target,
        pods=(pod,),
        nodes={_NODE: NodeRoom(_NODE, plant.host.cores * 1000, request)},
    )


def _resources(plant: Plant) -> ContainerResources:
    quota = plant.quota_cores
    if quota is None:
        request = round(1000 * _REQUEST_SHARE)
        return ContainerResources(request, None, _MEMORY_BYTES, 2 * _MEMORY_BYTES)
    limit = max(1, round(quota * 1000))
    request = max(1, round(limit * _REQUEST_SHARE))
    return ContainerResources(request, limit, _MEMORY_BYTES, 2 * _MEMORY_BYTES)


def _freshness(
    samples: tuple[ContractSample, ...], now_seconds: float, max_age_seconds: float
) -> Freshness:
    if not samples:
        return Freshness.MISSING
    old = now_seconds - samples[-1].sampled_at_seconds > max_age_seconds
    return Freshness.STALE if old else Freshness.FRESH
