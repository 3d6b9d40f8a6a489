"""One pretended Deployment of one healthy pod, for decisions without a cluster."""

from collections.abc import Sequence

from slimscale.domain.contract import ContractSample
from slimscale.domain.observation import (
    ContainerResources,
    Freshness,
    Observation,
    PodObservation,
    QosClass,
    ResizeCondition,
    TargetObservation,
)

__all__ = ["observe_lone_pod"]


def observe_lone_pod(
    samples: Sequence[ContractSample],
    *,
    name: str,
    pod_uid: str,
    resources: ContainerResources,
    created_at_seconds: float,
    now_seconds: float,
    node: str = "",
    threads: int | None = None,
    guaranteed_beside: bool = False,
    freshness: Freshness = Freshness.FRESH,
) -> Observation:
    """What the operator would see of it: Running, ready, never restarted, its settings applied.

    `samples` are oldest first. `threads`: of its annotation; None: it has none.
    `guaranteed_beside`: QoS hangs on this container alone.
    """
    kept = tuple(samples)
    pod = PodObservation(
        name=f"{name}-0",
        uid=pod_uid,
        node=node,
        phase="Running",
        ready=True,
        terminating=False,
        created_at_seconds=created_at_seconds,
        qos_class=QosClass.BURSTABLE,
        resource_version="1",
        spec_resources=resources,
        applied_resources=resources,
        other_cpu_request_millicores=0,
        other_containers_guaranteed=guaranteed_beside,
        resize=ResizeCondition(),
        resize_restarts_container=False,
        restart_count=0,
        last_restart_seconds=None,
        crash_looping=False,
        desired_threads=threads,
        has_live_channel=True,
        samples=kept,
        freshness=freshness,
        sample_problem="" if kept else "no sample yet",
    )
    target = TargetObservation(
        kind="Deployment",
        name=name,
        uid="uid-target",
        generation=1,
        selector=f"app={name}",
        desired_replicas=1,
        container=name,
        template_resources=resources,
    )
    return Observation(
        namespace="simulated",
        name=name,
        uid="uid-cr",
        generation=1,
        sampled_at_seconds=now_seconds,
        target=target,
        pods=(pod,),
    )
